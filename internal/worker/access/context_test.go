package access

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"testing"

	"github.com/prometheus/procfs"
	"gotest.tools/v3/assert"

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
	assert.NilError(t, err)
	t.Cleanup(client.Close)
	proc, err := procfs.NewProc(pid)
	assert.NilError(t, err)
	stat, err := proc.Stat()
	assert.NilError(t, err)
	id := procscan.ProcessID{PID: pid, StartTime: stat.Starttime}
	handle, err := procscan.OpenProcess("/proc", id)
	assert.NilError(t, err)
	defer handle.Close()
	mappings, err := handle.ExecutableMappings()
	assert.NilError(t, err)
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
				assert.Check(t, result.Variable == nil && errors.Is(result.Err, elfsym.ErrNoSymbols),
					"%s: %+v, %v", mapping.Path, result.Variable, result.Err)
				continue
			}
			if result.Err != nil || result.Variable.TLSOffset == 0 || result.Variable.Relocation.Kind == 0 {
				t.Errorf("%s: %+v, %v", mapping.Path, result.Variable, result.Err)
				continue
			}
			found++
			file, err := os.Open(p.HostPath(p.File))
			assert.NilError(t, err)
			defer file.Close()
			info, err := file.Stat()
			assert.NilError(t, err)
			want, err := elfsym.ParseThreadContext(file, info.Size())
			assert.Check(t, err == nil && result.Variable.Relocation == want.Relocation &&
				result.Variable.HTLHash == want.HTLHash && len(result.Variable.Segments) == len(want.Segments),
				"%+v, want %+v, %v", result.Variable, want, err)
		}
		assert.Check(t, found == 1, "%+v: %d files with the variable in %+v", o, found, mappings)
	}
}

// Every mapping gets an answer, in more messages than one: thousands of them, with paths that are
// as long as paths can be.
func TestThreadContextsOfManyMappings(t *testing.T) {
	process, mappings := newProcess(t, os.Getpid())
	assert.Assert(t, len(mappings) != 0, "no mappings")
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
	assert.Assert(t, len(results) == len(asked), "%d results for %d mappings", len(results), len(asked))
	for i, result := range results {
		none := errors.Is(result.Err, elfsym.ErrNoSymbols)
		assert.Assert(t, result.Variable == nil && result.Err != nil && none == (i%3 == 0),
			"mapping %d: %+v", i, result)
	}
}

// A process that is gone has no answers.
func TestThreadContextsOfNoProcess(t *testing.T) {
	p := demo.StartOTel(t, demo.OTelOptions{Program: demo.OTelPIE})
	process, mappings := newProcess(t, p.PID)
	p.Kill()
	results := process.ThreadContexts(mappings)
	assert.Check(t, len(results) == len(mappings), "%d results for %d mappings", len(results), len(mappings))
	for _, result := range results {
		assert.Check(t, errors.Is(result.Err, procscan.ErrGone) && result.Variable == nil, "%+v", result)
	}
}

// A file that is broken is told apart from one that has nothing.
func TestThreadContextOfBrokenFile(t *testing.T) {
	s := &server{}
	var err error
	s.files, err = elfsym.NewCache(1)
	assert.NilError(t, err)
	contents := testenv.ReadFile(t, "../../../testdata/otel/prebuilt/x86_64-tlsdesc.so")
	for size, want := range map[int]error{0: elfsym.ErrNoSymbols, 1000: ErrMalformed, len(contents): nil} {
		path := filepath.Join(t.TempDir(), "file.so")
		testenv.WriteFile(t, path, contents[:size])
		file, err := os.Open(path)
		assert.NilError(t, err)
		found := s.threadContextOf(file)
		file.Close()
		if err := failures.Decode(found.Error); !errors.Is(err, want) || (found.Variable == nil) != (want != nil) {
			t.Errorf("%d bytes: %+v, %v, want %v", size, found.Variable, err, want)
		}
	}
}

// What the program of a process says of Go is what it says; other files say nothing.
func TestGoProgram(t *testing.T) {
	process, mappings := newProcess(t, os.Getpid())
	self, err := os.Executable()
	assert.NilError(t, err)
	pprof.SetGoroutineLabels(t.Context()) // there are none; but the program can set some
	for _, mapping := range mappings {
		program, err := process.GoProgram(mapping)
		if mapping.Path != self {
			assert.ErrorIs(t, err, elfsym.ErrNoSymbols, mapping.Path)
			continue
		}
		assert.NilError(t, err)
		file, err := elf.Open(self)
		assert.NilError(t, err)
		defer file.Close()
		local := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_TLS })
		assert.Check(t, *program == elfsym.GoProgram{Version: runtime.Version(), Labels: true, ThreadLocals: local},
			"%+v", program)
	}
}
