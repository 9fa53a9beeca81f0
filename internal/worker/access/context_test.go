package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/procfs"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/procscan"
)

// newProcess returns access to a process, as the agent has it, and its executable mappings.
func newProcess(t *testing.T, pid int) (*Process, []procscan.Mapping) {
	t.Helper()
	testenv.NeedRoot(t)
	client, err := Open("/proc", new(worker.Counters))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	proc, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	id := procscan.ProcessID{PID: pid, StartTime: stat.Starttime}
	handle, err := procscan.OpenProcess("/proc", id)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	mappings, err := handle.ExecutableMappings()
	if err != nil {
		t.Fatal(err)
	}
	return client.Process(id, "0"), mappings
}

// Of all files of a process one has the variable.
func TestThreadContexts(t *testing.T) {
	for _, o := range []demo.OTelOptions{{}, {Program: demo.OTelStatic}, {Musl: true, Form: demo.OTelLD}} {
		p := demo.StartOTel(t, o)
		process, mappings := newProcess(t, p.PID)
		found := 0
		for i, result := range process.ThreadContexts(mappings) {
			mapping := mappings[i]
			if mapping.Path != p.File {
				if result.Variable != nil || !errors.Is(result.Err, elfsym.ErrNoSymbols) {
					t.Errorf("%s: %+v, %v", mapping.Path, result.Variable, result.Err)
				}
				continue
			}
			if result.Err != nil || result.Variable.TLSOffset == 0 || result.Variable.Relocation.Kind == 0 {
				t.Errorf("%s: %+v, %v", mapping.Path, result.Variable, result.Err)
				continue
			}
			found++
			file, err := os.Open(p.HostPath(p.File))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			want, err := elfsym.ParseThreadContext(file, info.Size())
			if err != nil || result.Variable.Relocation != want.Relocation || result.Variable.HTLHash != want.HTLHash ||
				len(result.Variable.Segments) != len(want.Segments) {
				t.Errorf("%+v, want %+v, %v", result.Variable, want, err)
			}
		}
		if found != 1 {
			t.Errorf("%+v: %d files with the variable in %+v", o, found, mappings)
		}
	}
}

// Every mapping gets an answer, in more messages than one: thousands of them, with paths that are
// as long as paths can be.
func TestThreadContextsOfManyMappings(t *testing.T) {
	process, mappings := newProcess(t, os.Getpid())
	if len(mappings) == 0 {
		t.Fatal("no mappings")
	}
	asked := make([]procscan.Mapping, 0, 3000)
	long := string(make([]byte, 4000))
	for i := range cap(asked) {
		m := mappings[0]
		if i%3 != 0 {
			m = procscan.Mapping{Start: uint64(i) << 12, End: uint64(i+1) << 12, Path: "/none" + long}
		}
		asked = append(asked, m)
	}
	results := process.ThreadContexts(asked)
	if len(results) != len(asked) {
		t.Fatalf("%d results for %d mappings", len(results), len(asked))
	}
	for i, result := range results {
		none := errors.Is(result.Err, elfsym.ErrNoSymbols)
		if result.Variable != nil || result.Err == nil || none != (i%3 == 0) {
			t.Fatalf("mapping %d: %+v", i, result)
		}
	}
}

// A process that is gone has no answers.
func TestThreadContextsOfNoProcess(t *testing.T) {
	p := demo.StartOTel(t, demo.OTelOptions{Program: demo.OTelPIE})
	process, mappings := newProcess(t, p.PID)
	p.Kill()
	results := process.ThreadContexts(mappings)
	if len(results) != len(mappings) {
		t.Errorf("%d results for %d mappings", len(results), len(mappings))
	}
	for _, result := range results {
		if !errors.Is(result.Err, procscan.ErrGone) || result.Variable != nil {
			t.Errorf("%+v", result)
		}
	}
}

// A file that is broken is told apart from one that has nothing.
func TestThreadContextOfBrokenFile(t *testing.T) {
	s := &server{}
	var err error
	if s.files, err = elfsym.NewCache(1); err != nil {
		t.Fatal(err)
	}
	contents := testenv.ReadFile(t, "../../../testdata/otel/prebuilt/x86_64-tlsdesc.so")
	for size, want := range map[int]error{0: elfsym.ErrNoSymbols, 1000: ErrMalformed, len(contents): nil} {
		path := filepath.Join(t.TempDir(), "file.so")
		testenv.WriteFile(t, path, contents[:size])
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		found := s.threadContextOf(file)
		file.Close()
		if err := found.Error.error(); !errors.Is(err, want) || (found.Variable == nil) != (want != nil) {
			t.Errorf("%d bytes: %+v, %v, want %v", size, found.Variable, err, want)
		}
	}
}
