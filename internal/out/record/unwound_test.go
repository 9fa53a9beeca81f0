package record

import (
	"bytes"
	"cmp"
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

// startWorking starts a JVM that works in transactions.
func startWorking(t *testing.T, jdk, threads int, service, work string, flags ...string) *demo.Process {
	t.Helper()
	return demo.StartJVM(t, demo.JVMOptions{Home: jdks[jdk], Service: service, Threads: threads, Work: work,
		Flags: flags})
}

// unwound records and waits until stacks are unwound of so many processes.
func unwound(t *testing.T, options Options, processes int) *running {
	t.Helper()
	testenv.NeedUnwinding(t)
	options.Unwinder = sampling.AutoUnwinder
	if options.SamplesPerSecond == 0 {
		options.SamplesPerSecond = 97 // more on a slow machine are cut, as their names come too late
	}
	recorder := open(t, options, zaptest.NewLogger(t))
	recorder.grace = deadline
	r := run(t, recorder)
	r.poll("the beginning", func(Progress) bool { return true })
	assert.Check(t, r.sampling.Unwinding().Unwound > 0, "recording has begun before stacks are unwound")
	r.poll("unwound stacks", func(Progress) bool {
		status := r.sampling.Unwinding()
		assert.Assert(t, status.Failure == "", "no stacks are unwound: %+v", *status)
		return r.sampling.Unwinding().Unwound == processes
	})
	return r
}

// more waits for so many samples in transactions, from now on.
func (r *running) more(n uint64) {
	r.t.Helper()
	n += r.Progress().WithTrace
	r.poll("samples", func(p Progress) bool { return p.WithTrace >= n })
}

// await waits for so many samples of a process that are as wanted.
func (r *running) await(n uint64, what string, pid int, wanted func(Key, []profile.Frame) bool) {
	r.t.Helper()
	r.poll(what, func(Progress) bool {
		r.aggregate.mu.Lock()
		defer r.aggregate.mu.Unlock()
		return n <= sum(r.aggregate.samples, func(key Key) bool {
			return key.Process.PID == pid && wanted(key, r.aggregate.stacks[key.Stack])
		})
	})
}

// isCut reports whether callers are missing.
func isCut(frames []profile.Frame) bool { return frames[len(frames)-1].Kind() == profile.CutFrame }

// calls reports whether a stack has a frame of a Java method.
func calls(frames []profile.Frame, function string) bool {
	return slices.ContainsFunc(frames, func(f profile.Frame) bool {
		return f.Kind() == profile.JVMFrame && f.Name() == function
	})
}

// plainName returns a frame's name without return type and arguments.
func plainName(f profile.Frame) string {
	name, _, _ := strings.Cut(f.Name(), "(")
	return name[strings.LastIndexByte(name, ' ')+1:]
}

// threadOf returns of which thread the methods in a stack are, 0 for none.
func threadOf(t *testing.T, frames []profile.Frame) (index int) {
	t.Helper()
	for _, f := range frames {
		if number, ok := strings.CutPrefix(plainName(f), "Work.own"); ok {
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
// by its tid, and that whole stacks are right.
func verifyContexts(t *testing.T, recording *Recording, samples map[Key]uint64, report demo.Report,
	threads []demo.Thread) {
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
		frames := recording.Stacks[key.Stack]
		index := threadOf(t, frames)
		problem := ""
		if !isCut(frames) {
			problem = disorder(frames)
		}
		if tid := threads[own].TID; tid != key.TID || index != 0 && index != own || problem != "" {
			t.Errorf("a transaction of thread %d (%d) is one of %d, in the method of %d; %s: %d samples of %s", own,
				tid, key.TID, index, problem, n, describe(frames))
		}
	}
}

// describe returns the names and lines of a stack.
func describe(frames []profile.Frame) (names []string) {
	for _, f := range frames {
		names = append(names, fmt.Sprintf("%s:%d", f.Name(), f.Line))
	}
	return names
}

// callers are who calls whom in class Work, the innermost first.
var callers = []string{"Work.spin", "Work.ping", "Work.recurse", "Work.own", "Work.run", "java.lang.Thread.run"}

// disorder returns what is wrong with a whole stack of a thread of a JVM: methods are in the order of their
// calls, none is missing between two that call each other, and all begin where threads do.
func disorder(frames []profile.Frame) string {
	outer, calls, before := 0, 0, ""
	if !slices.ContainsFunc(frames, func(f profile.Frame) bool { return f.Kind() == profile.JVMFrame }) {
		return "" // by frame pointers, while the engine could not unwind it
	}
	for _, f := range frames {
		name := strings.Replace(plainName(f), "Work.pong", "Work.ping", 1)
		rank := slices.IndexFunc(callers, func(caller string) bool {
			return f.Kind() == profile.JVMFrame && (name == caller ||
				caller == "Work.own" && strings.HasPrefix(name, caller))
		})
		switch {
		case rank < 0:
		case rank < outer:
			return plainName(f) + " calls " + callers[outer]
		case rank == 1 && plainName(f) == before:
			return before + " calls itself"
		default:
			outer = rank
		}
		if rank == 1 {
			calls, before = calls+1, plainName(f)
		}
	}
	switch {
	case outer < len(callers)-1:
		return "it begins in no thread"
	case plainName(frames[0]) == "Work.spin" && calls != 31 && calls != 301 && calls > 4: // of virtual threads 2 to 4
		return fmt.Sprint(calls, " calls of 31 or 301")
	}
	return ""
}

// Stacks as programs run in production are whole, named, and of the transactions of their threads: of JVMs
// and of C programs without frame pointers, of all in one recording. What is cut is marked and counted. The
// same code has the same ids in several processes, and in C programs those that it has by frame pointers.
// The processes run one after the other, as all of them burn CPU, and then stand still.
func TestUnwound(t *testing.T) {
	threads := make(map[*demo.Process][]demo.Thread)
	ran := func(p *demo.Process) {
		threads[p] = p.Threads()
		assert.NilError(t, unix.Kill(p.PID, unix.SIGSTOP))
		t.Cleanup(func() { _ = unix.Kill(p.PID, unix.SIGCONT) })
	}
	jvm := func(jdk, threads int, work string, flags ...string) *demo.Process {
		return startWorking(t, jdk, threads, "unwound", work, flags...)
	}
	framed := demo.Start(t, demo.Options{Service: "unwound", Busy: 1, Gap: -1})
	whole := jvm(17, 2, "mixed")
	r := unwound(t, Options{Filter: services(t, "unwound"), KernelStacks: true}, 2)
	byFramePointers := frequent(t, framed.PID)
	r.poll("stacks that are there by frame pointers, too", func(Progress) bool {
		r.aggregate.mu.Lock()
		defer r.aggregate.mu.Unlock()
		for key := range r.aggregate.samples {
			if key.Process.PID == framed.PID {
				delete(byFramePointers, profile.TraceID(inProgram(r.aggregate.stacks[key.Stack])))
			}
		}
		return len(byFramePointers) == 0
	})
	ran(framed)
	isWhole := func(key Key, frames []profile.Frame) bool {
		return key.HasTrace() && !isCut(frames) && threadOf(t, frames) != 0
	}
	r.await(50, "whole stacks of a JVM", whole.PID, isWhole)
	ran(whole)
	twin := jvm(17, 1, "mixed", "-XX:+UseG1GC", "-XX:-UseSerialGC")
	r.await(30, "whole stacks of another one", twin.PID, isWhole)
	r.poll("stacks that two processes have", func(Progress) bool { return r.shared(whole.PID, twin.PID) >= 2 })
	ran(twin)
	deep := jvm(17, 1, "deep") // 300 calls
	r.await(30, "whole stacks of 300 calls", deep.PID, isWhole)
	ran(deep)
	recursive := jvm(25, 1, "recursive")
	r.await(30, "whole stacks of another JDK", recursive.PID, isWhole)
	ran(recursive)
	tooDeep := jvm(17, 1, "deep", "-Xint")
	r.await(30, "stacks that are too deep", tooDeep.PID, func(key Key, frames []profile.Frame) bool {
		return key.HasTrace() && isCut(frames) && calls(frames, "Work.ping")
	})
	ran(tooDeep)
	virtual := jvm(25, 1, "virtual") // threads of it wait for each other
	r.await(30, "whole stacks of virtual threads", virtual.PID, func(_ Key, frames []profile.Frame) bool {
		return !isCut(frames) && calls(frames, "Work.inVirtualThread") && calls(frames, "Work.ping")
	})
	r.await(1, "whole stacks of Java code in the kernel", virtual.PID, func(_ Key, frames []profile.Frame) bool {
		return frames[0].Kind() == profile.KernelFrame && !isCut(frames) &&
			slices.ContainsFunc(frames, func(f profile.Frame) bool { return f.Kind() == profile.JVMFrame })
	})
	if runtime.GOARCH == "amd64" {
		r.await(1, "system calls", virtual.PID, newSystemCalls(t).inside)
	}
	ran(virtual)

	unframed := demo.Start(t, demo.Options{Flavor: demo.GlibcUnframed, Service: "unwound", Busy: 1, Gap: -1})
	code := unframed.Functions()
	r.await(30, "whole stacks without frame pointers", unframed.PID, func(key Key, frames []profile.Frame) bool {
		return key.HasTrace() && !isCut(frames) && code["worker_main"].In(frames)
	})
	ran(unframed)
	n := r.sampling.Unwinding().Unwound
	assert.Check(t, n == 8, "%d processes are unwound", n) // a stack of each was
	recording := r.end()
	for _, p := range []*demo.Process{whole, twin, deep, recursive, tooDeep} {
		assert.NilError(t, unix.Kill(p.PID, unix.SIGCONT))
		verifyContexts(t, recording, recording.of(p.PID), p.Quit(), threads[p])
	}
	assert.Check(t, r.counters.Sampling.Unwinding.StacksCut.Load() != 0, "no stack is counted as cut")
	unwound := sum(recording.Samples, func(key Key) bool { return calls(recording.Stacks[key.Stack], "Work.run") })
	for _, p := range recording.Processes {
		of, all := recording.Walks[p], sum(recording.of(p.PID), func(Key) bool { return true })
		assert.Check(t, recording.Engine && 0 < of.Unwound && of.Unwound <= of.Served && of.Served <= all,
			"%d: %+v of %d samples", p.PID, of, all)
		assert.Check(t, p.Executable != "", "%+v", p)
	}
	walked, _ := recording.Walked()
	if all := sum(recording.Samples, func(Key) bool { return true }); unwound == 0 || unwound+walked > all {
		t.Errorf("%d samples have Java methods, %d of %d were walked by frame pointers", unwound, walked, all)
	}
	for id, frames := range recording.Stacks {
		if isCut(frames) && (id != profile.TraceID(frames) || id == profile.TraceID(frames[:len(frames)-1])) {
			t.Fatalf("a cut stack has the id of a whole one: %v", frames)
		}
	}
}

// shared returns how many whole stacks of Java methods two processes have with the same id.
func (r *running) shared(pid, other int) (n int) {
	r.aggregate.mu.Lock()
	defer r.aggregate.mu.Unlock()
	of := make(map[int]map[profile.StackTraceID]bool)
	for key := range r.aggregate.samples {
		if frames := r.aggregate.stacks[key.Stack]; !isCut(frames) && threadOf(r.t, frames) != 0 {
			if of[key.Process.PID] == nil {
				of[key.Process.PID] = make(map[profile.StackTraceID]bool)
			}
			of[key.Process.PID][key.Stack] = true
		}
	}
	for id := range of[pid] {
		if of[other][id] {
			n++
		}
	}
	return n
}

// frequent returns the ids of the most frequent stacks of a C program as they are by frame pointers, of the
// part in the program.
func frequent(t *testing.T, pid int) map[profile.StackTraceID]bool {
	t.Helper()
	r := record(t, Options{PID: pid})
	r.more(300)
	recording := r.end()
	samples := make(map[profile.StackTraceID]uint64)
	for key, n := range recording.Samples {
		if own := inProgram(recording.Stacks[key.Stack]); key.HasTrace() && len(own) > 1 {
			samples[profile.TraceID(own)] += n
		}
	}
	all := slices.SortedFunc(maps.Keys(samples), func(a, b profile.StackTraceID) int {
		return cmp.Compare(samples[b], samples[a])
	})
	ids := make(map[profile.StackTraceID]bool)
	for _, id := range all[:min(len(all), 3)] {
		ids[id] = true
	}
	assert.Check(t, len(ids) != 0, "no stacks by frame pointers")
	return ids
}

// inProgram returns the frames of a stack that begins in the demo program, as far as they are in that.
func inProgram(frames []profile.Frame) (own []profile.Frame) {
	for _, f := range frames {
		if f.Kind() == profile.KernelFrame {
			continue
		}
		if f.Kind() != profile.NativeFrame || filepath.Base(f.File.Path) != "demo" {
			break
		}
		own = append(own, f)
	}
	return own
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
	jvm := startWorking(t, 17, 1, "victim", "mixed")
	processes := []*demo.Process{jvm}
	for range 2 { // each signal may be noticed while another one is served, which is left out then
		processes = append(processes, demo.Start(t, demo.Options{Flavor: demo.GlibcUnframed, Service: "victim", Busy: 1,
			Gap: -1}))
	}
	r := unwound(t, Options{Filter: services(t, "victim")}, len(processes))
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
		generation := r.sampling.Unwinding().Engine.Generation
		pid := 0
		r.poll("a worker", func(Progress) bool { pid = unwindingWorker(t); return pid != 0 })
		assert.NilError(t, unix.Kill(pid, signal))
		r.poll("a reset", func(Progress) bool { return r.sampling.Unwinding().Engine.Generation > generation })
		r.more(50)
		r.poll("unwound stacks", func(Progress) bool {
			status := r.sampling.Unwinding()
			return status.Unwound+len(status.Engine.Quarantined) == len(processes) && status.Unwound > 0
		})
		r.more(50)
	}
	threads := make(map[int][]demo.Thread)
	for _, p := range processes {
		threads[p.PID] = p.Threads()
	}
	recording := r.end()
	for reason, samples := range recording.Lost {
		assert.Check(t, strings.HasPrefix(reason, "kernel_"), "%d samples are lost: %s", samples, reason)
	}
	verifyContexts(t, recording, recording.of(jvm.PID), jvm.Quit(), threads[jvm.PID])
	for _, p := range processes[1:] {
		code := p.Functions()
		verifyTransactions(t, recording, recording.of(p.PID), p.Quit(), threads[p.PID], code)
	}
}

// A JVM that executes another is unwound as that. Names of Java methods have return type and arguments when
// that is asked for.
func TestUnwoundExec(t *testing.T) {
	p := startWorking(t, 17, 1, "exec", "recursive")
	r := unwound(t, Options{Filter: services(t, "exec"), JavaSignatures: true}, 1)
	r.more(30)
	synchronized := r.counters.Sampling.Unwinding.Synchronized.Load()
	p.Restart(false)
	r.poll("another program", func(Progress) bool {
		return r.counters.Sampling.Unwinding.Synchronized.Load() > synchronized &&
			r.sampling.Unwinding().Unwound == 1 && len(r.handler(p.PID).sampled()) == 2
	})
	last := r.handler(p.PID).recorded()[1]
	r.await(30, "whole stacks of the other program", p.PID, func(key Key, frames []profile.Frame) bool {
		return key.Process == last && key.HasTrace() && !isCut(frames) && threadOf(t, frames) != 0 &&
			calls(frames, "void java.lang.Thread.run()")
	})
	threads := p.Threads()
	recording := r.end()
	after := make(map[Key]uint64)
	for key, n := range recording.Samples {
		if key.Process == last {
			after[key] = n
		}
	}
	verifyContexts(t, recording, after, p.Quit(), threads)
}

// systemCalls finds system calls of libc.
type systemCalls struct {
	t    *testing.T
	code map[*profile.File]*elf.File
}

func newSystemCalls(t *testing.T) *systemCalls {
	return &systemCalls{t, make(map[*profile.File]*elf.File)}
}

// inside reports whether a stack is in a system call of libc, with the kernel's frames and the call: the
// address of its innermost user frame is in the instruction, as 1 is subtracted from where it returns, once.
// Some samples have the address after it, as that is where interrupts come that the kernel has held back
// until it returned: then they are of the interrupt.
func (s *systemCalls) inside(_ Key, frames []profile.Frame) bool {
	leaf := slices.IndexFunc(frames, func(f profile.Frame) bool { return f.Kind() != profile.KernelFrame })
	if leaf < 1 || frames[leaf].Kind() != profile.NativeFrame ||
		!strings.HasPrefix(filepath.Base(frames[leaf].File.Path), "libc.so") {
		return false
	}
	f := frames[leaf]
	if s.code[f.File] == nil {
		file, err := elf.Open(f.File.Path)
		assert.NilError(s.t, err)
		s.t.Cleanup(func() { file.Close() })
		s.code[f.File] = file
	}
	instruction := make([]byte, 2)
	for _, segment := range s.code[f.File].Progs {
		if segment.Type == elf.PT_LOAD && segment.Vaddr+2 <= f.Address && f.Address < segment.Vaddr+segment.Filesz {
			_, err := segment.ReadAt(instruction, int64(f.Address-1-segment.Vaddr))
			assert.NilError(s.t, err)
		}
	}
	return bytes.Equal(instruction, []byte{0x0f, 0x05}) // syscall
}
