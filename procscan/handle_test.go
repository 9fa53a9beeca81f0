package procscan

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/procdir"
	"correlator/internal/lab/testenv"
	"correlator/memread"
	"correlator/procscan/internal/child"
)

func TestOpenProcess(t *testing.T) {
	p := child.StartSleep(t)
	id := identityOf(t, p.PID)
	h, err := OpenProcess("/proc", id)
	assert.NilError(t, err)
	assert.Check(t, h.Identity() == id && h.Alive(), "identity %+v, alive %v", h.Identity(), h.Alive())
	for _, other := range []ProcessID{{p.PID, id.StartTime + 1}, {p.PID, id.StartTime - 1}, {p.PID, 0}} {
		_, err := OpenProcess("/proc", other)
		assert.Check(t, errors.Is(err, ErrGone), "%+v, and the process is %+v: %v", other, id, err)
	}
	p.Kill()
	assert.Check(t, !h.Alive(), "alive after its exit")
	_, err = OpenProcess("/proc", id)
	assert.Check(t, errors.Is(err, ErrGone), "after its exit: %v", err)
	h.Close()
	h.Close()
	assert.Check(t, !h.Alive(), "alive after Close")
}

func TestOpenProcessLeaksNothing(t *testing.T) {
	p := child.StartSleep(t)
	id := identityOf(t, p.PID)
	before := child.Descriptors(t)
	h, err := OpenProcess("/proc", id)
	assert.NilError(t, err)
	held := child.Descriptors(t)
	assert.Check(t, held == before+1, "%d descriptors before, %d with a handle", before, held)
	h.Close()
	OpenProcess("/proc", ProcessID{p.PID, id.StartTime + 1})
	OpenProcess("/proc/missing", id)
	after := child.Descriptors(t)
	assert.Check(t, after == before, "%d descriptors before, %d after", before, after)
}

func TestOpenProcessErrors(t *testing.T) {
	zombie := child.StartZombie(t)
	_, err := OpenProcess("/proc", identityOf(t, zombie))
	assert.Check(t, errors.Is(err, ErrGone), "zombie: %v", err)
	missing := filepath.Join(t.TempDir(), "proc")
	_, err = OpenProcess(missing, identityOf(t, os.Getpid()))
	assert.Check(t, err != nil && !errors.Is(err, ErrGone), "missing proc root: %v", err)
}

// Every method returns ErrGone after the process has exited, reaped or not, and leaves no
// descriptor.
func TestHandleGone(t *testing.T) {
	for _, reap := range []bool{false, true} {
		p := startLibrary(t)
		h, library := openHost(t, p)
		if reap {
			p.Kill()
		} else {
			p.Cmd.Process.Kill()
			testenv.Poll(t, child.Timeout, "its exit", func() bool { return !h.Alive() })
		}
		before := child.Descriptors(t)
		_, credsErr := h.Credentials()
		_, rootErr := h.OpenRoot()
		mappings, mapsErr := h.ExecutableMappings()
		_, memoryErr := h.ExecutableMemory()
		_, openErr := h.OpenMapped(library)
		_, libsErr := h.Libraries()
		_, mapErr := h.Maps(library)
		for _, err := range []error{credsErr, rootErr, mapsErr, memoryErr, openErr, libsErr, mapErr} {
			if !errors.Is(err, ErrGone) {
				t.Errorf("reaped %v: %v, %v, %v (%v), %v, %v, %v, %v", reap, credsErr, rootErr, mapsErr, mappings,
					memoryErr, openErr, libsErr, mapErr)
				break
			}
		}
		after := child.Descriptors(t)
		assert.Check(t, after == before, "%d descriptors before, %d after", before, after)
	}
}

func TestHandleConcurrentClose(t *testing.T) {
	p := startLibrary(t)
	for range 20 {
		h, library := openHost(t, p)
		var group sync.WaitGroup
		for _, call := range []func(){
			func() { h.Alive() },
			func() { h.Libraries() },
			func() { h.ExecutableMappings() },
			func() {
				if f, err := h.OpenMapped(library); err == nil {
					f.Close()
				} else if !errors.Is(err, ErrGone) {
					t.Errorf("a handle closed meanwhile: %v", err)
				}
			},
			func() { h.Close() },
		} {
			group.Go(call)
		}
		group.Wait()
	}
}

func TestExecutableMappings(t *testing.T) { forEachSource(t, testExecutableMappings) }

func testExecutableMappings(t *testing.T, source Source) {
	dir := t.TempDir()
	p := child.StartHost(t, child.HostSpec{Maps: []child.MapSpec{
		{Path: filepath.Join(dir, "libc.so.6"), Unlink: true},
		{Path: filepath.Join(dir, "data"), Prot: unix.PROT_READ},
		{Path: filepath.Join(dir, realName)},
	}})
	h, library := openHost(t, p)
	h.source = source
	got, err := h.ExecutableMappings()
	assert.NilError(t, err)
	assert.Check(t, slices.Contains(got, library), "%+v is not among %+v", library, got)
	var names []string
	for _, m := range got {
		assert.Check(t, strings.HasPrefix(m.Path, "/") && m.Ino != 0, "%+v is not of a file", m)
		names = append(names, filepath.Base(m.Path))
	}
	for name, want := range map[string]bool{"libc.so.6": true, "data": false, realName: true} {
		assert.Check(t, slices.Contains(names, name) == want, "%s: among %q is %v", name, names, !want)
	}
	i := slices.IndexFunc(got, func(m Mapping) bool { return m.Path == filepath.Join(dir, "libc.so.6") })
	assert.Check(t, i >= 0 && got[i].Deleted, "the deleted file is %+v", got)
}

// Memory without a file is included, and the files are those that ExecutableMappings returns.
func TestExecutableMemory(t *testing.T) { forEachSource(t, testExecutableMemory) }

func testExecutableMemory(t *testing.T, source Source) {
	p := child.StartHost(t, child.HostSpec{Maps: []child.MapSpec{
		{Path: filepath.Join(t.TempDir(), realName)},
		{Prot: unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC},
		{Path: "memfd:code"},
	}})
	h, library := openHost(t, p)
	h.source = source
	all, err := h.ExecutableMemory()
	assert.NilError(t, err)
	files, err := h.ExecutableMappings()
	assert.NilError(t, err)
	assert.Check(t, slices.IsSortedFunc(all, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) }),
		"not by address: %+v", all)
	count := make(map[string]int)
	withFile := slices.DeleteFunc(slices.Clone(all), func(m Mapping) bool {
		if m.Ino != 0 {
			return false
		}
		count[m.Path]++
		return true
	})
	assert.Check(t, slices.Equal(withFile, files) && slices.Contains(files, library),
		"with files %+v, ExecutableMappings %+v", withFile, files)
	assert.Check(t, count[""] == 1 && count["[vdso]"] == 1, "without files %v", count)
	assert.Check(t, slices.ContainsFunc(files, func(m Mapping) bool { return m.Path == "/memfd:code" && m.Deleted }),
		"no memfd among %+v", files)
}

func TestTooManyMappings(t *testing.T) { forEachSource(t, testTooManyMappings) }

func testTooManyMappings(t *testing.T, source Source) {
	path := filepath.Join(t.TempDir(), realName)
	h, _ := openHost(t, startHost(t, child.MapSpec{Path: path, Times: maxExecutable + 1}))
	h.source = source
	if got, err := h.ExecutableMemory(); !errors.Is(err, ErrTooMany) || len(got) != maxExecutable {
		t.Errorf("memory: %d mappings, %v", len(got), err)
	}
	got, err := h.ExecutableMappings()
	assert.Check(t, errors.Is(err, ErrTooMany) && len(got) == maxExecutable, "files: %d mappings, %v", len(got), err)
}

// A library is found above thousands of pieces of code in a memfd, as .NET's compiler writes them.
func TestLibraryBehindCompiledCode(t *testing.T) { forEachSource(t, testLibraryBehindCompiledCode) }

func testLibraryBehindCompiledCode(t *testing.T, source Source) {
	const pieces = 10_000
	path := filepath.Join(t.TempDir(), realName)
	h, _ := openHost(t, startHost(t, child.MapSpec{Path: path}, child.MapSpec{Path: "memfd:doublemapper",
		Times: pieces}))
	h.source = source
	got, err := h.ExecutableMappings()
	assert.NilError(t, err)
	isLibrary := func(m Mapping) bool { return m.Path == path }
	of := slices.DeleteFunc(slices.Clone(got), isLibrary)
	assert.Check(t, len(got) > pieces && slices.ContainsFunc(got, isLibrary) && len(of) >= pieces,
		"%d mappings, %d others", len(got), len(of))
	memory, err := h.FileMemory()
	isOther := func(m Mapping) bool { return m.Ino == 0 }
	assert.Check(t, err == nil && slices.ContainsFunc(memory, isLibrary) && !slices.ContainsFunc(memory, isOther),
		"%d mappings, %v", len(memory), err)
}

// It is found, too, where more of that is mapped than is read.
func TestLibraryBehindTooMuchCode(t *testing.T) { forEachSource(t, testLibraryBehindTooMuchCode) }

func testLibraryBehindTooMuchCode(t *testing.T, source Source) {
	path := filepath.Join(t.TempDir(), realName)
	h, _ := openHost(t, startHost(t, child.MapSpec{Path: path}, child.MapSpec{Path: "memfd:doublemapper",
		Times: maxMade + 1}))
	h.source = source
	for what, read := range map[string]func() ([]Mapping, error){
		"files": h.ExecutableMappings, "memory": h.ExecutableMemory,
	} {
		got, err := read()
		found := slices.ContainsFunc(got, func(m Mapping) bool { return m.Path == path })
		assert.Check(t, errors.Is(err, ErrTooMany) && found && len(got) > maxMade, "%s: %d mappings, %t, %v", what,
			len(got), found, err)
	}
}

func TestLibraries(t *testing.T) { forEachSource(t, testLibraries) }

func testLibraries(t *testing.T, source Source) {
	dir := t.TempDir()
	other := startHost(t, child.MapSpec{Path: filepath.Join(dir, "libother.so")})
	h := openPID(t, other.PID)
	h.source = source
	got, err := h.Libraries()
	assert.Check(t, errors.Is(err, ErrNotFound), "without a library: %+v, %v", got, err)
	for _, times := range []int{1, 2, maxLibraries + 1} {
		p := startHost(t, child.MapSpec{Path: filepath.Join(dir, realName), Times: times})
		found, err := newScanner(t).Process(p.PID)
		assert.NilError(t, err)
		h, _ := openHost(t, p)
		h.source = source
		if got, err := h.Libraries(); err != nil || !slices.Equal(got, found.Libraries) {
			t.Errorf("mapped %d times: %+v, %v, want %+v", times, got, err, found.Libraries)
		}
	}
}

// maps calls Maps, which must not fail.
func maps(t *testing.T, h *Handle, m Mapping) bool {
	t.Helper()
	mapped, err := h.Maps(m)
	assert.NilError(t, err)
	return mapped
}

func TestMaps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a\nb")
	assert.NilError(t, os.Mkdir(dir, 0o755))
	path := filepath.Join(dir, realName)
	p := startHost(t, child.MapSpec{Path: path})
	h, m := openHost(t, p)
	assert.Assert(t, maps(t, h, m), "%+v is not mapped", m)
	for name, change := range map[string]func(*Mapping){
		"longer":       func(m *Mapping) { m.End += 1 << 12 },
		"elsewhere":    func(m *Mapping) { m.Start, m.End = 0x1000, 0x2000 },
		"another path": func(m *Mapping) { m.Path += "x" },
	} {
		other := m
		change(&other)
		assert.Check(t, !maps(t, h, other), "%s: %+v is mapped", name, other)
	}
	assert.NilError(t, os.Remove(path))
	assert.Check(t, maps(t, h, m), "not mapped, when its file is unlinked")
	p.Tell(t, "unmap")
	assert.Check(t, !maps(t, h, m), "mapped, after it was unmapped")
	got, err := h.Libraries()
	assert.Check(t, errors.Is(err, ErrNotFound), "libraries %+v, %v", got, err)
}

// A process that executes another program keeps its identity and loses its mappings.
func TestExec(t *testing.T) {
	p := startLibrary(t)
	h, m := openHost(t, p)
	p.Tell(t, "exec")
	testenv.Poll(t, child.Timeout, "the other program", func() bool { return !maps(t, h, m) })
	assert.Check(t, h.Alive() && identityOf(t, p.PID) == h.Identity(),
		"alive %v, identity %+v, before %+v", h.Alive(), identityOf(t, p.PID), h.Identity())
	got, err := h.Libraries()
	assert.Check(t, errors.Is(err, ErrNotFound), "libraries %+v, %v", got, err)
	m.Path += ".gone"
	f, err := h.OpenMapped(m)
	assert.Check(t, err != nil && !errors.Is(err, ErrGone), "opening a file that is not mapped: %v, %v", f, err)
}

// The root directory stays when the process has ended, with what is on its mount. Other mounts of a
// mount namespace end with its last process, but for who holds a file on them.
func TestOpenRoot(t *testing.T) {
	testenv.NeedRoot(t)
	chroot, mounted, nested := t.TempDir(), t.TempDir(), t.TempDir()
	for _, c := range []struct {
		name string
		spec child.HostSpec
		dir  string // of a file, from the process's root
		kept error
	}{
		{"chroot", child.HostSpec{Chroot: chroot}, "/", nil},
		{"root is a mount", child.HostSpec{Chroot: mounted, Mounts: private(mounted)}, "/", nil},
		{"mount below the root", child.HostSpec{Mounts: private(nested)}, nested, unix.ENOENT},
	} {
		file := filepath.Join(c.dir, realName) // which is only below that root
		c.spec.Maps = []child.MapSpec{{Path: file}}
		p := child.StartHost(t, c.spec)
		h, _ := openHost(t, p)
		root, err := h.OpenRoot()
		assert.NilError(t, err)
		defer root.Close()
		dir, err := LookupBelow(root, c.dir, unix.O_DIRECTORY)
		assert.NilError(t, err)
		defer unix.Close(dir)
		p.Kill()
		var stat unix.Stat_t
		err = unix.Fstatat(int(root.Fd()), strings.TrimPrefix(file, "/"), &stat, 0)
		assert.Check(t, errors.Is(err, c.kept), "%s: %s below the root: %v, want %v", c.name, file, err, c.kept)
		assert.Check(t, unix.Fstatat(dir, realName, &stat, 0), "%s: in its directory, which is held", c.name)
		flags, err := unix.FcntlInt(root.Fd(), unix.F_GETFL, 0)
		assert.Check(t, err == nil && flags&unix.O_PATH != 0, "%s: flags %#x, %v", c.name, flags, err)
	}
}

// private is a file system of the process's own.
func private(target string) []child.MountSpec {
	return []child.MountSpec{{Source: "private", Target: target, Type: "tmpfs"}}
}

// A process whose first thread has ended is like any other: all that threads share is read by one that
// lives. The id of a thread is said to be one.
func TestEndedMainThread(t *testing.T) {
	testenv.NeedRoot(t)
	p := startHost(t, published())
	h, err := OpenProcess("/proc", identityOf(t, p.PID))
	assert.NilError(t, err)
	defer h.Close()
	type facts struct {
		contexts, all    []Mapping
		program          string
		arguments        []string
		environment      map[string]string
		place            Place
		cgroup           Cgroup
		mapped           bool
		creds            Credentials
		found            Found
		start            [4]byte
		sweeps, contents int
	}
	read := func() (f facts) {
		var errs [11]error
		f.contexts, errs[0] = h.ProcessContexts()
		f.all, errs[1] = h.ExecutableMappings()
		f.program, errs[2] = h.Executable()
		f.arguments, errs[3] = h.CommandLine()
		f.environment, errs[4] = h.Environment(child.RoleVariable)
		f.place, errs[5] = h.Place()
		f.cgroup, _, errs[6] = h.Cgroup(nil)
		f.mapped, errs[7] = h.Maps(f.all[0])
		f.creds, errs[8] = h.Credentials()
		file, err := h.OpenMapped(f.all[0])
		if err == nil {
			f.contents, _ = file.Read(f.start[:])
			file.Close()
		}
		errs[9] = err
		scanner := newScanner(t)
		f.found, errs[10] = scanner.Process(p.PID)
		f.found.At = time.Time{}
		_, err = scanner.Sweep(func(pid int) bool { return pid != p.PID }, func(Found) { f.sweeps++ })
		assert.NilError(t, errors.Join(append(errs[:], err)...))
		memory := memread.Open("/proc", p.PID)
		defer memory.Close()
		assert.NilError(t, memory.ReadBatch([]memread.Request{{Addr: f.all[0].Start, Buf: f.start[:]}}))
		return f
	}
	before := read()
	assert.Check(t, before.sweeps == 1 && len(before.contexts) == 1 && string(before.start[1:]) == "ELF", "%+v", before)
	p.Tell(t, "leave")
	testenv.Poll(t, child.Timeout, "the end of the first thread", func() bool { return child.State(t, p.PID) == "Z" })
	after := read()
	assert.Check(t, h.Alive() && reflect.DeepEqual(before, after), "%+v, then %+v", before, after)
	tid := procdir.LivingThread("/proc", p.PID)
	_, err = newScanner(t).Process(tid)
	assert.Check(t, tid != p.PID && errors.Is(err, ErrGone), "thread %d of %d: %v", tid, p.PID, err)
	assert.ErrorContains(t, err, fmt.Sprintf("it is a thread of process %d", p.PID))
	p.Kill()
	assert.Check(t, !h.Alive() && procdir.LivingThread("/proc", p.PID) == p.PID)
}
