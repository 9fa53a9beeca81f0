package unwind

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/libc"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
	"correlator/internal/worker"
	"correlator/procscan"
)

// checkProbed checks that a probe finds of a process what the engine says of it, also by a worker that knows its files,
// and returns that.
func checkProbed(t *testing.T, p *Prober, target Target, want Readability) Readability {
	t.Helper()
	var r Readability
	for range 3 { // at least two of them by one worker
		var err error
		r, err = p.Probe(target.ID, target.User)
		assert.NilError(t, err)
		got := r
		got.Runtimes = nil
		assert.Check(t, got.Failure == want.Failure && got.Refused == want.Refused && got.Unknown == want.Unknown &&
			got.Error == "", "got %+v, the engine says %+v", got, want)
	}
	return r
}

func newProber(t *testing.T, kind worker.Kind) *Prober {
	t.Helper()
	p, err := openProber("/proc", kind)
	assert.NilError(t, err)
	t.Cleanup(p.Close)
	return p
}

// What can be read has the name of its version; a process without a runtime has none, and of one that has ended nothing
// is known.
func TestProbe(t *testing.T) {
	testenv.NeedRoot(t)
	p := newProber(t, Kind())
	for program, b := range busies {
		j := startBusy(t, testenv.NeedTool(t, program), "testdata/"+b.script)
		r := checkProbed(t, p, j.target, Readability{})
		assert.Check(t, len(r.Runtimes) == 1 && strings.HasPrefix(r.Runtimes[0], b.kind+" "), "%+v", r)
	}
	j := startJVM(t, "17", 1, 1)
	r := checkProbed(t, p, j.target, Readability{})
	assert.Check(t, len(r.Runtimes) == 1 && strings.HasPrefix(r.Runtimes[0], "JVM 17.0."), "%+v", r)

	native := startBusy(t, "sh", "-c", "echo ready; read end")
	r = checkProbed(t, p, native.target, Readability{})
	assert.Check(t, len(r.Runtimes) == 0 && len(r.Remarks()) == 0, "%+v", r)
	gone := native.target.ID
	gone.StartTime++
	_, err := p.Probe(gone, "test")
	assert.Check(t, errors.Is(err, procscan.ErrGone), err)
}

// A JVM's file of a file system that a process serves is not read, as by the engine, and that is not kept for others.
// Memory that makes a worker wait costs no more than the time of a probe.
func TestProbeOfHanging(t *testing.T) {
	testenv.NeedRoot(t)
	p := newProber(t, Kind())
	other := startJVM(t, "17", 1, 1)
	fs := fusefs.Mount(t, fusefs.Fusermount)
	fs.Write("page", make([]byte, os.Getpagesize()))
	hanging := startHanging(t, fs, javaHomes["17"]+"/lib/server/libjvm.so", fs.Path("page"))
	fs.Hang(fusefs.Read, "/page")
	r, err := p.Probe(hanging.ID, hanging.User)
	assert.Check(t, err == nil && r.Error != "" && len(r.Runtimes) == 0, "%+v, %v", r, err)
	assert.DeepEqual(t, r.Remarks(), []Remark{{notExamined, r.Error}})
	r, err = p.Probe(other.target.ID, other.target.User)
	assert.Check(t, err == nil && len(r.Runtimes) == 1 && len(r.Remarks()) == 0, "%+v, %v", r, err)
	fs.Answer()
}

// storing is a runtime that stores what programs need if the C library says something, or if it need not.
type storing struct {
	unattached
	interpreter.Instance
	alone bool
}

func (s storing) Attach(interpreter.EbpfHandler, libpf.PID, libpf.Address, remotememory.RemoteMemory) (
	interpreter.Instance, error) {
	return s, nil
}

func (s storing) UpdateLibcInfo(tables interpreter.EbpfHandler, pid libpf.PID, info libc.LibcInfo) error {
	if s.alone || info.HasTSDInfo() {
		return tables.UpdateProcData(libpf.Python, pid, nil)
	}
	return nil
}

func (storing) Unload(interpreter.EbpfHandler) {}

// A runtime of which the programs need something that neither it nor the C library of its process tells is left to
// frame pointers, as by the engine. The files of the C library are read once.
func TestProbeNeedsLibc(t *testing.T) {
	needy, alone := &runtimeCode{data: storing{}}, &runtimeCode{data: storing{alone: true}}
	none := &target{cache: newFileCache()}
	assert.Check(t, !none.needsMet(needy) && none.needsMet(alone))

	j := startBusy(t, "sh", "-c", "echo ready; read end")
	var b budget
	b.reset()
	of, err := openTarget("/proc", &synchronize{ID: j.target.ID, User: "test"}, &b, nil)
	assert.NilError(t, err)
	defer of.close()
	of.begin()
	_, err = of.IterateMappings(func(process.RawMapping) bool { return true })
	assert.NilError(t, err)
	of.cache = newFileCache()
	assert.Check(t, of.needsMet(needy), "the C library of sh tells nothing")
	read := b.bytes.Load()
	assert.Check(t, of.needsMet(needy) && b.bytes.Load() == read, "it is read again")
}

// What is kept of files is bounded.
func TestFileCacheBounded(t *testing.T) {
	c := newFileCache()
	for i := range uint64(2 * maxCachedFiles) {
		c.jvms[mappedFile{1, i}] = "JVM"
		c.bound()
		assert.Assert(t, len(c.jvms) <= maxCachedFiles)
	}
}

// An answer to a probe may be bytes of any kind: its texts are bounded.
func TestProbeAnswers(t *testing.T) {
	long := strings.Repeat("x", 2*maxFailureBytes)
	for _, message := range []string{"", "S{}", "P", "P[]", `P{"runtimes":1}`,
		`P{"runtimes":["` + strings.Repeat(`","`, maxProbed) + `"]}`} {
		assert.Check(t, errors.Is(new(probed).decode([]byte(message), -1), errAnswer), "%.40q", message)
	}
	assert.Check(t, errors.Is(new(probed).decode([]byte("P{}"), 3), errAnswer), "a descriptor")
	var p probed
	err := p.decode([]byte(`P{"Gone":true,"runtimes":["`+long+`"],"failure":"`+long+`","refused":"`+long+`","unknown":"`+
		long+`","error":"`+long+`"}`), -1)
	assert.NilError(t, err)
	want := long[:maxFailureBytes]
	assert.DeepEqual(t, p, probed{true, Readability{[]string{want}, want, want, want, want}})
}

// A JVM's name is short.
func TestJVMName(t *testing.T) {
	for of, want := range map[string]string{
		"Java HotSpot VM 17.0.15+6 (17.0.15+6-Debian-1)": "JVM 17.0.15+6",
		"Java HotSpot VM 8.0.0+1 (25.392-b08)":           "JVM 8",
		"Java HotSpot VM 25.0.3+9":                       "JVM 25.0.3+9",
	} {
		assert.Equal(t, jvmName(of), want)
	}
}

// A line names the first of many processes.
func TestRemarkLine(t *testing.T) {
	r := Remark{AsNativeCode, "V8: why"}
	assert.Equal(t, r.Line(7), "stacks of 7 as native code: V8: why")
	assert.Equal(t, r.Line(1, 2, 3, 4, 5, 6, 7, 8), "stacks of 1, 2, 3, 4, 5, 6, 7, 8 as native code: V8: why")
	assert.Equal(t, r.Line(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
		"stacks of 1, 2, 3, 4, 5, 6, 7, 8 and 2 more as native code: V8: why")
}

// A file that could be opened is not opened again as long as it has not changed.
func TestOpensFileOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	testenv.WriteFile(t, path, testenv.ReadFile(t, "/bin/sh"))
	assert.NilError(t, os.Chmod(path, 0o700))
	j := startBusy(t, path, "-c", "echo ready; read end")
	var b budget
	b.reset()
	of, err := openTarget("/proc", &synchronize{ID: j.target.ID, User: "test"}, &b, nil)
	assert.NilError(t, err)
	defer of.close()
	of.begin()
	of.opens = make(map[openedAs]struct{})
	_, err = of.IterateMappings(func(process.RawMapping) bool { return true })
	assert.NilError(t, err)
	i := slices.IndexFunc(of.mapped, func(m process.RawMapping) bool { return m.Path == path })
	assert.Assert(t, i >= 0, "%v", of.mapped)
	first := of.GetMappingFileLastModified(&of.mapped[i])
	assert.Assert(t, first != 0 && len(of.opens) == 1, "%d, %v", first, of.opens)
	var files unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: files.Max}))
	again := of.GetMappingFileLastModified(&of.mapped[i]) // while nothing can be opened
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &files))
	assert.Check(t, again == first, "%d, and %d before", again, first)
	assert.NilError(t, os.Chmod(path, 0o755))
	changed := of.GetMappingFileLastModified(&of.mapped[i])
	assert.Check(t, changed != 0 && changed != first && len(of.opens) == 2, "%d, and %d before: %v", changed, first,
		of.opens)
}
