package unwind

import (
	"bufio"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// startBusy starts a program that is busy until the test ends.
func startBusy(t *testing.T, program ...string) *jvm {
	t.Helper()
	cmd := exec.Command(program[0], program[1:]...)
	_, stdout := testenv.Start(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // before it is waited for
	j := &jvm{cmd: cmd, stdout: bufio.NewReader(stdout)}
	j.awaitReady(t)
	j.target = identify(t, cmd.Process.Pid)
	return j
}

// busy is a program of testdata in which main calls outer, that middle, and that inner, which is busy.
type busy struct {
	kind   string // of runtimeKinds
	script string
	main   string // the name of the code in no function
	// noLines: there are none. noRoot: nor are there native frames of what has called main.
	noLines, noRoot bool
}

var busies = map[string]busy{
	"python3": {kind: "Python", script: "busy.py", main: "<module>"},
	"node":    {kind: "V8", script: "busy.js", main: "<anonymous>"},
	"php":     {kind: "PHP", script: "busy.php", main: "{main}"},
}

// check checks all that a whole stack shows of the program, and reports whether it was in inner, and
// whether all lines are known. In V8, they are not in code that was called from a function without
// having a frame.
func (b *busy) check(t *testing.T, frames []Frame) (inInner, known bool) {
	t.Helper()
	kind := runtimeBy(func(k *runtimeKind) bool { return k.name == b.kind }).frames
	lines := make(map[string][]uint32)
	for i, line := range strings.Split(string(testenv.ReadFile(t, "testdata/"+b.script)), "\n") {
		for _, comment := range []string{" // ", " # "} {
			if _, function, ok := strings.Cut(line, comment); ok {
				lines[function] = append(lines[function], uint32(i+1))
			}
		}
	}
	ofScript := func(f Frame) bool { return f.Kind == kind && filepath.Base(f.SourceFile) == b.script }
	first, n := slices.IndexFunc(frames, ofScript), 0
	isNative := !slices.ContainsFunc(frames, func(f Frame) bool { return f.Kind != NativeFrame })
	if isNative && kind == V8Frame {
		return false, false // a thread that compiles
	}
	assert.Assert(t, first >= 0, "no frame of %s\n%+v", b.script, frames)
	for n < 4 && first+n < len(frames) && ofScript(frames[first+n]) {
		n++
	}
	called := []string{"inner", "middle", "outer", "main"}
	known = true
	for i, function := range called[4-n:] {
		f := frames[first+i]
		name := f.Function[max(strings.LastIndexAny(f.Function, ".:")+1, 0):]
		if function == "main" {
			function, name = "main", strings.Replace(f.Function, b.main, "main", 1)
		}
		known = known && (f.Line != 0 || b.noLines)
		unknown := f.Line == 0 && (b.noLines || kind == V8Frame)
		unknown = unknown || i == 0 && n < 4 // it does not call just now: its loop has a line of its own
		if name != function || !unknown && (b.noLines || !slices.Contains(lines[function], f.Line)) {
			t.Fatalf("%+v is not in %s, at %d\n%+v", f, function, lines[function], frames)
		}
	}
	for _, f := range frames {
		if f.Kind == CutFrame || f.Kind == NativeFrame && f.Address == 0 || f.Kind.OfRuntime() && f.Function == "" {
			t.Fatalf("frame %+v\n%+v", f, frames)
		}
	}
	if last := frames[len(frames)-1]; last.Kind != NativeFrame && !b.noRoot { // _start
		t.Fatalf("root is %+v", last)
	}
	return n == 4, known
}

// checkStacks checks the next stacks of the program.
func (b *busy) checkStacks(t *testing.T, e *testEngine, j *jvm) {
	t.Helper()
	all, unknown := 0, 0 // those with all calls, and of them those without a line
	e.eachWhole(t, j.target, 30, func(frames []Frame) bool {
		whole, known := b.check(t, frames)
		if whole {
			all++
		}
		if whole && !known {
			unknown++
		}
		return whole && known
	})
	assert.Check(t, unknown <= all/2, "of %d stacks, %d have a function without a line", all, unknown)
}

// Whole stacks of language runtimes without options have each call, with function, file and line. What a kind
// needs is loaded when a process has it, and what is stored of that is deleted with it, and with a worker.
func TestRuntimes(t *testing.T) {
	e := openEngine(t)
	e.sample(t)
	var on []string
	for program, b := range busies {
		t.Run(program, func(t *testing.T) {
			path := testenv.NeedTool(t, program)
			if b.kind == "Python" {
				b = b.ofVersion(t, path)
			}
			j := startBusy(t, path, "testdata/"+b.script)
			if len(e.chain.runtimes) != len(on) || e.programs(t) != 2+len(on) {
				t.Errorf("%d kinds are loaded before the first process of another, %d programs", len(e.chain.runtimes),
					e.programs(t))
			}
			e.synchronize(t, j.target)
			on = append(on, b.kind)
			status := e.Status().Runtimes
			assert.Check(t, len(status) == len(on) && status[b.kind] == "", status)
			b.checkStacks(t, e, j)
			assert.Check(t, e.entriesOf(t, j.target) != 0, "nothing is stored of the process")

			pid := e.worker.PID()
			assert.NilError(t, unix.Kill(pid, unix.SIGKILL))
			testenv.Poll(t, deadline, "the worker to end", func() bool { return hasEnded(pid) })
			other := startBusy(t, "sh", "-c", "echo ready; read end")
			e.synchronize(t, other.target)
			e.checkNothingOf(t, j.target)
			e.synchronize(t, j.target)
			b.checkStacks(t, e, j)

			assert.Check(t, e.Remove(t.Context(), j.target))
			e.checkNothingOf(t, j.target)
		})
	}
	if e.counters.MapErrors.Load() != 0 || e.counters.FilesSkipped.Load() != 0 {
		t.Errorf("%d errors of tables, %d files skipped", e.counters.MapErrors.Load(), e.counters.FilesSkipped.Load())
	}
}

// ofVersion returns what is seen of a program in the version of Python that a command is: before 3.11, no native
// frames of what has called it, and in 3.10, no lines.
func (b busy) ofVersion(t *testing.T, python string) busy {
	t.Helper()
	minor := versionOf(t, python)
	b.noLines, b.noRoot = minor == 10, minor <= 10
	return b
}

// versionOf returns the minor version of a Python 3.
func versionOf(t *testing.T, python string) (minor int) {
	t.Helper()
	text, err := exec.Command(python, "-c", "import sys; print(sys.version_info[1])").Output()
	assert.NilError(t, err)
	minor, err = strconv.Atoi(strings.TrimSpace(string(text)))
	assert.NilError(t, err)
	return minor
}

// programs returns how many programs can be called, besides the last.
func (e *testEngine) programs(t *testing.T) (n int) {
	t.Helper()
	for index := uint32(support.ProgUnwindStop + 1); index < e.chain.maps[programsMap].MaxEntries(); index++ {
		var id ebpf.ProgramID
		if e.chain.maps[programsMap].Lookup(index, &id) == nil {
			n++
		}
	}
	return n
}

// Go programs are native code, whose stacks are whole also where their runtime has gone to another one.
func TestGoProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "busygo")
	build := exec.Command(testenv.NeedTool(t, "go"), "build", "-o", program, "./testdata/busygo")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	assert.NilError(t, err, "\n%s", output)
	file, err := elf.Open(program)
	assert.NilError(t, err)
	defer file.Close()
	functions, err := file.Symbols()
	assert.NilError(t, err)
	ofOtherStack := func(name string) bool { return strings.HasPrefix(name, "runtime.systemstack") }
	nameOf := func(f Frame) string {
		for _, s := range functions {
			if s.Value <= f.Address && f.Address < s.Value+s.Size {
				return s.Name
			}
		}
		return "" // such as what a signal handler returns to: 1 is subtracted from a function's first address
	}
	e := openEngine(t) // none that a JVM has switched on
	e.sample(t)
	j := startBusy(t, program)
	e.synchronize(t, j.target)
	assert.Check(t, len(e.chain.runtimes) == 0, "%d kinds of runtimes are loaded", len(e.chain.runtimes))
	assert.Check(t, e.entriesOf(t, j.target) != 0, "nothing is stored of the process")
	whole, inRuntime := 0, 0
	for whole < 60 || inRuntime == 0 {
		s := e.next(t, j.target)
		frames, err := e.name(t, j.target, s)
		assert.NilError(t, err)
		names := make([]string, len(frames))
		for i := range frames {
			if frames[i].Kind == NativeFrame && frames[i].Address != 0 {
				names[i] = nameOf(frames[i])
			}
		}
		if at := slices.Index(names, "main.inner"); s.failure == 0 && at >= 0 {
			want := []string{"main.middle", "main.main", "runtime.main"}
			assert.Assert(t, slices.Equal(names[at+1:][:3], want), names)
			whole++
			if slices.ContainsFunc(names, ofOtherStack) {
				inRuntime++
			}
		}
	}
	assert.Check(t, e.Remove(t.Context(), j.target))
	e.checkNothingOf(t, j.target)
}

// The programs of runtimes load as they are on kernels before 5.17, too.
func TestLoadRuntimeWithoutAreas(t *testing.T) {
	shareEngine(t) // skips the test if something is missing
	kernel, err := readKernelLayout(nil)
	assert.NilError(t, err)
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	c, err := load(full, kernel, false)
	assert.NilError(t, err)
	defer c.close()
	for _, kind := range runtimeKinds {
		loaded, err := c.loadRuntime(kind)
		assert.Check(t, err)
		if again, err := c.loadRuntime(kind); err != nil || again != loaded {
			t.Errorf("%s is loaded again: %v", kind.name, err)
		}
	}
}

// Words of other runtimes than JVMs and PHP do not last, those of native code and of errors do.
func TestWordsOfRuntimes(t *testing.T) {
	// libpf.EbpfFrame: from the highest bit on, 4 bits for the type, 4 for flags, 4 for the number of words.
	native := []uint64{3<<60 | 2<<52, 1}
	failed := []uint64{1<<60 | support.FrameFlagError<<56 | 1<<52}
	for of, lasting := range map[uint64]bool{
		uint64(libpf.PythonFrame): false, uint64(libpf.V8Frame): false, uint64(libpf.NativeFrame): true,
		uint64(libpf.PHPFrame): true,
	} {
		words := slices.Concat(native, failed, []uint64{of<<60 | 3<<52, 1, 2}, native)
		assert.Check(t, Lasting(words) == lasting, "words of type %d last: %v", of, !lasting)
		want := words[:3]
		if lasting {
			want = words
		}
		compiled := Compiled(words)
		assert.Check(t, slices.Equal(compiled, want), "%x of %x are before those of type %d", compiled, words, of)
	}
}
