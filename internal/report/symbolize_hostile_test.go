package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"correlator/elfsym"
	"correlator/internal/demo"
	"correlator/internal/record"
	"correlator/internal/symbols"
	"correlator/internal/testenv"
	"correlator/procscan"
	"correlator/profile"
)

// hangingFile is on a file system that does not respond.
type hangingFile struct {
	*os.File
	reads, closes bool // that hang
	hang          chan struct{}
}

func (f hangingFile) ReadAt(b []byte, off int64) (int, error) {
	if f.reads {
		<-f.hang
	}
	return f.File.ReadAt(b, off)
}

func (f hangingFile) Close() error {
	if f.closes {
		<-f.hang
	}
	return f.File.Close()
}

// Nobody waits for processes that hang, whatever they hang in: they get no names, and all others
// do.
func TestLateProcess(t *testing.T) {
	testenv.NeedRoot(t)
	honest := openProcess(t, demo.Start(t, demo.Options{Manual: true}).PID)
	frames := map[*record.Process][]profile.Frame{honest: {function(t, honest, "demo", "checkout")}}
	hanging := make(map[*record.Process]hangingFile)
	hang := make(chan struct{})
	defer close(hang)
	for _, file := range []hangingFile{{reads: true}, {closes: true}, {reads: true, closes: true}} {
		p := openProcess(t, demo.Start(t, demo.Options{Manual: true}).PID)
		file.hang = hang
		hanging[p] = file
		// Of a file that is not there, so that all files are opened and closed again.
		frames[p] = []profile.Frame{{File: &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame,
			Path: "/none"}, Address: 1}}
	}
	s := newSymbolizer("/proc")
	s.openMapped = func(p *record.Process, m procscan.Mapping) (mappedFile, elfsym.FileKey, error) {
		opened, identity, err := openMapped(p, m)
		if file, ok := hanging[p]; ok && err == nil {
			file.File = opened.(*os.File)
			return file, identity, nil
		}
		return opened, identity, err
	}
	for p := range hanging {
		go s.Learn(p, frames[p])
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	names := s.read(ctx, recording(frames))
	if got := names.name(honest, frames[honest][0]); got != "checkout" {
		t.Errorf("%q", got)
	}
	if len(names.late) != len(hanging) || slices.Contains(names.late, honest) {
		t.Errorf("late are %v", names.late)
	}
	for p := range hanging {
		if got := names.name(p, frames[p][0]); got != "" {
			t.Errorf("%q", got)
		}
	}
	s.close() // does not wait either
}

// Files that two processes share are closed by the second one, without keeping others.
func TestClosingHangs(t *testing.T) {
	testenv.NeedRoot(t)
	process := demo.Start(t, demo.Options{Manual: true})
	first, second := openProcess(t, process.PID), openProcess(t, process.PID)
	frames := []profile.Frame{function(t, first, "demo", "checkout")}
	s := newSymbolizer("/proc")
	hang, closing := make(chan struct{}), make(chan struct{})
	s.openMapped = func(p *record.Process, m procscan.Mapping) (mappedFile, elfsym.FileKey, error) {
		opened, identity, err := openMapped(p, m)
		if err == nil {
			opened = closingFile{opened, hang, closing}
		}
		return opened, identity, err
	}
	s.Learn(first, frames)
	ended := make(chan struct{})
	go func() {
		s.Learn(second, frames)
		close(ended)
	}()
	<-closing
	s.sources(first) // which every process needs
	s.close()
	close(hang)
	<-ended
}

// closingFile reports that it is being closed, and waits.
type closingFile struct {
	mappedFile
	hang, closing chan struct{}
}

func (f closingFile) Close() error {
	select {
	case f.closing <- struct{}{}:
	case <-f.hang:
	}
	<-f.hang
	return f.mappedFile.Close()
}

// buildProgram returns a program whose one local function has its name in front of much else, in a
// part of the file that is not hashed for its id.
func buildProgram(t *testing.T) []byte {
	t.Helper()
	source := "#include <unistd.h>\nstatic __attribute__((noinline, used)) void checkout(void) { __asm__ volatile(\"\"); }\n"
	for _, c := range "abc" {
		source += "void " + strings.Repeat(string(c), 3000) + "(void) {}\n"
	}
	source += "int main(void) { char c; checkout(); return write(1, \"x\", 1) != 1 || read(0, &c, 1) != 0; }\n"
	path := filepath.Join(t.TempDir(), "program.c")
	testenv.WriteFile(t, path, source)
	return testenv.ReadFile(t, testenv.Compile(t, "cc", path))
}

func startProgram(t *testing.T, content []byte) *record.Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
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
	content := buildProgram(t)
	forged := bytes.Replace(content, []byte("\x00checkout\x00"), []byte("\x00launder_\x00"), 1)
	honest, forger := startProgram(t, content), startProgram(t, forged)
	one, other := function(t, honest, "copy", "checkout"), function(t, forger, "copy", "launder_")
	if one.File.ID != other.File.ID || one.Address != other.Address {
		t.Fatalf("%+v, %+v", one, other)
	}
	frames := []profile.Frame{one}
	r := recording(map[*record.Process][]profile.Frame{honest: frames, forger: frames})
	for _, order := range [][]*record.Process{{honest, forger}, {forger, honest}} {
		s := newSymbolizer("/proc")
		for _, p := range order {
			s.Learn(p, frames)
		}
		names := s.read(t.Context(), r)
		s.close()
		if names.name(honest, one) != "checkout" || names.name(forger, one) != "launder_" {
			t.Errorf("%q, %q", names.name(honest, one), names.name(forger, one))
		}
		p := buildProfile(r, names)
		if len(p.Location) != 2 || len(p.Mapping) != 2 || p.Mapping[0].File == p.Mapping[1].File ||
			p.CheckValid() != nil {
			t.Errorf("%v", p)
		}
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
		if err := errors.Join(os.WriteFile(path, []byte("1000000 20 f\n"), 0o600),
			os.Chtimes(path, written, written)); err != nil {
			t.Fatal(err)
		}
		s := newSymbolizer("/proc")
		names := s.read(t.Context(), r)
		s.close()
		if got := names.name(p, frames[0]); got != want ||
			errors.Is(names.perfMaps[p], symbols.ErrOld) != (want == "") {
			t.Errorf("%v old: %q, %v", age, got, names.perfMaps[p])
		}
	}
}

// A file that a process or another machine serves is not even opened.
func TestForeignFileSystem(t *testing.T) {
	testenv.NeedRoot(t)
	p := openProcess(t, demo.Start(t, demo.Options{Manual: true}).PID)
	frames := []profile.Frame{function(t, p, "demo", "checkout")}
	mappings, err := p.Handle.ExecutableMappings()
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{"ext4": "checkout", "fuse.test": ""} {
		mounts := ""
		for _, m := range mappings {
			mounts += fmt.Sprintf("1 1 %d:%d / / rw - %s test rw\n", unix.Major(m.Dev), unix.Minor(m.Dev), kind)
		}
		procRoot := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(procRoot, "self"), 0o700),
			os.WriteFile(filepath.Join(procRoot, "self/mountinfo"), []byte(mounts), 0o600)); err != nil {
			t.Fatal(err)
		}
		s := newSymbolizer(procRoot)
		s.openMapped = func(p *record.Process, m procscan.Mapping) (mappedFile, elfsym.FileKey, error) {
			if want == "" {
				t.Errorf("%s was opened", m.Path)
			}
			return openMapped(p, m)
		}
		r := recording(map[*record.Process][]profile.Frame{p: frames})
		names := s.read(t.Context(), r)
		s.close()
		if got := names.name(p, frames[0]); got != want ||
			errors.Is(names.unread[p], symbols.ErrFileSystem) != (want == "") {
			t.Errorf("%s: %q, %v", kind, got, names.unread[p])
		}
		hinted := slices.ContainsFunc(summarize(r, names).hints(), func(hint string) bool {
			return strings.Contains(hint,
				"were not opened, so code in them has no names: file system that may never answer (fuse.test)")
		})
		if hinted != (want == "") {
			t.Errorf("%s: hint %v", kind, hinted)
		}
	}
}

// A process whose names take too much memory has none, and takes none of another one's, also of
// files that both map.
func TestBudgetOfAnother(t *testing.T) {
	testenv.NeedRoot(t)
	process := demo.Start(t, demo.Options{Manual: true})
	full, other := openProcess(t, process.PID), openProcess(t, process.PID)
	frames := []profile.Frame{function(t, other, "demo", "checkout")}
	s := newSymbolizer("/proc")
	defer s.close()
	s.sources(full).budget = symbols.NewBudget(0)
	for _, test := range []struct {
		process *record.Process
		want    string
	}{{full, ""}, {other, "checkout"}, {full, ""}} {
		names := s.read(t.Context(), recording(map[*record.Process][]profile.Frame{test.process: frames}))
		if got := names.name(test.process, frames[0]); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
