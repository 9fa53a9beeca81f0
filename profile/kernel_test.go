package profile

import (
	"bufio"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/host/kallsyms"
	"correlator/internal/lab/testenv"
)

// fakeKernel is a proc root and a sys root with what NewKernel reads of them.
type fakeKernel struct {
	testing.TB
	dir string
}

const (
	kernelBuildID = "48dc540c8b76393804ca8088dbfa7d42911a9444"
	moduleBuildID = "0123456789abcdef0123456789abcdef01234567"
)

func newFakeKernel(t testing.TB) fakeKernel {
	k := fakeKernel{t, t.TempDir()}
	k.write("proc/kallsyms", "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff82000000 T _etext\n")
	k.write("sys/kernel/notes", gnuBuildID(t, kernelBuildID))
	return k
}

func (k fakeKernel) write(name, contents string) {
	k.Helper()
	testenv.WriteFile(k, filepath.Join(k.dir, name), contents)
}

func (k fakeKernel) module(name, text, buildID string) {
	k.Helper()
	k.write(filepath.Join("sys/module", name, "sections/.text"), text)
	if buildID != "" {
		k.write(filepath.Join("sys/module", name, "notes/.note.gnu.build-id"), gnuBuildID(k, buildID))
	}
}

func (k fakeKernel) open() (*Kernel, error) {
	return NewKernel(filepath.Join(k.dir, "proc"), filepath.Join(k.dir, "sys"), pace, time.Now())
}

func gnuBuildID(t testing.TB, digits string) string {
	t.Helper()
	id, err := hex.DecodeString(digits)
	assert.NilError(t, err)
	return gnuNote(string(id))
}

// gnuNote is the note with a GNU build id: an Elf64_Nhdr, name and contents.
func gnuNote(id string) string {
	return string([]byte{4, 0, 0, 0, byte(len(id)), 0, 0, 0, 3, 0, 0, 0}) + "GNU\x00" + id
}

// kernelFileID is the id by its definition.
func kernelFileID(buildID string) (id FileID) {
	h := fnv.New128a()
	h.Write([]byte(buildID))
	h.Sum(id[:0])
	return id
}

func TestKernel(t *testing.T) {
	fake := newFakeKernel(t)
	fake.write("proc/modules", ""+
		"nf_tables 372736 12 nft_compat,nft_ct, Live 0xffffffffc0100000\n"+
		"no_id 4096 0 - Live 0xffffffffc0200000 (OE)\n"+
		"no_text 4096 0 - Live 0xffffffffc0300000\n"+
		"hidden 4096 0 - Live 0xffffffffc0400000\n"+
		"below 4096 0 - Live 0xffffffffc0500000\n"+
		"behind 4096 0 - Live 0xffffffffc0600000\n")
	fake.module("nf_tables", "0xffffffffc0101000\n", moduleBuildID) // behind the trampolines
	fake.module("no_id", "0xffffffffc0200000\n", "")
	fake.module("hidden", "0x0000000000000000\n", moduleBuildID)
	fake.module("below", "0xffffffffc04fffff\n", moduleBuildID)  // of another module, by the time it was read
	fake.module("behind", "0xffffffffc0601000\n", moduleBuildID) // the same
	k, err := fake.open()
	assert.NilError(t, err)
	frames := k.AppendFrames(nil, []uint64{
		0xffffffff81000000, 0xffffffff81000124, 0xffffffff82000000, // the kernel
		0xffffffffc0101002, 0xffffffffc015b000, // nf_tables
		0xffffffffc0200011, 0xffffffffc0300011, 0xffffffffc0400011, // no file
		0xffffffffc0101000, 0xffffffffc015b001, 0xffffffff82000001, // before, behind
		0xffffffffc0500011, 0xffffffffc0601011, // nowhere
		0, 0,
	})
	kernel := File{ID: kernelFileID(kernelBuildID), Kind: KernelFrame, BuildID: kernelBuildID, Path: "vmlinux"}
	module := File{ID: kernelFileID(moduleBuildID), Kind: KernelFrame, BuildID: moduleBuildID, Path: "nf_tables"}
	for i, want := range []struct {
		file File
		addr uint64
	}{
		{File{}, 0xffffffff81000000}, {kernel, 0x123}, {kernel, 0xffffff},
		{module, 1}, {module, 0x59fff},
		{File{}, 0xffffffffc0200010}, {File{}, 0xffffffffc0300010}, {File{}, 0xffffffffc0400010},
		{File{}, 0xffffffffc0100fff}, {File{}, 0xffffffffc015b000}, {File{}, 0xffffffff82000000},
		{File{}, 0xffffffffc0500010}, {File{}, 0xffffffffc0601010},
	} {
		got := &File{}
		if frames[i].File != nil {
			got = frames[i].File
		}
		assert.Check(t, got.equal(&want.file) && got.Code == nil && frames[i].Address == want.addr,
			"frame %d: %#x of %+v", i, frames[i].Address, got)
	}
	if len(frames) != 13 || k.Frames.File.Load() != 4 || k.Frames.Anonymous.Load() != 2 ||
		k.Frames.Unknown.Load() != 7 {
		t.Errorf("%d frames; counted %d, %d, %d", len(frames), k.Frames.File.Load(), k.Frames.Anonymous.Load(),
			k.Frames.Unknown.Load())
	}
}

// A file of the kernel is read so far and no further.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	testenv.WriteFile(t, path, "0123456789")
	for limit, want := range map[int64]string{9: "012345678", 10: "0123456789", 11: "0123456789"} {
		got, err := readFile(path, limit)
		assert.Check(t, err == nil && string(got) == want, "%d bytes: %q, %v", limit, got, err)
	}
}

func TestKernelUpdate(t *testing.T) {
	fake := newFakeKernel(t)
	k, err := fake.open()
	assert.NilError(t, err)
	soon := time.Now().Add(2 * pace.Shortest)
	stack := []uint64{0xffffffff81000124, 0xffffffffc0100021}
	before := k.AppendFrames(nil, stack)
	assert.Assert(t, before[1].File == nil && k.Stale(soon), "%+v, stale %v", before, k.Stale(soon))
	fake.write("proc/modules", "late 4096 0 - Live 0xffffffffc0100000\n")
	fake.module("late", "0xffffffffc0100000\n", moduleBuildID)
	version := k.Version()
	for range 2 {
		assert.NilError(t, k.Update(time.Now()))
		assert.Check(t, k.Version() == version+1, "version %d, before %d", k.Version(), version)
		after := k.AppendFrames(nil, stack)
		assert.Assert(t, after[0] == before[0] && after[1].File != nil && !k.Stale(soon),
			"%+v, stale %v", after, k.Stale(soon))
		before = after
	}
	// Another module of this name, where the old one was.
	fake.module("late", "0xffffffffc0100000\n", kernelBuildID)
	assert.NilError(t, k.Update(time.Now()))
	after := k.AppendFrames(nil, stack)
	assert.Assert(t, after[1].FileID() == kernelFileID(kernelBuildID), "%+v", after)

	assert.NilError(t, os.Remove(filepath.Join(fake.dir, "proc/modules")))
	// cannot be read
	assert.NilError(t, os.Mkdir(filepath.Join(fake.dir, "proc/modules"), 0o700))
	assert.Check(t, k.Update(time.Now()) != nil, "no error")
	assert.Check(t, k.AppendFrames(nil, stack)[1].File != nil, "what was known is forgotten")
}

func TestNoKernel(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(k fakeKernel)
		want   error
	}{
		{"hidden", func(k fakeKernel) {
			k.write("proc/kallsyms", "0000000000000000 T _stext\n0000000000000000 T _text\n0000000000000000 T _etext\n")
		}, kallsyms.ErrHidden},
		{"no kallsyms", func(k fakeKernel) { os.Remove(filepath.Join(k.dir, "proc/kallsyms")) }, kallsyms.ErrHidden},
		{"no text", func(k fakeKernel) { k.write("proc/kallsyms", "ffffffff81000000 T schedule\n") },
			kallsyms.ErrNoText},
		{"no notes", func(k fakeKernel) { os.Remove(filepath.Join(k.dir, "sys/kernel/notes")) }, errNoBuildID},
		{"no build id", func(k fakeKernel) {
			k.write("sys/kernel/notes", strings.Replace(gnuNote("12345678901234567890"), "GNU", "XEN", 1))
		}, errNoBuildID},
		{"modules", func(k fakeKernel) { os.Mkdir(filepath.Join(k.dir, "proc/modules"), 0o700) }, syscall.EISDIR},
	} {
		fake := newFakeKernel(t)
		tt.change(fake)
		k, err := fake.open()
		assert.Check(t, errors.Is(err, tt.want) && k == nil, "%s: %v, %v", tt.name, k, err)
	}
	// No kernel, no frames: the user's first address is the leaf.
	var k *Kernel
	frames := k.AppendFrames(nil, []uint64{0xffffffff81000000})
	assert.Check(t, len(frames) == 0 && !k.Stale(time.Now()) && k.Version() == 0, "%+v", frames)
}

// The running kernel, compared with its symbols.
func TestLiveKernel(t *testing.T) {
	testenv.NeedRoot(t) // for kallsyms
	k, err := NewKernel("/proc", "/sys", pace, time.Now())
	if errors.Is(err, kallsyms.ErrHidden) || errors.Is(err, errNoBuildID) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
	addrs := symbols(t, "_text", "_stext", "schedule", "do_exit", "vfs_read")
	start, listed := addrs["_text"]
	if !listed { // on arm64, Linux 6.1 lists nothing of the boot code before _stext
		start = addrs["_stext"]
		addrs["_text"] = start
	}
	assert.Assert(t, len(addrs) == 5, "found %v", addrs)
	stack := []uint64{addrs["schedule"], addrs["do_exit"] + 1, addrs["vfs_read"] + 1}
	frames := k.AppendFrames(nil, stack)
	for i, name := range []string{"schedule", "do_exit", "vfs_read"} {
		f := frames[i]
		assert.Check(t, f.File != nil && f.Address == addrs[name]-start && f.Kind() == KernelFrame &&
			f.FileID() == kernelFileID(f.File.BuildID),
			"%s: %+v of %+v", name, f, f.File)
	}
	// A modern id: it goes into an attribute, and its digits into the file id.
	id := frames[0].File.BuildID
	assert.Check(t, len(id) >= 32 && strings.ToLower(id) == id, "build id %q", id)
	again, err := NewKernel("/proc", "/sys", pace, time.Now())
	assert.NilError(t, err)
	assert.Check(t, TraceID(again.AppendFrames(nil, stack)) == TraceID(frames), "another id after a restart")
}

// symbols returns the addresses of those kernel symbols that there are.
func symbols(t *testing.T, names ...string) map[string]uint64 {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	assert.NilError(t, err)
	defer f.Close()
	found := make(map[string]uint64)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 3 && slices.Contains(names, words[2]) {
			found[words[2]] = parseHex(t, words[0])
		}
	}
	return found
}
