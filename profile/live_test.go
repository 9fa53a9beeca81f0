package profile

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// libcMapping is the first executable mapping of the C library.
func libcMapping(t testing.TB, p liveProcess) procscan.Mapping {
	t.Helper()
	mappings, err := p.ExecutableMappings()
	assert.NilError(t, err)
	i := slices.IndexFunc(mappings, func(m procscan.Mapping) bool {
		return strings.HasPrefix(filepath.Base(m.Path),
			"libc")
	})
	assert.Assert(t, i >= 0, "no C library among %v", mappings)
	return mappings[i]
}

// One code path has one id, wherever two processes of the program have their code, and after a
// restart of the one that computes it.
func TestSameIDInEveryProcess(t *testing.T) {
	testenv.NeedRoot(t) // for map_files
	program := buildStackProgram(t)
	first, second := startStackProgram(t, program), startStackProgram(t, program)
	if slices.Equal(first.stack, second.stack) {
		testenv.Missing(t, "needs address space layout randomization (kernel.randomize_va_space)")
	}
	files := newFiles(t)
	want := first.space(t, files).AppendFrames(nil, first.stack)
	id := TraceID(want)
	for _, tt := range []struct {
		name  string
		files *Files
		p     *stackProgram
	}{{"another process", files, second}, {"restarted", newFiles(t), first}, {"both", newFiles(t), second}} {
		got := tt.p.space(t, tt.files).AppendFrames(nil, tt.p.stack)
		assert.Check(t, len(got) == len(first.stack) && TraceID(got) == id,
			"%s: %v, not %v; frames %v, not %v", tt.name, TraceID(got), id, got, want)
	}
	if files.Frames.File.Load() != uint64(len(first.stack)+len(second.stack)) || files.Frames.Unknown.Load() != 0 {
		t.Errorf("%d frames in files, %d unknown", files.Frames.File.Load(), files.Frames.Unknown.Load())
	}
	// The other process shares what is known of its files.
	if resolved := files.Mappings.Resolved.Load(); resolved == 0 || uint64(files.images.Len()) > resolved/2 {
		t.Errorf("%d mappings, %d files", resolved, files.images.Len())
	}
	// A stack that was cut off is another stack.
	assert.Check(t, TraceID(want[:len(want)-1]) != id, "same id without the root")
}

// Frames are where the program's symbols say.
func TestFramesOfProgram(t *testing.T) {
	testenv.NeedRoot(t) // for map_files
	program := buildStackProgram(t)
	p := startStackProgram(t, program)
	frames := p.space(t, newFiles(t)).AppendFrames(nil, p.stack)

	f, err := elf.Open(program)
	assert.NilError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	assert.NilError(t, err)
	var chain []string
	for i, frame := range frames {
		assert.Assert(t, frame.File != nil, "frame %d, %#x: no file", i, p.stack[i])
		if frame.File.Path != program {
			continue
		}
		if frame.FileID() != htlHash(t, program) || len(frame.File.BuildID) != 40 || frame.Kind() != NativeFrame {
			t.Errorf("frame %d: %+v", i, frame.File)
		}
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && frame.Address >= s.Value && frame.Address < s.Value+s.Size {
				chain = append(chain, s.Name)
				if addr, ok := p.functions[s.Name]; ok && p.stack[i]-addr != frame.Address-s.Value+min(uint64(i), 1) {
					t.Errorf("frame %d is %#x into %s, not %#x", i, frame.Address-s.Value, s.Name, p.stack[i]-addr)
				}
			}
		}
	}
	want := []string{"inner", "middle", "outer", "main", "_start"}
	assert.Check(t, slices.Equal(chain, want), "call chain %v, want %v", chain, want)
	assert.Check(t, len(frames) > len(chain) && len(p.functions) == 3,
		"%d frames, functions %v: none of the C library", len(frames), p.functions)
}

// htlHash is the hash by its definition.
func htlHash(t *testing.T, path string) FileID {
	b := testenv.ReadFile(t, path)
	assert.Assert(t, len(b) >= 4096, "%s has %d bytes", path, len(b))
	pieces := append(slices.Clone(b[:4096]), b[len(b)-4096:]...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(pieces, uint64(len(b))))
	return FileID(sum[:16])
}

func TestDeletedFile(t *testing.T) {
	testenv.NeedRoot(t) // for map_files
	program := buildStackProgram(t)
	p := startStackProgram(t, program)
	want := htlHash(t, program)
	assert.NilError(t, os.Remove(program))
	frames := p.space(t, newFiles(t)).AppendFrames(nil, p.stack[:1])
	assert.Check(t, frames[0].FileID() == want && frames[0].File.Path == program,
		"%+v of %+v", frames[0], frames[0].File)
}

// A process that has ended is no error that takes anything away.
func TestEndedProcess(t *testing.T) {
	testenv.NeedRoot(t) // for map_files
	p := startStackProgram(t, buildStackProgram(t))
	space := p.space(t, newFiles(t))
	want := TraceID(space.AppendFrames(nil, p.stack))
	p.end()
	assert.Check(t, space.Update(time.Now(), p) != nil, "no error")
	got := TraceID(space.AppendFrames(nil, p.stack))
	assert.Check(t, got == want, "%v, want %v", got, want)
}

// The vDSO is one file in every process.
func TestVDSO(t *testing.T) {
	testenv.NeedRoot(t) // for map_files
	program := buildStackProgram(t)
	files := newFiles(t)
	var frames []Frame
	for range 2 {
		p := startStackProgram(t, program)
		frames = append(frames, p.space(t, files).AppendFrames(nil, []uint64{p.mapping(t, vdsoName).Start + 0x321})...)
	}
	assert.Assert(t, frames[0] == frames[1] && frames[0].File != nil && frames[0].Address == 0x321, "%+v", frames)
	file := frames[0].File
	assert.Check(t, file.Path == vdsoName && file.Kind == NativeFrame && len(file.BuildID) == 40, "%+v", file)

	// The id is that of the bytes in memory.
	m := openProcess(t, os.Getpid()).mapping(t, vdsoName)
	mem, err := os.Open("/proc/self/mem")
	assert.NilError(t, err)
	defer mem.Close()
	image := make([]byte, m.End-m.Start)
	_, err = mem.ReadAt(image, int64(m.Start))
	assert.NilError(t, err)
	path := filepath.Join(t.TempDir(), "vdso")
	testenv.WriteFile(t, path, image)
	if want := htlHash(t, path); frames[0].FileID() != want {
		t.Errorf("file id %v, want %v", frames[0].FileID(), want)
	}
}

// New code of a JIT compiler in known memory needs no update; a library loaded since does, once.
func TestCompilerAndLateLibrary(t *testing.T) {
	testenv.NeedRoot(t) // for map_files
	const bytes = 1 << 16
	code, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	assert.NilError(t, err)
	defer unix.Munmap(code)
	self := openProcess(t, os.Getpid())
	files := newFiles(t)
	space := self.space(t, files)
	soon := time.Now().Add(2 * pace.Shortest)

	start := addressOf(code)
	for off := uint64(0); off < bytes; off += 0x1000 {
		if frames := space.AppendFrames(nil, []uint64{start + off}); frames[0] != (Frame{Address: start + off}) {
			t.Fatalf("%+v", frames)
		}
	}
	assert.Assert(t, files.Frames.Anonymous.Load() == bytes/0x1000 && !space.Stale(soon),
		"%d anonymous frames, stale %v", files.Frames.Anonymous.Load(), space.Stale(soon))

	f, err := os.Open(library)
	assert.NilError(t, err)
	defer f.Close()
	text, err := unix.Mmap(int(f.Fd()), 0x1000, 0x1000, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	assert.NilError(t, err)
	defer unix.Munmap(text)
	stack := []uint64{addressOf(text) + 0x40}
	if frames := space.AppendFrames(nil, stack); frames[0].File != nil || !space.Stale(soon) {
		t.Fatalf("%+v, stale %v", frames, space.Stale(soon))
	}
	update(t, space, self)
	if frames := space.AppendFrames(nil, stack); frames[0].FileID() != htlHash(t, library) ||
		frames[0].Address != 0x1040 || space.Stale(soon) {
		t.Fatalf("%+v, stale %v", frames, space.Stale(soon))
	}
}
