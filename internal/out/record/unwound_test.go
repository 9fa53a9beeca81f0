package record

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/sampling"
	"correlator/profile"
)

// jdks are the homes of the JDKs of the tests, by version.
var jdks = map[int]string{
	17: "/usr/lib/jvm/java-17-openjdk-" + runtime.GOARCH,
	25: "/usr/lib/jvm/temurin-25-jdk-" + runtime.GOARCH,
}

// startWorking starts a JVM that works in transactions, with two threads.
func startWorking(t *testing.T, jdk int, service, work string, flags ...string) *demo.Process {
	t.Helper()
	return demo.StartJVM(t, demo.JVMOptions{Home: jdks[jdk], Service: service, Threads: 2, Work: work, Flags: flags})
}

// unwound records and waits until stacks are unwound of so many processes.
func unwound(t *testing.T, options Options, processes int) *running {
	t.Helper()
	testenv.NeedUnwinding(t)
	options.Unwinder = sampling.AutoUnwinder
	if options.SamplesPerSecond == 0 {
		options.SamplesPerSecond = 199 // so that names are found in time, with the race detector on a busy machine too
		if testing.Short() {
			options.SamplesPerSecond = 49 // emulated CPUs would do little but sampling
		}
	}
	recorder := open(t, options, zaptest.NewLogger(t))
	recorder.grace = deadline()
	r := run(t, recorder)
	waited := false
	t.Cleanup(func() {
		if !waited {
			status := r.sampling.Unwinding()
			fmt.Fprintf(os.Stderr, "unwinding: %+v, engine: %+v, counted: %+v\n", status, status.Engine,
				&r.counters.Sampling.Unwinding) // the last line of the test's says why it failed
		}
	})
	r.poll("unwound stacks", func(Progress) bool {
		status := r.sampling.Unwinding()
		assert.Assert(t, status.Failure == "", "no stacks are unwound: %+v", *status)
		return r.sampling.Unwinding().Unwound == processes
	})
	waited = true
	return r
}

// more waits for so many samples in transactions, from now on.
func (r *running) more(n uint64) {
	r.t.Helper()
	n += r.Progress().WithTrace
	r.poll("samples", func(p Progress) bool { return p.WithTrace >= n })
}

// isCut reports whether callers are missing.
func isCut(frames []profile.Frame) bool { return frames[len(frames)-1].Kind() == profile.CutFrame }

// calls reports whether a stack has a frame of a Java method.
func calls(frames []profile.Frame, function string) bool {
	return slices.ContainsFunc(frames, func(f profile.Frame) bool {
		return f.Kind() == profile.JVMFrame && f.Name() == function
	})
}

// threadOf returns of which thread the methods in a stack are, 0 for none.
func threadOf(t *testing.T, frames []profile.Frame) (index int) {
	t.Helper()
	for _, f := range frames {
		if number, ok := strings.CutPrefix(f.Name(), "Work.own"); ok {
			n, err := strconv.Atoi(number)
			assert.Assert(t, err == nil && (index == 0 || n == index), "frames of threads %d and %q", index, number)
			index = n
		}
	}
	return index
}

// owner returns whose transaction a trace is: a thread's have consecutive numbers in the first half of
// their ids, and the report has the last ones.
func owner(report demo.Report, id demo.TraceID) (thread int, known bool) {
	for _, transaction := range report.Transactions {
		of := transaction.TraceID
		if after := binary.BigEndian.Uint64(of[:]) - binary.BigEndian.Uint64(id[:]); after < 1<<20 {
			return transaction.Thread, true
		}
	}
	return 0, false
}

// verifyContexts checks that each sample in a transaction is of the thread that had it, by its method and
// by its tid. It returns how many such samples there are, and of how many the stack is whole.
func verifyContexts(t *testing.T, recording *Recording, samples map[Key]uint64, report demo.Report,
	threads []demo.Thread) (all, whole uint64) {
	t.Helper()
	for key, n := range samples {
		if !key.HasTrace() {
			continue
		}
		id := demo.TraceID(key.TraceID)
		own, known := owner(report, id)
		if !known || !id.Whole() || id.TransactionID() != demo.TransactionID(key.TransactionID) {
			t.Fatalf("no such transaction: %x, %x", key.TraceID, key.TransactionID)
		}
		tid := threads[own].TID
		assert.Check(t, tid == key.TID, "a transaction of thread %d is one of %d", tid, key.TID)
		frames := recording.Stacks[key.Stack]
		if index := threadOf(t, frames); index != 0 && index != own {
			var names []string
			for _, f := range frames {
				names = append(names, fmt.Sprintf("%s:%d", f.Name(), f.Line))
			}
			t.Errorf("a transaction of thread %d is in the method of %d: %d samples of %s", own, index, n, names)
		}
		all += n
		if !isCut(frames) {
			whole += n
		}
	}
	return all, whole
}

// Stacks of JVMs as they run in production are whole, named, and of the transactions of their threads, from
// the first sample of the recording on.
func TestUnwoundJVM(t *testing.T) {
	for _, c := range []struct {
		jdk   int
		work  string
		flags []string
		whole float64
	}{
		{17, "mixed", nil, 0.96},
		{17, "mixed", []string{"-Xint"}, 0.96},
		{17, "recursive", []string{"-XX:+UseG1GC", "-XX:-UseSerialGC"}, 0.99},
		{17, "deep", nil, 0.96}, // 300 calls
		{25, "mixed", nil, 0.96},
		{25, "recursive", nil, 0.99},
		{25, "recursive", []string{"-Xint"}, 0.99},
	} {
		t.Run(fmt.Sprint(c.jdk, " ", c.work, c.flags), func(t *testing.T) {
			p := startWorking(t, c.jdk, "work", c.work, c.flags...)
			options, enough := Options{PID: p.PID}, uint64(400)
			if testing.Short() {
				options.SamplesPerSecond, enough = 7, 200 // emulated CPUs name 20 to 40 stacks in a second
			}
			r := unwound(t, options, 1)
			r.more(enough)
			if testing.Short() {
				r.poll("whole stacks", func(p Progress) bool {
					return p.WithTrace >= enough/3+r.counters.Sampling.Cut.Load()
				})
			}
			threads := p.Threads()
			recording := r.end()
			all, whole := verifyContexts(t, recording, recording.Samples, p.Quit(), threads)
			hasMethod := func(key Key) bool {
				return key.HasTrace() && threadOf(t, recording.Stacks[key.Stack]) != 0
			}
			named := sum(recording.Samples, hasMethod)
			cut, unnamed := r.counters.Sampling.Cut.Load(), r.counters.Sampling.Unnamed.Load()
			t.Logf("of %d samples %d are whole, %d have their thread's method; %d are cut, %d of these unnamed; lost %v",
				all, whole, named, cut, unnamed, recording.Lost)
			wrong := float64(whole) < c.whole*float64(all) || float64(named) < 0.9*float64(all)
			if testing.Short() { // even so emulated CPUs do not name all in time
				named = sum(recording.Samples, func(key Key) bool {
					return hasMethod(key) && !isCut(recording.Stacks[key.Stack])
				})
				taken := sum(recording.Samples, func(Key) bool { return true })
				// Of 200 samples, twice the share that is cut elsewhere is no wonder.
				wrong = whole < enough/3 || float64(named) < 0.9*float64(whole) ||
					float64(cut)-float64(unnamed) > 2*(1-c.whole)*float64(taken)
			}
			assert.Check(t, !wrong,
				"of %d samples %d are whole, %d have their thread's method; %d are cut, %d of these unnamed", all,
				whole, named, cut, unnamed)
		})
	}
}

// Names of Java methods have return type and arguments when that is asked for.
func TestUnwoundSignatures(t *testing.T) {
	p := startWorking(t, 17, "work", "mixed")
	r := unwound(t, Options{PID: p.PID, JavaSignatures: true}, 1)
	r.more(50)
	signatures := make(map[string]bool)
	for _, frames := range r.end().Stacks {
		for _, f := range frames {
			if f.Kind() == profile.JVMFrame {
				signatures[f.Function.Name] = true
			}
		}
	}
	p.Quit()
	if want := "void java.lang.Thread.run()"; !signatures[want] {
		t.Errorf("no %s in %v", want, slices.Sorted(maps.Keys(signatures)))
	}
}

// A stack that is deeper than the engine walks is counted, marked, and has the id of no whole one.
func TestUnwoundCut(t *testing.T) {
	p := startWorking(t, 17, "deep", "deep", "-Xint")
	r := unwound(t, Options{PID: p.PID}, 1)
	r.more(200)
	threads := p.Threads()
	recording := r.end()
	all, whole := verifyContexts(t, recording, recording.Samples, p.Quit(), threads)
	cut := r.counters.Sampling.Unwinding.StacksCut.Load()
	if t.Logf("of %d samples %d are whole, %d stacks cut", all, whole, cut); whole > all/4 || cut == 0 {
		t.Errorf("of %d samples %d are whole, %d stacks are counted as cut", all, whole, cut)
	}
	for id, frames := range recording.Stacks {
		if isCut(frames) && (id != profile.TraceID(frames) || id == profile.TraceID(frames[:len(frames)-1])) {
			t.Fatalf("a cut stack has the id of a whole one: %v", frames)
		}
	}
}

// Code in virtual threads is shown, with its callers as far as there are any.
func TestUnwoundVirtualThreads(t *testing.T) {
	p := startWorking(t, 25, "virtual", "virtual")
	r := unwound(t, Options{PID: p.PID}, 1)
	r.poll("samples", func(p Progress) bool { return p.Samples > 400 })
	recording := r.end()
	var all, whole uint64
	for key, n := range recording.Samples {
		if frames := recording.Stacks[key.Stack]; calls(frames, "Work.ping") || calls(frames, "Work.pong") {
			all += n
			if calls(frames, "Work.inVirtualThread") && !isCut(frames) {
				whole += n
			}
		}
	}
	if t.Logf("of %d samples %d are whole", all, whole); all == 0 || float64(whole) < 0.96*float64(all) {
		t.Errorf("of %d samples in virtual threads %d are whole", all, whole)
	}
}

// often is how many samples a leaf has in code that runs often.
const often = 20

// shared returns how many samples of two sets are in code that runs often in both, and how many of these
// have an id that both have.
func shared(recording, other *Recording, a, b map[Key]uint64) (all, both uint64) {
	type code struct {
		name string
		line uint32
	}
	leaf := func(r *Recording, key Key) code {
		f := r.Stacks[key.Stack][0]
		return code{f.Name(), f.Line}
	}
	leaves := [2]map[code]uint64{{}, {}}
	stacks := [2]map[profile.StackTraceID]bool{{}, {}}
	for i, samples := range []map[Key]uint64{a, b} {
		for key, n := range samples {
			if key.HasTrace() {
				leaves[i][leaf([]*Recording{recording, other}[i], key)] += n
				stacks[i][key.Stack] = true
			}
		}
	}
	for i, samples := range []map[Key]uint64{a, b} {
		for key, n := range samples {
			if !key.HasTrace() {
				continue
			}
			at := leaf([]*Recording{recording, other}[i], key)
			if leaves[0][at] < often || leaves[1][at] < often {
				continue
			}
			all += n
			if stacks[0][key.Stack] && stacks[1][key.Stack] {
				both += n
			}
		}
	}
	return all, both
}

// Two processes of one program, and one program that is started twice, have the same ids.
func TestUnwoundIDs(t *testing.T) {
	recordTwins := func(processes int) (*Recording, []*demo.Process) {
		var all []*demo.Process
		for range processes {
			all = append(all, startWorking(t, 17, "twin", "recursive"))
		}
		r := unwound(t, Options{Filter: services(t, "twin")}, processes)
		r.more(2000)
		recording := r.end()
		for _, p := range all {
			p.Quit()
		}
		return recording, all
	}
	first, twins := recordTwins(2)
	again, single := recordTwins(1)
	for name, samples := range map[string][2]map[Key]uint64{
		"two processes": {first.of(twins[0].PID), first.of(twins[1].PID)},
		"twice":         {first.of(twins[0].PID), again.of(single[0].PID)},
	} {
		second := first
		if name == "twice" {
			second = again
		}
		all, both := shared(first, second, samples[0], samples[1])
		t.Logf("%s: of %d samples in code that both ran often, %d have an id that both show", name, all, both)
		assert.Check(t, all != 0 && float64(both) >= 0.95*float64(all),
			"%s: of %d samples in code that both ran often, %d have an id that both show", name, all, both)
	}
}

// inProgram returns the frames of a stack that begins in the demo program, as far as they are in that.
func inProgram(frames []profile.Frame) (own []profile.Frame) {
	for _, f := range frames {
		if f.Kind() != profile.NativeFrame || filepath.Base(f.File.Path) != "demo" {
			break
		}
		own = append(own, f)
	}
	return own
}

// Code without frame pointers is whole; with them, frames have the ids that they have without the engine.
func TestUnwoundNative(t *testing.T) {
	p := demo.Start(t, demo.Options{Flavor: demo.GlibcUnframed, Service: "unframed", Busy: 2, Gap: -1})
	r := unwound(t, Options{PID: p.PID}, 1)
	r.more(400)
	code := p.Functions()
	recording := r.end()
	all := sum(recording.Samples, traced)
	whole := sum(recording.Samples, func(key Key) bool {
		frames := recording.Stacks[key.Stack]
		return key.HasTrace() && !isCut(frames) && code["worker_main"].In(frames)
	})
	t.Logf("of %d samples %d are whole", all, whole)
	assert.Check(t, float64(whole) >= 0.96*float64(all), "of %d samples %d are whole", all, whole)

	p = demo.Start(t, demo.Options{Service: "framed", Busy: 2, Gap: -1})
	ids := func(r *running) map[profile.StackTraceID]uint64 {
		r.more(1000)
		recording := r.end()
		found := make(map[profile.StackTraceID]uint64)
		for key, n := range recording.Samples {
			if own := inProgram(recording.Stacks[key.Stack]); key.HasTrace() && len(own) > 0 {
				found[profile.TraceID(own)] += n
			}
		}
		return found
	}
	on := ids(unwound(t, Options{PID: p.PID}, 1))
	off := ids(record(t, Options{PID: p.PID}))
	var frequent, equal uint64
	for id, n := range off {
		if n >= 10 {
			frequent += n
			if on[id] > 0 {
				equal += n
			}
		}
	}
	if t.Logf("of %d samples %d have an id of both", frequent, equal); frequent == 0 || equal < frequent*99/100 {
		t.Errorf("of %d samples by frame pointers, %d have an id that the engine's have", frequent, equal)
	}
}

// unwindingWorker returns the pid of our unwinding worker, 0 for none.
func unwindingWorker(t *testing.T) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	assert.NilError(t, err)
	for _, task := range tasks {
		children, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended
		}
		for _, child := range strings.Fields(string(children)) {
			command, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
			if words := strings.Split(string(command), "\x00"); err == nil && len(words) > 1 && words[1] == "unwind" {
				pid, err := strconv.Atoi(child)
				assert.NilError(t, err)
				return pid
			}
		}
	}
	return 0
}

// A worker that is killed, or hangs, costs no sample its context, and none is lost without a reason. Then
// stacks are whole again; those of the program that it hung for are walked by frame pointers meanwhile.
func TestUnwindingWorkerEnds(t *testing.T) {
	var processes []*demo.Process
	for range 3 { // each signal may be noticed while another one is served, which is left out then
		processes = append(processes, startWorking(t, 17, "victim", "mixed"))
	}
	r := unwound(t, Options{Filter: services(t, "victim")}, len(processes))
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
		generation := r.sampling.Unwinding().Engine.Generation
		pid := 0
		r.poll("a worker", func(Progress) bool { pid = unwindingWorker(t); return pid != 0 })
		assert.NilError(t, unix.Kill(pid, signal))
		r.poll("a reset", func(Progress) bool { return r.sampling.Unwinding().Engine.Generation > generation })
		r.more(200)
		r.poll("unwound stacks", func(Progress) bool {
			status := r.sampling.Unwinding()
			return status.Unwound+len(status.Engine.Quarantined) == len(processes) && status.Unwound > 0
		})
		r.more(200)
	}
	threads := make(map[int][]demo.Thread)
	for _, p := range processes {
		threads[p.PID] = p.Threads()
	}
	recording := r.end()
	for reason, samples := range recording.Lost {
		assert.Check(t, strings.HasPrefix(reason, "kernel_"), "%d samples are lost: %s", samples, reason)
	}
	for _, p := range processes {
		all, whole := verifyContexts(t, recording, recording.of(p.PID), p.Quit(), threads[p.PID])
		t.Logf("of %d samples %d are whole; lost %v", all, whole, recording.Lost)
		assert.Check(t, all != 0, "no samples")
	}
}

// A JVM that executes another is unwound as that.
func TestUnwoundExec(t *testing.T) {
	p := startWorking(t, 17, "exec", "recursive")
	r := unwound(t, Options{PID: p.PID}, 1)
	r.more(100)
	synchronized := r.counters.Sampling.Unwinding.Synchronized.Load()
	p.Restart(false)
	r.poll("another program", func(Progress) bool {
		return r.counters.Sampling.Unwinding.Synchronized.Load() > synchronized &&
			r.sampling.Unwinding().Unwound == 1 && len(r.handler(p.PID).sampled()) == 2
	})
	r.more(300)
	threads := p.Threads()
	last := r.handler(p.PID).recorded()[1]
	recording := r.end()
	after := make(map[Key]uint64)
	for key, n := range recording.Samples {
		if key.Process == last {
			after[key] = n
		}
	}
	all, whole := verifyContexts(t, recording, after, p.Quit(), threads)
	if t.Logf("of %d samples after the exec %d are whole", all, whole); all == 0 || float64(whole) < 0.9*float64(all) {
		t.Errorf("of %d samples after the exec %d are whole", all, whole)
	}
}

// inSystemCalls returns how many samples are in system calls of libc, as the address of the innermost user
// frame is in the instruction, and how many there are with the address after it, where that returns.
func inSystemCalls(t *testing.T, recording *Recording) (inside, after uint64) {
	t.Helper()
	instruction := []byte{0x0f, 0x05} // syscall
	code := make(map[*profile.File]*elf.File)
	for key, n := range recording.Samples {
		frames := recording.Stacks[key.Stack]
		leaf := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Kind() != profile.KernelFrame })
		if leaf < 1 || frames[leaf].Kind() != profile.NativeFrame ||
			!strings.HasPrefix(filepath.Base(frames[leaf].File.Path), "libc.so") {
			continue
		}
		f := frames[leaf]
		if code[f.File] == nil {
			file, err := elf.Open(f.File.Path)
			assert.NilError(t, err)
			defer file.Close()
			code[f.File] = file
		}
		at := make([]byte, 3)
		for _, segment := range code[f.File].Progs {
			if segment.Type == elf.PT_LOAD && segment.Vaddr+2 <= f.Address && f.Address < segment.Vaddr+segment.Filesz {
				_, err := segment.ReadAt(at, int64(f.Address-2-segment.Vaddr))
				assert.NilError(t, err)
			}
		}
		if bytes.Equal(at[:2], instruction) {
			after += n
		} else if bytes.Equal(at[1:], instruction) {
			inside += n
		}
	}
	return inside, after
}

// A JVM's system calls have the kernel's frames, then the calls in the process to the root. The innermost
// of these is the system call itself, as 1 is subtracted from where it returns, once. Some samples have
// the address after it, as that is where interrupts come that the kernel has held back until it returned:
// then they are of the interrupt.
func TestUnwoundKernelStacks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("knows the instruction of x86-64")
	}
	p := startWorking(t, 25, "calls", "virtual") // threads wait for each other
	r := unwound(t, Options{PID: p.PID, KernelStacks: true}, 1)
	r.poll("samples", func(p Progress) bool { return p.Samples > 1000 })
	recording := r.end()
	if inside, after := inSystemCalls(t, recording); inside == 0 || after > inside/4 {
		t.Errorf("%d samples have the address of a system call, %d the one after it", inside, after)
	}
	whole := sum(recording.Samples, func(key Key) bool {
		frames := recording.Stacks[key.Stack]
		return frames[0].Kind() == profile.KernelFrame && !isCut(frames) &&
			slices.ContainsFunc(frames, func(f profile.Frame) bool { return f.Kind() == profile.JVMFrame })
	})
	assert.Check(t, whole != 0, "no sample in the kernel has a whole stack with Java frames")
}
