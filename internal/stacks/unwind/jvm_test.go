package unwind

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// deadline is far more than anything here takes on a machine that is busy with other tests.
const deadline = 60 * time.Second

// javaHomes are the JDKs of the tests.
var javaHomes = map[string]string{
	"17": "/usr/lib/jvm/java-17-openjdk-" + runtime.GOARCH,
	"25": "/usr/lib/jvm/temurin-25-jdk-" + runtime.GOARCH,
}

// jvm is a running java program of testdata.
type jvm struct {
	cmd    *exec.Cmd
	stdin  io.Writer
	stdout *bufio.Reader
	target Target
}

// startJVM starts threads of Recursion, which recurse to a depth.
func startJVM(t *testing.T, jdk string, threads, depth int, flags ...string) *jvm {
	t.Helper()
	return startProgram(t, jdk, []string{"Recursion", strconv.Itoa(threads), strconv.Itoa(depth)}, flags...)
}

// startProgram starts a program with its arguments.
func startProgram(t testing.TB, jdk string, program []string, flags ...string) *jvm {
	t.Helper()
	java := filepath.Join(javaHomes[jdk], "bin/java")
	if _, err := os.Stat(java); err != nil {
		testenv.Missing(t, "needs JDK "+jdk+" at "+javaHomes[jdk])
	}
	classes := filepath.Join(demo.BuildWith(t, []string{"javac"}, "unwind-jvm"), "unwind-jvm.jar")
	args := append([]string{"-XX:+UseSerialGC", "-Xmx64m", "-XX:-UsePerfData"}, flags...)
	cmd := exec.Command(java, append(append(args, "-cp", classes), program...)...)
	stdin, stdout := testenv.Start(t, cmd)
	j := &jvm{cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
	j.awaitReady(t)
	j.target = identify(t, cmd.Process.Pid)
	return j
}

// awaitReady waits until the program says so.
func (j *jvm) awaitReady(t testing.TB) {
	t.Helper()
	line, err := j.stdout.ReadString('\n')
	assert.Assert(t, err == nil && line == "ready\n", "%q, %v", line, err)
}

// openIdentifier opens a sampler that tells which processes there are.
var openIdentifier = sync.OnceValues(func() (*bpf.Sampler, error) { return bpf.OpenSampler(bpf.SamplerOptions{}) })

// identify returns a process of this pid namespace as a target.
func identify(t testing.TB, pid int) Target {
	t.Helper()
	sampler, err := openIdentifier()
	assert.NilError(t, err)
	identity, err := sampler.Identify(pid)
	assert.NilError(t, err)
	started, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	assert.NilError(t, err)
	_, fields, _ := strings.Cut(string(started), ") ")
	ticks, err := strconv.ParseUint(strings.Fields(fields)[19], 10, 64)
	assert.NilError(t, err)
	return Target{
		ID:        procscan.ProcessID{PID: pid, StartTime: ticks},
		KernelPID: identity.KernelPID(), Program: identity, User: "test",
	}
}

// testEngine is an engine whose chain ends in a collector.
type testEngine struct {
	*Engine
	counters  *Counters
	collector *collector
}

// openEngine opens an engine of the test's own. It has nothing of this process in its tables, as that of shareEngine
// has, which was tested with it.
func openEngine(t testing.TB) *testEngine {
	t.Helper()
	return openEngineBy(t, func(c *Counters) (*Engine, error) {
		return open(t.Context(), testOptions(), c, Kind())
	})
}

// shareEngine returns the engine of all tests that leave its worker alone, which is open until all have ended.
func shareEngine(t testing.TB) *testEngine {
	t.Helper()
	if shared == nil {
		shared = newEngine(t, func(c *Counters) (*Engine, error) {
			return Open(context.Background(), testOptions(), c)
		})
	}
	return shared
}

var shared *testEngine

// testOptions are those of engines, with what is the same of each.
func testOptions() Options {
	types, _ := kernelTypesOnce() // else opening an engine fails
	return Options{ProcRoot: "/proc", Types: types}
}

var kernelTypesOnce = sync.OnceValues(ReadKernelTypes)

func openEngineBy(t testing.TB, open func(*Counters) (*Engine, error)) *testEngine {
	t.Helper()
	e := newEngine(t, open)
	t.Cleanup(func() { assert.Check(t, e.close()) })
	return e
}

// newEngine is openEngineBy without the end.
func newEngine(t testing.TB, open func(*Counters) (*Engine, error)) *testEngine {
	t.Helper()
	testenv.NeedRoot(t)
	e := &testEngine{counters: new(Counters)}
	var err error
	e.Engine, err = open(e.counters)
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err.Error())
	}
	assert.NilError(t, err)
	e.collector, err = newCollector(e.chain)
	assert.NilError(t, err)
	assert.NilError(t, e.chain.setLast(e.collector.program))
	return e
}

func (e *testEngine) close() error {
	e.collector.close()
	return e.Close()
}

// sample samples all CPUs until the test ends, at a rate that no other clock is in step with.
func (e *testEngine) sample(t testing.TB) {
	t.Helper()
	cpus, err := procscan.ReadCPUs("/sys/devices/system/cpu/online")
	assert.NilError(t, err)
	for _, cpu := range cpus {
		attr := unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
			Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: 986960,
		}
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		assert.NilError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		program := e.chain.programs[entryProgram].FD()
		err = errors.Join(unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program),
			unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0))
		assert.NilError(t, err)
	}
}

// forget forgets stacks that were collected before.
func (e *testEngine) forget(t testing.TB) {
	t.Helper()
	for {
		if _, err := e.collector.read(time.Unix(1, 0)); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// next returns the next stack of a target.
func (e *testEngine) next(t testing.TB, of Target) collected {
	t.Helper()
	end := time.Now().Add(deadline)
	for {
		s, err := e.collector.read(end)
		assert.NilError(t, err, "reading a stack")
		if s.pid == of.KernelPID {
			return s
		}
	}
}

// synchronize synchronizes a JVM as soon as it is ready, until the test ends.
func (e *testEngine) synchronize(t testing.TB, of Target) {
	t.Helper()
	if e == shared {
		t.Cleanup(func() { assert.Check(t, e.Remove(context.Background(), of)) })
	}
	testenv.Poll(t, deadline, "the JVM to be ready", func() bool {
		_, err := e.Synchronize(t.Context(), of)
		assert.Assert(t, err == nil || errors.Is(err, ErrNotReady), err)
		return err == nil
	})
	e.forget(t) // what was collected meanwhile may be cut
}

// name returns the frames of one stack, which are those of its words, up to a CutFrame. A JVM may move or compile what
// it is asked about between the stack and its words, so these may differ, but not each time.
func (e *testEngine) name(t testing.TB, of Target, s collected) ([]Frame, error) {
	all := [][]uint64{s.words}
	for word, rest := NextWord(s.words); word != nil; word, rest = NextWord(rest) {
		all = append(all, word)
	}
	first, err := e.Frames(t.Context(), of, all)
	if err != nil {
		return nil, err
	}
	differ := e.differ(t, of, all, first)
	for range 10 {
		if differ == "" {
			break
		}
		again, err := e.Frames(t.Context(), of, all)
		if err != nil {
			return nil, err
		}
		differ = e.differ(t, of, all, again)
	}
	assert.Check(t, differ == "", "%s", differ)
	return first[0].Frames, nil
}

// differ returns how the names of a stack and those of its words differ, "" if they do not.
func (e *testEngine) differ(t testing.TB, of Target, all [][]uint64, named []Named) string {
	t.Helper()
	var parts []Frame
	isKept := true
	for i, part := range named[1:] {
		parts, isKept = append(parts, part.Frames...), isKept && part.Keep
		isNative := len(part.Frames) == 1 && part.Frames[0].Kind == NativeFrame && part.Frames[0].Address != 0
		known, ok := e.Native(&of, all[1+i])
		assert.Check(t, ok == isNative && (!ok || slices.Equal(known.Frames, part.Frames) && known.Keep == part.Keep &&
			known.Span.Down >= part.Span.Down && known.Span.Up >= part.Span.Up), "%x: %+v, not %+v", all[1+i], known,
			part)
		if n := len(parts); n > 0 && parts[n-1].Kind == CutFrame {
			break
		}
	}
	if whole := named[0]; len(named) == len(all) && // else there was no time for more
		(!slices.Equal(parts, whole.Frames) || isKept != whole.Keep) {
		return fmt.Sprintf("%x is %+v, %v, its words %+v, %v", all[0], whole.Frames, whole.Keep, parts, isKept)
	}
	return ""
}

// eachWhole calls a function with the frames of whole stacks of a target until so many were good. Of many stacks,
// no more are cut than are whole.
func (e *testEngine) eachWhole(t *testing.T, of Target, good int, isGood func([]Frame) bool) {
	t.Helper()
	whole, cut := 0, 0
	for good > 0 && whole+cut < 2000 {
		s := e.next(t, of)
		if s.failure != 0 && len(s.words) > maxWords { // a sampler keeps less
			cut++
			continue
		}
		frames, err := e.name(t, of, s)
		assert.NilError(t, err)
		if s.failure != 0 {
			cut++
			continue
		}
		if whole++; isGood(frames) {
			good--
		}
	}
	const many = 20
	assert.Assert(t, good == 0 && (cut <= whole || whole < many),
		"of %d stacks %d are whole, %d good ones are missing", whole+cut, whole, good)
}

// awaitWhole waits for a whole stack of a target that has recursed to a depth.
func (e *testEngine) awaitWhole(t *testing.T, of Target, depth int) {
	t.Helper()
	e.eachWhole(t, of, 1, func(frames []Frame) bool { return checkRecursion(t, frames) == depth })
}

// linesOf are the lines of the source by the comments at their ends.
var linesOf = sync.OnceValue(func() map[string][]uint32 {
	source, err := os.ReadFile("testdata/Recursion.java")
	if err != nil {
		panic(err)
	}
	lines := make(map[string][]uint32)
	for i, line := range strings.Split(string(source), "\n") {
		if _, name, ok := strings.Cut(line, "; // "); ok {
			lines[name] = append(lines[name], uint32(i+1))
		} else if _, name, ok := strings.Cut(line, "{ // "); ok {
			lines[name] = append(lines[name], uint32(i+1))
		}
	}
	return lines
})

// checkRecursion checks all that a whole stack shows of Recursion, and returns how deep that has
// recursed. Where compiled code has no safepoint, as in spin's loop, a JVM knows the caller's line only.
func checkRecursion(t *testing.T, frames []Frame) (depth int) {
	t.Helper()
	lines := linesOf()
	check := func(f Frame, comment string) {
		t.Helper()
		if f.Kind != JVMFrame || f.SourceFile != "Recursion.java" || !slices.Contains(lines[comment], f.Line) {
			t.Fatalf("%+v is not at %s, %d\n%+v", f, comment, lines[comment], frames)
		}
	}
	once := slices.IndexFunc(frames, func(f Frame) bool { return f.Function == "Recursion.lambda$work$0" })
	if once < 0 {
		return 0 // it is not in the recursion
	}
	check(frames[once], "once")
	work := once + 1
	if frames[work].Function == "Recursion$$Lambda.applyAsLong" {
		work++
	}
	check(frames[work], "work")
	for i := once - 1; i >= 0; i-- {
		method := []string{"ping", "pong"}[depth%2]
		if frames[i].Function != "Recursion."+method {
			if frames[i].Function == "Recursion.spin" {
				check(frames[i], "spin")
			}
			break
		}
		check(frames[i], method)
		depth++
	}
	for _, f := range frames {
		switch {
		case f.Kind == CutFrame, f.Kind == NativeFrame && f.Address == 0, f.Kind == JVMFrame && f.Function == "":
			t.Fatalf("frame %+v\n%+v", f, frames)
		}
	}
	// The root is in libc: clone, or start_thread.
	last := frames[len(frames)-1]
	assert.Check(t, last.Kind == NativeFrame, "root is %+v", last)
	assert.Check(t, slices.ContainsFunc(frames, func(f Frame) bool { return f.Function == "java.lang.Thread.run" }),
		"no Thread.run\n%+v", frames)
	return depth - 1
}

// Whole stacks of JVMs without flags have each call, with class, method, file and line, whether compiled, inlined or
// interpreted, also deep ones, to their end. How much of them a sampler keeps is a bound of its own.
func TestJVM(t *testing.T) {
	e := openEngine(t)
	e.sample(t)
	const low, deep = 30, 300
	compiled, c1 := []string{"-XX:+TieredCompilation"}, []string{"-XX:TieredStopAtLevel=1"} // the default; C1 alone
	interpreted, notInlined := []string{"-Xint"}, []string{"-XX:-Inline"}
	for _, c := range []struct {
		jdk, name string
		flags     []string
		depth     int
		sure      bool // the leaf is known
	}{
		{"17", "compiled", compiled, low, false},
		{"17", "C1", c1, low, false},
		{"17", "compiled, not inlined", notInlined, deep, false},
		{"17", "interpreted", interpreted, deep, true},
		{"25", "compiled", compiled, low, false},
		{"25", "C1", c1, low, false},
		{"25", "interpreted", interpreted, low, true},
	} {
		t.Run(c.jdk+" "+c.name, func(t *testing.T) {
			j := startJVM(t, c.jdk, 2, c.depth, c.flags...)
			e.synchronize(t, j.target)
			e.awaitWhole(t, j.target, c.depth)
			e.eachWhole(t, j.target, 20, func(frames []Frame) bool {
				e.checkMapped(t, j, frames)
				return checkRecursion(t, frames) == c.depth || !c.sure
			})
			for whole := 0; c.depth == deep && whole < 20; { // none is inlined
				if s := e.next(t, j.target); s.failure == 0 && len(s.words) >= 3*deep {
					whole++
				}
			}
			assert.Check(t, e.Remove(t.Context(), j.target))
			e.checkNothingOf(t, j.target)
		})
	}
	if e.counters.Started.Load() != 1 || e.counters.MapErrors.Load() != 0 || e.counters.FilesSkipped.Load() != 0 {
		t.Errorf("%d workers, %d errors of tables, %d files skipped", e.counters.Started.Load(),
			e.counters.MapErrors.Load(), e.counters.FilesSkipped.Load())
	}
}

// No stack has a method that does not call the next one where code that searches in a text has moved the stack pointer,
// though return addresses of earlier calls are there; and hardly any ends there.
func TestJVMSearches(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	for _, jdk := range []string{"17", "25"} {
		t.Run(jdk, func(t *testing.T) {
			flags := []string{"-XX:-Inline"}
			if jdk == "25" && runtime.GOARCH == "amd64" {
				flags = append(flags, "-XX:UseAVX=0")
			}
			j := startProgram(t, jdk, []string{"Searches"}, flags...)
			e.synchronize(t, j.target)
			e.eachWhole(t, j.target, 200, func(frames []Frame) bool {
				isSearch := func(f Frame) bool { return f.Function == "java.lang.String.indexOf" }
				at := slices.IndexFunc(frames, isSearch)
				for i, f := range frames[:len(frames)-1] {
					caller := frames[i+1].Function
					right := isSearch(f) && (isSearch(frames[i+1]) || caller == "Searches.search") ||
						f.Function == "Searches.search" && caller == "Searches.work"
					assert.Assert(t, right || !isSearch(f) && f.Function != "Searches.search", "%+v", frames)
				}
				return at >= 0
			})
			const invalid, stacks, most = 1003, 500, 10 // ERR_HOTSPOT_INVALID_CODEBLOB, where rcx is not known
			ended := 0
			for range stacks {
				if e.next(t, j.target).failure == invalid {
					ended++
				}
			}
			assert.Check(t, ended <= most, "%d of %d stacks end in a method", ended, stacks)
		})
	}
}

// In compiled code that calls a native method nothing is inlined.
func TestJVMNatives(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	for _, jdk := range []string{"17", "25"} {
		t.Run(jdk, func(t *testing.T) {
			j := startProgram(t, jdk, []string{"Natives"})
			e.synchronize(t, j.target)
			e.eachWhole(t, j.target, 50, func(frames []Frame) bool {
				at := slices.IndexFunc(frames, func(f Frame) bool {
					return f.Function == "java.lang.Runtime.availableProcessors"
				})
				if at < 1 || frames[at-1].Kind != NativeFrame && frames[at-1].Kind != InlinedFrame {
					return false
				}
				assert.Assert(t, frames[at-1].Kind == NativeFrame, "%+v", frames)
				return true
			})
		})
	}
}

// A virtual thread that has waited goes on with few of its callers on the stack: that it has others is said.
func TestJVMFrozen(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	j := startProgram(t, "25", []string{"Virtual"}, "-XX:-Inline")
	e.synchronize(t, j.target)
	testenv.Poll(t, deadline, "a stack that is cut", func() (cut bool) {
		s := e.next(t, j.target)
		frames, err := e.name(t, j.target, s)
		assert.NilError(t, err)
		has := func(function string) bool {
			return slices.ContainsFunc(frames, func(f Frame) bool { return f.Function == function })
		}
		if s.failure != 0 || !has("Virtual.busy") {
			return false
		}
		cut = frames[len(frames)-1].Kind == CutFrame
		assert.Assert(t, cut != has("java.lang.VirtualThread.run"), "%+v", frames)
		return cut
	})
}

// checkMapped checks that native frames are in executable mappings of files.
func (e *testEngine) checkMapped(t *testing.T, j *jvm, frames []Frame) {
	t.Helper()
	handle, err := procscan.OpenProcess("/proc", j.target.ID)
	assert.NilError(t, err)
	defer handle.Close()
	mappings, err := handle.ExecutableMemory()
	assert.NilError(t, err)
	for _, f := range frames {
		assert.Assert(t, f.Kind != NativeFrame || slices.ContainsFunc(mappings, func(m procscan.Mapping) bool {
			return m.Start <= f.Address && f.Address < m.End && m.Path != ""
		}), "%+v is not mapped", f)
	}
}

// checkNothingOf checks that no table has entries of a process.
func (e *testEngine) checkNothingOf(t *testing.T, of Target) {
	t.Helper()
	n := e.entriesOf(t, of)
	assert.Check(t, n <= 0, "%d entries are left", n)
}

// entriesOf returns the number of entries of a process.
func (e *testEngine) entriesOf(t *testing.T, of Target) (n int) {
	t.Helper()
	table := e.chain.maps[pidPageMap]
	key, value := make([]byte, table.KeySize()), make([]byte, table.ValueSize())
	for all := table.Iterate(); all.Next(&key, &value); {
		pid := bits.ReverseBytes32(*(*uint32)(unsafe.Pointer(&key[4])))
		if pid == of.KernelPID {
			n++
		}
	}
	tables := []*ebpf.Map{e.chain.maps[hotspotMap], e.chain.maps[goMap]}
	for _, runtime := range e.chain.runtimes {
		tables = append(tables, runtime.table)
	}
	for _, table := range tables {
		if table.Lookup(of.KernelPID, make([]byte, table.ValueSize())) == nil {
			n++
		}
	}
	return n
}

// A worker that is killed, or stopped, costs what was synchronized, and nothing else.
func TestWorkerEnds(t *testing.T) {
	e := openEngine(t)
	e.sample(t)
	const depth = 10
	j := startJVM(t, "17", 1, depth)
	var resets int
	e.OnReset(func() { resets++ })
	e.synchronize(t, j.target)
	s := e.next(t, j.target)
	for _, c := range []struct {
		signal unix.Signal
		want   error // of the next request
	}{{unix.SIGKILL, ErrNotSynchronized}, {unix.SIGSTOP, ErrKilled}, {unix.SIGKILL, ErrNotSynchronized}} {
		before := e.Generation()
		pid := e.worker.PID()
		assert.NilError(t, unix.Kill(pid, c.signal))
		if c.signal == unix.SIGKILL {
			testenv.Poll(t, deadline, "the worker to end", func() bool { return hasEnded(pid) })
		} else {
			testenv.Poll(t, deadline, "all threads of the worker to stop", func() bool {
				var status unix.WaitStatus
				stopped, err := unix.Wait4(pid, &status, unix.WUNTRACED|unix.WNOHANG, nil)
				assert.Assert(t, err == nil || errors.Is(err, unix.EINTR), err)
				return stopped == pid && status.Stopped()
			})
		}
		_, err := e.name(t, j.target, s)
		assert.Assert(t, errors.Is(err, c.want), "after %v: %v, want %v", c.signal, err, c.want)
		if e.Generation() != before+1 || resets != int(before)+1 {
			t.Errorf("generation %d, %d resets", e.Generation(), resets)
		}
		e.checkNothingOf(t, j.target)
		if errors.Is(c.want, ErrKilled) {
			_, err := e.Synchronize(t.Context(), j.target)
			assert.Assert(t, errors.Is(err, ErrQuarantined), "after %v: %v", c.signal, err)
			q := e.Status().Quarantined
			assert.Check(t, len(q) == 1 && q[0].PID == j.target.ID.PID, "quarantined: %+v", q)
			j.target.Program = "after an exec"
		}
		testenv.Poll(t, deadline, "the killed worker to be reaped", func() bool { return e.Status().Unreaped == 0 })
		e.synchronize(t, j.target)
		e.forget(t)
		e.awaitWhole(t, j.target, depth)
	}
	c := e.counters
	if c.TimedOut.Load() != 1 || c.Ended.Load() != 2 || c.Quarantined.Load() != 1 || c.Started.Load() != 4 {
		t.Errorf("timed out %d, ended %d, quarantined %d, started %d", c.TimedOut.Load(), c.Ended.Load(),
			c.Quarantined.Load(), c.Started.Load())
	}
}

// A JVM that ends before it is synchronized, while it is, or after that is gone, and leaves nothing.
func TestJVMEnds(t *testing.T) {
	e := openEngine(t)
	for when, wait := range map[string]func(Target, <-chan error){
		"before":                    nil,
		"at once":                   func(Target, <-chan error) {},
		"when something was stored": func(of Target, _ <-chan error) { e.awaitEntries(t, of) },
		"after": func(_ Target, done <-chan error) {
			for len(done) == 0 {
				runtime.Gosched()
			}
		},
	} {
		j := startJVM(t, "17", 1, 10)
		kill := func() {
			assert.NilError(t, j.cmd.Process.Kill())
			_ = j.cmd.Wait()
		}
		if wait == nil {
			kill()
		}
		done := make(chan error, 1)
		go func() {
			_, err := e.Synchronize(context.Background(), j.target)
			done <- err
		}()
		if wait != nil {
			wait(j.target, done)
			kill()
		}
		err := <-done
		assert.Assert(t, !errors.Is(err, ErrKilled) && !errors.Is(err, ErrQuarantined), "%s: %v", when, err)
		assert.Check(t, errors.Is(err, ErrGone) || wait != nil, "%s: %v", when, err)
		_, err = e.Synchronize(t.Context(), j.target)
		assert.Check(t, errors.Is(err, ErrGone), "%s, again: %v", when, err)
		assert.NilError(t, e.Remove(t.Context(), j.target))
		e.checkNothingOf(t, j.target)
	}
	started := e.counters.Started.Load()
	assert.Check(t, started == 1, "%d workers", started)
}

// awaitEntries waits until something of a process is stored.
func (e *testEngine) awaitEntries(t *testing.T, of Target) {
	t.Helper()
	testenv.Poll(t, deadline, "an entry of the process", func() bool { return e.entriesOf(t, of) > 0 })
}

// A user's JVMs that need more than is left of the user's quota are not unwound, others are. Those
// are once there is room.
func TestQuotaOfJVMs(t *testing.T) {
	setEntries(t, hotspotMap, 3)
	e := openEngine(t)
	e.sample(t)
	const depth = 10
	first, second := startJVM(t, "17", 1, depth), startJVM(t, "17", 1, depth)
	first.target.User, second.target.User = "greedy", "greedy"
	e.synchronize(t, first.target)
	_, err := e.Synchronize(t.Context(), second.target)
	if !errors.Is(err, ErrOverQuota) || !strings.Contains(err.Error(), "JVMs") || e.counters.OverQuota.Load() != 1 {
		t.Fatalf("%v, %d over quota", err, e.counters.OverQuota.Load())
	}
	e.checkNothingOf(t, second.target)
	e.awaitWhole(t, first.target, depth)

	other := second.target
	other.User, other.Program = "another", "another"
	e.synchronize(t, other)
	e.awaitWhole(t, other, depth)
	assert.NilError(t, errors.Join(e.Remove(t.Context(), other), e.Remove(t.Context(), first.target)))
	e.synchronize(t, second.target)
	e.awaitWhole(t, second.target, depth)
	if c := e.counters; c.Started.Load() != 1 || c.OverQuota.Load() != 1 {
		t.Errorf("%d workers, %d over quota", c.Started.Load(), c.OverQuota.Load())
	}
}

// setEntries sets the size of a table until the test ends.
func setEntries(t *testing.T, table string, entries uint32) {
	before := mapEntries[table]
	mapEntries[table] = entries
	t.Cleanup(func() { mapEntries[table] = before })
}

// When a user's quota of ways to unwind a frame is used up, of which a worker never removes any,
// another one takes its place, unless it has just been started.
func TestQuotaOfInfos(t *testing.T) {
	const depth = 10
	first, second := startJVM(t, "17", 1, depth, "-Xint"), startJVM(t, "25", 1, depth, "-Xint")
	needed := uint32(0) // by one of them
	for _, j := range []*jvm{first, second} {
		e := openEngine(t)
		e.synchronize(t, j.target)
		needed = max(needed, e.infos(t))
	}
	setEntries(t, infosMap, 2*needed)

	e := openEngine(t)
	e.sample(t)
	e.synchronize(t, first.target)
	e.awaitWhole(t, first.target, depth)
	for range 2 { // the engine tries the file once
		_, err := e.Synchronize(t.Context(), second.target)
		assert.Assert(t, errors.Is(err, ErrOverQuota), err)
	}
	if e.counters.Exhausted.Load() != 0 || e.counters.MapErrors.Load() == 0 || e.infos(t) != needed {
		t.Fatalf("of %d ways to unwind %d are stored, %d errors, %d workers had no room", needed, e.infos(t),
			e.counters.MapErrors.Load(), e.counters.Exhausted.Load())
	}
	e.forget(t)
	e.awaitWhole(t, first.target, depth)

	e.startedAt = e.startedAt.Add(-minWorkerLife)
	_, err := e.Synchronize(t.Context(), second.target)
	assert.Assert(t, errors.Is(err, ErrKilled), err)
	e.synchronize(t, second.target)
	e.awaitWhole(t, second.target, depth)
	if s := e.Status(); e.counters.Exhausted.Load() != 1 || e.counters.Started.Load() != 2 || len(s.Quarantined) != 0 {
		t.Errorf("%d workers had no room, %d started, %+v", e.counters.Exhausted.Load(), e.counters.Started.Load(), s)
	}
}

// infos returns how many ways to unwind a frame are stored.
func (e *testEngine) infos(t *testing.T) (n uint32) {
	t.Helper()
	table := e.chain.maps[infosMap]
	value, none := make([]byte, table.ValueSize()), make([]byte, table.ValueSize())
	for i := range table.MaxEntries() {
		assert.NilError(t, table.Lookup(i, value))
		if !bytes.Equal(value, none) {
			n = i + 1
		}
	}
	return n
}
