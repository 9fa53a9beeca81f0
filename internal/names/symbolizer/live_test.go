package symbolizer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbols"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/internal/worker/access/accesstest"
	"correlator/procscan"
	"correlator/profile"
)

func openLive(t *testing.T) (*Live, *worker.Counters) {
	t.Helper()
	var counters worker.Counters
	l, err := OpenLive("/proc", &counters)
	assert.NilError(t, err)
	t.Cleanup(l.Close)
	return l, &counters
}

// ask has names read, again if a worker takes too long on a busy machine.
func ask(t *testing.T, l *Live, r LiveRequest) (names *LiveNames, err error) {
	t.Helper()
	testenv.Poll(t, 5*time.Minute, "an answer of a worker", func() bool {
		names, err = l.Name(r)
		return !errors.Is(err, worker.ErrTimeout) && !errors.Is(err, worker.ErrHung) && !errors.Is(err, worker.ErrBusy)
	})
	return names, err
}

// A function is named with the range of its addresses, what has no symbol with the range that has
// none, again and again; and the perf map as it is at the time.
func TestLive(t *testing.T) {
	id, program, addr := start(t)
	l, counters := openLive(t)
	none := File{ID: profile.FileID{1}, Path: strings.Repeat("\xff", 2*maxLivePathBytes)}
	r := LiveRequest{ID: id, User: "a user", Files: map[File][]uint64{program: {addr + 5, addr + 9, 1}, none: {7}}}
	checkout := LiveName{Range: symbols.Range{Start: addr, End: addr + 8192}, Name: "checkout"}
	for range 2 {
		names, err := ask(t, l, r)
		assert.NilError(t, err)
		found := names.Files[program.ID].Names
		assert.Check(t, len(found) == 2 && found[0].Start == 0 && found[0].Name == "" && found[0].End > 1 &&
			found[1].Name == "checkout" && found[1].Start == addr && found[1].End >= addr+8192,
			"found %v, want %v", found, checkout)
		if found := names.Files[none.ID]; len(found.Names) > 0 || found.Failure != NotMapped {
			t.Errorf("%v in a file that the process does not have", found)
		}
		assert.Check(t, names.PerfMap == PerfMap{} && len(names.Code.Names) == 0 && names.Code.Failure == NoFailure,
			"%v, %v without a perf map", names.PerfMap, names.Code)
	}

	path := fmt.Sprintf("/tmp/perf-%d.map", id.PID)
	t.Cleanup(func() { os.Remove(path) })
	versions := make(map[PerfMap]bool)
	for _, text := range []string{"1000 20 one\n", "1000 20 other\n1020 20 next\n"} {
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		names, err := ask(t, l, LiveRequest{ID: id, User: "a user", Code: []uint64{0x1010}})
		assert.NilError(t, err)
		want := LiveName{Range: symbols.Range{Start: 0x1000, End: 0x1020}, Name: strings.Fields(text)[2]}
		assert.Check(t, len(names.Code.Names) == 1 && names.Code.Names[0] == want, "%v, want %v", names.Code, want)
		again, err := ask(t, l, LiveRequest{ID: id, User: "a user", PerfMap: true})
		if err != nil || again.PerfMap != names.PerfMap || versions[names.PerfMap] {
			t.Errorf("version %v, then %v, %v", names.PerfMap, again.PerfMap, err)
		}
		versions[names.PerfMap] = true
	}
	n := counters.Started.Load() - counters.TimedOut.Load()
	assert.Check(t, n == 1, "%d workers were started", n)
	l.EndIdle(-time.Second)
	if n := l.Stats().Running; n != 0 {
		t.Errorf("%d workers are left", n)
	}
	id.StartTime++
	_, err := ask(t, l, LiveRequest{ID: id, User: "a user"})
	assert.Check(t, errors.Is(err, procscan.ErrGone), "another process: %v", err)
}

// Functions with mangled names have both names, of whichever worker.
func TestDemangled(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program.c")
	testenv.WriteFile(t, source, `#include <unistd.h>
		#define FUNCTION(f, name) void f(void) __asm__(name); void f(void) { __asm__ volatile(".skip 64, 0x90"); }
		FUNCTION(cpp, "_ZN3foo3barIiEEvPKc")
		FUNCTION(rust, "_RNvNtCs1234_7mycrate3foo3bar")
		FUNCTION(older, "_ZN7mycrate3foo17h0123456789abcdefE")
		FUNCTION(wrong, "_ZN3foo")
		int main(void) { char c; return write(1, "x", 1) != 1 || read(0, &c, 1) != 0; }`)
	path := testenv.Compile(t, "cc", source)
	id, program := startFile(t, path)
	wanted := map[string]string{
		"_ZN3foo3barIiEEvPKc": "foo::bar<int>", "_RNvNtCs1234_7mycrate3foo3bar": "mycrate::foo::bar",
		"_ZN7mycrate3foo17h0123456789abcdefE": "mycrate::foo", "_ZN3foo": "", "main": "",
	}
	addrs := make(map[uint64]string)
	for name, addr := range testenv.Symbols(t, path) {
		if _, ok := wanted[name]; ok {
			addrs[addr] = name
		}
	}
	assert.Assert(t, len(addrs) == len(wanted), "found %v", addrs)
	files := map[File][]uint64{program: slices.Collect(maps.Keys(addrs))}
	l, _ := openLive(t)
	names, err := ask(t, l, LiveRequest{ID: id, User: "a user", Files: files})
	assert.NilError(t, err)
	found := names.Files[program.ID].Names
	assert.Check(t, len(found) == len(addrs), found)
	for _, found := range names.Files[program.ID].Names {
		if name := addrs[found.Start]; found.Name != name || found.Demangled != wanted[name] {
			t.Errorf("%+v, want %s, %s", found, name, wanted[name])
		}
	}
	p := openProcess(t, openClient(t), id, 0)
	result := p.user.client.Read(t.Context(), map[*Process]Wanted{p: {Files: files}})[p]
	assert.NilError(t, result.Err)
	for addr, name := range addrs {
		if got := result.Names.Native[program.ID][addr]; got != name || result.Names.Demangled[got] != wanted[name] {
			t.Errorf("%q, %q, want %s, %s", got, result.Names.Demangled[got], name, wanted[name])
		}
	}
}

// What does not fit into an answer is asked for again; something always fits.
func TestLiveAnswerIsBounded(t *testing.T) {
	id, _, _ := start(t)
	path := fmt.Sprintf("/tmp/perf-%d.map", id.PID)
	t.Cleanup(func() { os.Remove(path) })
	text, want := "", make(map[uint64]bool)
	for i := range uint64(MaxLiveAddrs) {
		text += fmt.Sprintf("%x 10 %d%s\n", 0x1000+i*16, i, strings.Repeat("n", 3000))
		want[0x1000+i*16] = true
	}
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
	l, _ := openLive(t)
	for len(want) > 0 {
		r := LiveRequest{ID: id, User: "a user"}
		for addr := range want {
			r.Code = append(r.Code, addr)
		}
		names, err := ask(t, l, r)
		assert.Assert(t, err == nil && len(names.Code.Names) != 0, "%v, %v", names, err)
		for _, n := range names.Code.Names {
			assert.Assert(t, want[n.Start], "%#x was not wanted any more", n.Start)
			delete(want, n.Start)
		}
	}
}

// A request leaves nothing open, whatever it opened.
func TestLiveClosesFiles(t *testing.T) {
	id, program, addr := start(t)
	path := fmt.Sprintf("/tmp/perf-%d.map", id.PID)
	t.Cleanup(func() { os.Remove(path) })
	assert.NilError(t, os.WriteFile(path, []byte("1000 20 one\n"), 0o600))
	s := newServer("/proc", nil)
	open := func() map[string]int {
		found := make(map[string]int)
		entries, err := os.ReadDir("/proc/self/fd")
		assert.NilError(t, err)
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
				found[target]++
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		return found
	}
	for range 3 {
		asked := []file{{ID: program.ID, Path: program.path(), Addrs: []uint64{addr}}}
		a := s.name(&request{ID: id, Files: asked, Code: []uint64{0x1010}})
		assert.Assert(t, len(a.Files) == 1 && len(a.Code.Names) == 1 && string(a.Code.Names[0].Name) == "one", "%+v", a)
	}
	found := open()
	assert.Check(t, found[program.Path]+found[path] <= 0, "open: %v", found)
}

// What a worker answers to a request is not trusted.
func TestHostileLiveAnswers(t *testing.T) {
	r := LiveRequest{Files: map[File][]uint64{{ID: profile.FileID{1}}: {1}}}
	for what, message := range map[string][]byte{
		"another file":    encodeLive(t, liveAnswer{Files: []liveFile{{ID: profile.FileID{2}}}}),
		"unknown failure": encodeLive(t, liveAnswer{Files: []liveFile{{ID: profile.FileID{1}, Failure: numFailures}}}),
		"same for code":   encodeLive(t, liveAnswer{Code: liveFile{Failure: numFailures}}),
		"no JSON":         []byte("["),
	} {
		_, err := decodeLive(message, &r)
		assert.Check(t, errors.Is(err, errAnswer), "%s: %v", what, err)
	}
	_, err := decodeLive(encodeLive(t, liveAnswer{Gone: true}), &r)
	assert.Check(t, errors.Is(err, procscan.ErrGone), err)
}

func encodeLive(t *testing.T, a liveAnswer) []byte {
	t.Helper()
	message, err := json.Marshal(a)
	assert.NilError(t, err)
	return message
}

func FuzzLiveAnswer(f *testing.F) {
	id := profile.FileID{1}
	f.Add([]byte(`{"Gone":true}`))
	f.Add([]byte(`{"Files":[{"ID":[1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"Names":[{"Start":1,"End":3,"Name":"YQ=="}]}],` +
		`"Code":{"Names":[{"Start":5,"End":2}],"Failure":4},"PerfMap":{"Size":1},"Spent":-7}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		names, err := decodeLive(message, &LiveRequest{Files: map[File][]uint64{{ID: id}: {1}}})
		if err != nil {
			return
		}
		for of := range names.Files {
			assert.Check(t, of == id && names.Spent >= 0 && names.Files[of].Failure < numFailures &&
				names.Code.Failure < numFailures,
				"%+v", names)
		}
	})
}

// What may have a name is told from what has none.
func TestLiveFailures(t *testing.T) {
	id, program, addr := start(t)
	l, _ := openLive(t)
	path := fmt.Sprintf("/tmp/perf-%d.map", id.PID)
	t.Cleanup(func() { os.Remove(path) })
	r := LiveRequest{ID: id, User: "a user", Files: map[File][]uint64{program: {addr}}, Code: []uint64{0x1010}}
	link := func() error { return os.Symlink("/etc/passwd", path) }
	write := func() error { return os.WriteFile(path, []byte("1000 20 one\n"), 0o600) }
	odd := func() error { return os.WriteFile(path, []byte("2000 20 one\n1000;20;two\n"), 0o600) }
	for what, c := range map[string]struct {
		make    func() error
		since   time.Time
		failure Failure
		names   int
	}{
		"no perf map":           {func() error { return nil }, time.Time{}, NoFailure, 1},
		"one that is a link":    {link, time.Time{}, PerfMapRefused, 0},
		"of an earlier program": {write, time.Now().Add(time.Hour), PerfMapRefused, 0},
		"of this one":           {write, time.Time{}, NoFailure, 1},
		"with an odd line":      {odd, time.Time{}, NoFailure, 1}, // the address is known to have no name
	} {
		assert.NilError(t, c.make())
		r.Since = c.since
		names, err := ask(t, l, r)
		assert.NilError(t, err)
		assert.Check(t, names.Code.Failure == c.failure && len(names.Code.Names) == c.names,
			"%s: %+v", what, names.Code)
		found := names.Files[program.ID]
		assert.Check(t, len(found.Names) == 1 && found.Failure == NoFailure, "%s: %+v of the program", what, found)
		err = os.Remove(path)
		assert.Assert(t, err == nil || errors.Is(err, fs.ErrNotExist), err)
	}
}

// Names are those of the file that is mapped, and only if that is the file that was asked for: not of what is at
// its path, nor of what is mapped at the path that was asked for.
func TestReplacedFile(t *testing.T) {
	id, program, addr := start(t)
	later := filepath.Join(t.TempDir(), "later.c")
	testenv.WriteFile(t, later, `#include <unistd.h>
		int later(void) { return 1; }
		static __attribute__((noinline, used)) void replaced(void) { __asm__ volatile(".skip 16384, 0x90"); }
		int main(void) { char c; return write(1, "x", 1) != 1 || read(0, &c, 1) != 0; }`)
	assert.NilError(t, os.Rename(testenv.Compile(t, "cc", later), program.Path))
	otherID, other := startFile(t, program.Path)
	assert.Assert(t, other.ID != program.ID && other.Path == program.Path, "%v, %v", program, other)
	l, _ := openLive(t)
	for what, c := range map[string]struct {
		id   procscan.ProcessID
		file File
		want string
	}{
		"a file that was replaced":              {id, program, "checkout"},
		"what is at its path":                   {id, other, ""},
		"what was there before":                 {otherID, program, ""},
		"what is mapped in another process too": {otherID, File{ID: other.ID, Path: "/elsewhere"}, "replaced"},
	} {
		addrs := []uint64{addr, addr + 64, addr + 4096}
		files := map[File][]uint64{c.file: slices.Clone(addrs)}
		names, err := ask(t, l, LiveRequest{ID: c.id, User: "a user", Files: files})
		assert.NilError(t, err, what)
		found := names.Files[c.file.ID]
		is := slices.ContainsFunc(found.Names, func(n LiveName) bool { return n.Name == c.want })
		assert.Check(t, (c.want != "" || len(found.Names) == 0 && found.Failure == NotMapped) && (c.want == "" || is),
			"%s: %+v, want %q", what, found, c.want)
		p := openProcess(t, openClient(t), c.id, 0)
		p.Learn([]File{c.file}, nil)
		result := p.user.client.Read(t.Context(), map[*Process]Wanted{p: {Files: map[File][]uint64{c.file: addrs}}})[p]
		got := result.Names.Native[c.file.ID][addr+4096]
		assert.Check(t, result.Err == nil && got == c.want && (result.Names.Paths[c.file.ID] != "") == (c.want != ""),
			"%s: %q at %v, %v", what, got, result.Names.Paths, result.Err)
	}
}

// Processes have the same view of one file, unless their rights, mounts or root directories differ, or the paths at
// which they have mapped it, where there may be other debug files.
func TestViews(t *testing.T) {
	testenv.NeedRoot(t)
	source := filepath.Join(t.TempDir(), "program.c")
	testenv.WriteFile(t, source, `#include <unistd.h>
		int main(void) { char c; return write(1, "x", 1) != 1 || read(0, &c, 1) != 0; }`)
	path := testenv.Compile(t, "cc", source, "-static")
	l, _ := openLive(t)
	client := accesstest.Open(t)
	view := func(path, command string, attributes *syscall.SysProcAttr) profile.View {
		cmd := exec.Command(command)
		cmd.SysProcAttr, cmd.Dir = attributes, "/"
		id, program := startCommand(t, cmd, path)
		names, err := ask(t, l, LiveRequest{ID: id, User: "a user", Files: map[File][]uint64{program: {1}}})
		assert.NilError(t, err)
		found := names.Files[program.ID]
		assert.Check(t, found.View != profile.View{} && found.Failure == NoFailure, "%+v", found)
		assert.Check(t, viewByAccess(t, client, id, program.ID) == found.View, "as the agent has it")
		return found.View
	}
	plain := view(path, path, nil)
	assert.Check(t, view(path, path, nil) == plain, "two processes that differ in nothing")
	for what, attributes := range map[string]*syscall.SysProcAttr{
		"rights": {Credential: &syscall.Credential{Groups: []uint32{12345}}}, "mounts": {Unshareflags: syscall.CLONE_NEWNS},
	} {
		assert.Check(t, view(path, path, attributes) != plain, what)
	}
	elsewhere := filepath.Join(t.TempDir(), "program")
	assert.NilError(t, os.Link(path, elsewhere))
	assert.Check(t, view(elsewhere, elsewhere, nil) != plain, "path")
	chroot := &syscall.SysProcAttr{Chroot: filepath.Dir(path)}
	assert.Check(t, view(path, "/"+filepath.Base(path), chroot) != plain, "root directory")
}

// viewByAccess returns the view that workers tell who reads what a process has mapped.
func viewByAccess(t *testing.T, client *access.Client, id procscan.ProcessID, file profile.FileID) (v profile.View) {
	t.Helper()
	handle, err := procscan.OpenProcess("/proc", id)
	assert.NilError(t, err)
	defer handle.Close()
	mappings, err := handle.ExecutableMappings()
	assert.NilError(t, err)
	for _, found := range client.Process(id, "a user").Files(mappings) {
		if found.File != nil && found.File.HTLHash == file {
			v = found.View
		}
	}
	return v
}

// A file whose symbols cannot be found is not one that has none.
func TestLiveUnreadable(t *testing.T) {
	_, program, addr := start(t)
	content := testenv.ReadFile(t, program.Path)
	binary.LittleEndian.PutUint64(content[40:], 1<<40) // e_shoff, far behind the end
	path := filepath.Join(t.TempDir(), "malformed")
	testenv.WriteProgram(t, path, content, 0o700)
	id, malformed := startFile(t, path)
	l, _ := openLive(t)
	names, err := ask(t, l, LiveRequest{ID: id, User: "a user", Files: map[File][]uint64{malformed: {addr}}})
	assert.NilError(t, err)
	found := names.Files[malformed.ID]
	assert.Check(t, len(found.Names) == 0 && found.Failure == Unreadable, "%+v", found)
}

// The names of a program are not read from what another program of the process has.
func TestLiveOfAnotherProgram(t *testing.T) {
	id, _, _ := start(t)
	handle, err := procscan.OpenProcess("/proc", id)
	assert.NilError(t, err)
	defer handle.Close()
	image, err := handle.Image()
	assert.NilError(t, err)
	l, _ := openLive(t)
	r := LiveRequest{ID: id, Image: image, User: "a user", Code: []uint64{0x1010}}
	_, err = ask(t, l, r)
	assert.Check(t, err)
	r.Image.StartStack++
	_, err = ask(t, l, r)
	assert.Check(t, errors.Is(err, procscan.ErrGone), "another program: %v", err)
}
