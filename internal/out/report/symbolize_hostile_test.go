package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/host/terminal"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
	"correlator/internal/names/symbols"
	"correlator/internal/out/record"
	"correlator/procscan"
	"correlator/profile"
)

// startIn starts a demo process that belongs to a file system's user and is in its namespaces.
func startIn(t *testing.T, fs *fusefs.FS) *record.Process {
	t.Helper()
	place := demo.Placement{UID: fusefs.UID, GID: fusefs.GID, By: fs.By}
	return openProcess(t, demo.Start(t, demo.Options{Manual: true, Placement: place}).PID)
}

// hanging is a process of an ordinary user, files of which are on a file system that does not answer
// any more.
type hanging struct {
	what    string
	fs      *fusefs.FS
	process *record.Process
	frame   profile.Frame
}

// startHanging starts processes that make whoever names their frames hang, in all ways that there are.
func startHanging(t *testing.T) (all []hanging) {
	t.Helper()
	begin := func(what string) hanging {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		return hanging{what: what, fs: fs}
	}

	h := begin("path of a debug file")
	h.process = startIn(t, h.fs)
	h.frame = function(t, h.process, "libc.so", "getenv")
	h.fs.Overlay("/usr/lib", "/usr/lib")
	h.fs.Hang(fusefs.Lookup, "/debug")
	all = append(all, h)

	for what, op := range map[string]fusefs.Op{
		"path of a perf map": fusefs.Lookup, "metadata of a perf map": fusefs.Getattr, "perf map": fusefs.Open,
		"contents of a perf map": fusefs.Read,
	} {
		h := begin(what)
		h.process = startIn(t, h.fs)
		h.frame = profile.Frame{Address: 0x1000010}
		h.fs.Overlay("/tmp", h.fs.Empty())
		name := fmt.Sprintf("perf-%d.map", h.process.PID)
		if op != fusefs.Lookup {
			h.fs.Write(name, []byte("1000000 20 f\n"))
		}
		h.fs.Hang(op, "/"+name)
		all = append(all, h)
	}

	source := filepath.Join(t.TempDir(), "work.c")
	testenv.WriteFile(t, source, "double work(double x) { return x + 1; }")
	library := testenv.ReadFile(t, testenv.Compile(t, "cc", source, "-shared", "-fPIC"))
	for what, op := range map[string]fusefs.Op{
		"metadata of a mapped file": fusefs.Getattr, "mapped file": fusefs.Open,
		"contents of a mapped file": fusefs.Read, "closing a mapped file": fusefs.Flush,
	} {
		h := begin(what)
		h.fs.Write("work.so", library)
		h.fs.Overlay("/mnt", "")
		place := demo.Placement{UID: fusefs.UID, GID: fusefs.GID, By: h.fs.By}
		started := demo.Start(t, demo.Options{Manual: true, Placement: place})
		started.Borrow("/mnt/work.so", "work")
		t.Cleanup(started.Kill) // its code is on the file system
		h.process = openProcess(t, started.PID)
		h.frame = function(t, h.process, "work.so", "work")
		h.fs.Hang(op, "/work.so")
		if op == fusefs.Flush { // of a file that is not there, so that all files are opened and closed again
			none := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: "/none"}
			h.frame = profile.Frame{File: none, Address: 1}
		}
		all = append(all, h)
	}
	return all
}

// Nobody waits for processes that hang, whatever they hang in: they get no names, and all others
// do, those of the same user, too.
func TestLateProcess(t *testing.T) {
	processes := startHanging(t)
	frames := make(map[*record.Process][]profile.Frame)
	n := newNamer(t)
	for _, h := range processes {
		frames[h.process] = []profile.Frame{h.frame}
		go n.Learn(h.process, sampleOf(frames[h.process]))
		h.fs.AnswerFirst()
	}
	var honest []*record.Process
	for _, uid := range []int{0, fusefs.UID} {
		place := demo.Placement{UID: uid, GID: uid}
		p := openProcess(t, demo.Start(t, demo.Options{Manual: true, Placement: place}).PID)
		frames[p] = []profile.Frame{function(t, p, "demo", "checkout")}
		honest = append(honest, p)
	}
	for _, h := range processes {
		h.fs.AnswerFirst()
	}
	assert.Check(t, n.patience > 0 && n.patience <= 15*time.Second, "by default it is patient for %v", n.patience)
	n.patience = time.Hour // for those that go on
	names := readNames(t.Context(), func() {}, n, recording(frames), terminal.NewStatusLine(io.Discard))
	for _, p := range honest {
		got := names.name(p, frames[p][0])
		assert.Check(t, got == "checkout" && !slices.Contains(names.late, p), "%q", got)
	}
	for _, h := range processes {
		if !slices.Contains(names.late, h.process) || names.name(h.process, h.frame) != "" {
			t.Errorf("%s: late %v, name %q, %v, %v", h.what, slices.Contains(names.late, h.process),
				names.name(h.process, h.frame), names.unread[h.process], h.fs.Requests())
		}
	}
	for _, h := range processes {
		for _, request := range h.fs.Requests() {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", request.TID))
			assert.Check(t, err != nil, "%s: a thread of this process hangs", h.what)
		}
	}
	assert.Check(t, len(names.late) == len(processes), "%d are late, of %d", len(names.late), len(processes))
	n.close() // does not wait either
}

func startProgram(t *testing.T, content []byte) *record.Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy")
	testenv.WriteProgram(t, path, content, 0o700)
	cmd := exec.Command(path)
	_, stdout := testenv.Start(t, cmd)
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // it is in place
		t.Fatal(err)
	}
	return openProcess(t, cmd.Process.Pid)
}

// A copy of a program with other symbols has the same file id. Its names are used for its own
// process only.
func TestNamesOfAForgery(t *testing.T) {
	content := testenv.CompileNamed(t)
	forged := bytes.Replace(content, []byte("\x00checkout\x00"), []byte("\x00launder_\x00"), 1)
	honest, forger := startProgram(t, content), startProgram(t, forged)
	one, other := function(t, honest, "copy", "checkout"), function(t, forger, "copy", "launder_")
	assert.Assert(t, one.File.ID == other.File.ID && one.Address == other.Address, "%+v, %+v", one, other)
	frames := []profile.Frame{one}
	r := recording(map[*record.Process][]profile.Frame{honest: frames, forger: frames})
	for _, order := range [][]*record.Process{{honest, forger}, {forger, honest}} {
		n := newNamer(t)
		for _, p := range order {
			n.Learn(p, sampleOf(frames))
		}
		names := n.read(t.Context(), r)
		if names.name(honest, one) != "checkout" || names.name(forger, one) != "launder_" {
			t.Errorf("%q, %q", names.name(honest, one), names.name(forger, one))
		}
		p := buildProfile(r, names)
		assert.Check(t, len(p.Location) == 2 && len(p.Mapping) == 2 && p.Mapping[0].File != p.Mapping[1].File &&
			p.CheckValid() == nil,
			p)
	}
}

// A perf map that was there before the process is another one's.
func TestPerfMapOfAnother(t *testing.T) {
	testenv.NeedRoot(t)
	process := demo.Start(t, demo.Options{Manual: true})
	p := openProcess(t, process.PID)
	path := fmt.Sprintf("/tmp/perf-%d.map", process.PID)
	t.Cleanup(func() { os.Remove(path) })
	frames := []profile.Frame{{Address: 0x1000010}}
	r := recording(map[*record.Process][]profile.Frame{p: frames})
	for age, want := range map[time.Duration]string{24 * time.Hour: "", 0: "f"} {
		written := time.Now().Add(-age)
		assert.NilError(t, errors.Join(os.WriteFile(path, []byte("1000000 20 f\n"), 0o600),
			os.Chtimes(path, written, written)))
		names := newNamer(t).read(t.Context(), r)
		if got := names.name(p, frames[0]); got != want ||
			errors.Is(names.perfMaps[p], symbols.ErrOld) != (want == "") {
			t.Errorf("%v old: %q, %v", age, got, names.perfMaps[p])
		}
	}
}

// A file that a process or another machine serves is not even opened.
func TestForeignFileSystem(t *testing.T) {
	fs := fusefs.Mount(t, fusefs.AllowOther)
	source := filepath.Join(t.TempDir(), "work.c")
	testenv.WriteFile(t, source, "double work(double x) { return x + 1; }")
	fs.Write("work.so", testenv.ReadFile(t, testenv.Compile(t, "cc", source, "-shared", "-fPIC")))
	place := demo.Placement{UID: fusefs.UID, GID: fusefs.GID, By: fs.By}
	process := demo.Start(t, demo.Options{Manual: true, Placement: place})
	process.Borrow(fs.Path("work.so"), "work")
	t.Cleanup(process.Kill) // its code is on the file system
	p := openProcess(t, process.PID)
	served, own := function(t, p, "work.so", "work"), function(t, p, "demo", "checkout")
	for _, op := range []fusefs.Op{fusefs.Lookup, fusefs.Getattr, fusefs.Open, fusefs.Read, fusefs.Statfs,
		fusefs.Flush} {
		fs.Hang(op, "/*")
	}
	r := recording(map[*record.Process][]profile.Frame{p: {served, own}})
	names := newNamer(t).read(t.Context(), r)
	if names.name(p, served) != "" || names.name(p, own) != "checkout" ||
		!errors.Is(names.unread[p], procscan.ErrFileSystem) {
		t.Errorf("%q, %q, %v", names.name(p, served), names.name(p, own), names.unread[p])
	}
	requests := fs.Requests()
	assert.Check(t, len(requests) == 0, "accessed: %v", requests)
	if !slices.ContainsFunc(summarize(r, names).hints(), func(hint string) bool {
		return strings.Contains(hint,
			"were not read, so code in them has no names: file system that may never answer (fuse)")
	}) {
		t.Errorf("hints %q", summarize(r, names).hints())
	}
}

// A process gets no names from files that it may not read itself, nor from those of the kernel's file
// systems, which it has mounted over its perf map in a user namespace.
func TestPerfMapWithForeignRights(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTool(t, "nsenter")
	testenv.NeedTool(t, "unshare")
	const uid = 12345
	dir, err := os.MkdirTemp("", "report-") // not t.TempDir, which other users cannot enter
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"secret", "public"} {
		testenv.WriteFile(t, filepath.Join(dir, name), "1000000 20 "+name+"\n")
	}
	assert.NilError(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "secret"), 0o600),
		os.Chmod(filepath.Join(dir, "public"), 0o644)))
	user := []string{"setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups", "--"}
	for source, want := range map[string]struct {
		name string
		err  error
	}{
		filepath.Join(dir, "secret"): {"", iofs.ErrPermission},
		"/proc/1/environ":            {"", procscan.ErrPseudoFile},
		"/proc/kallsyms":             {"", procscan.ErrPseudoFile},
		"/sys/kernel/notes":          {"", procscan.ErrPseudoFile},
		filepath.Join(dir, "public"): {"public", nil},
	} {
		t.Run(source, func(t *testing.T) {
			process := demo.Start(t, demo.Options{Manual: true, Placement: demo.Placement{UID: uid, GID: uid,
				By: append(slices.Clone(user), "unshare", "--user", "--map-root-user", "--mount", "--")}})
			path := fmt.Sprintf("/tmp/perf-%d.map", process.PID)
			t.Cleanup(func() { os.Remove(path) })
			assert.NilError(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, uid, uid)))
			mount := append(slices.Clone(user), "nsenter", "--target", fmt.Sprint(process.PID), "--user", "--mount",
				"--preserve-credentials", "--", "mount", "--bind", source, path)
			out, err := exec.Command(mount[0], mount[1:]...).CombinedOutput()
			assert.NilError(t, err, "\n%s", out)
			p := openProcess(t, process.PID)
			now := time.Now()
			if want.name != "" || want.err == iofs.ErrPermission { // else ErrOld
				assert.NilError(t, os.Chtimes(source, now, now))
			}
			frame := profile.Frame{Address: 0x1000010}
			names := newNamer(t).read(t.Context(), recording(map[*record.Process][]profile.Frame{p: {frame}}))
			if got := names.name(p, frame); got != want.name || !errors.Is(names.perfMaps[p], want.err) {
				t.Errorf("%q, %v", got, names.perfMaps[p])
			}
		})
	}
}
