package unwind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/worker"
	"correlator/procscan"
)

const (
	// How long requests may take. A JVM is synchronized in 0.5 s, most of it for libjvm, once; frames
	// of a stack take less than a millisecond.
	startTimeout       = 5 * time.Second
	synchronizeTimeout = 5 * time.Second
	removeTimeout      = 2 * time.Second
	framesTimeout      = time.Second

	// maxWaiting is how many requests wait for the one that is served.
	maxWaiting = 64

	// maxUnreaped is how many killed workers there may be that have not ended, because a system call
	// waits for a process: each takes some 20 MB. Then no other is started.
	maxUnreaped = 4

	// killTimeout is how long a killed worker is given to end before its tables are cleared. One that
	// hangs longer is in a system call that reads, after which it ends.
	killTimeout = 100 * time.Millisecond

	// maxTables bounds the tables that a worker asks for while it serves one request: one for each file
	// of a process.
	maxTables = 1024

	// maxTableBytes bounds the memory of all tables of files. A worker could keep tables that it has
	// removed, so it gets no more than maxWorkerBytes, and then another one starts anew. That of
	// libjvm takes 4 MB, all of a JVM's 8.
	maxTableBytes  = 256 << 20
	maxWorkerBytes = 2 * maxTableBytes

	// A process that a worker was killed for is left out for quarantineTime, 16 times as long each
	// time after that, at most maxQuarantineTime.
	quarantineTime    = 30 * time.Second
	maxQuarantineTime = 2 * time.Hour
	maxQuarantined    = 1024

	// After a worker that could not be started, the next one is tried after retryTime, and twice as
	// long each time, at most maxRetryTime.
	retryTime    = time.Second
	maxRetryTime = time.Minute
)

var (
	// ErrGone: the process has ended, or runs another program than the one that was synchronized.
	ErrGone = procscan.ErrGone
	// ErrNotReady: the process's JVM is still starting, or of a kind that cannot be unwound.
	ErrNotReady = errors.New("JVM is not ready to be unwound")
	// ErrNotSynchronized: Synchronize has to be called, again if it was.
	ErrNotSynchronized = errors.New("process is not synchronized")
	// ErrQuarantined: the process is left out because of what it did to a worker.
	ErrQuarantined = errors.New("process is left out")
	// ErrKilled: the worker that served the request was killed.
	ErrKilled = errors.New("unwinding worker was killed")
	// ErrBusy: too many requests wait.
	ErrBusy = errors.New("too many unwinding requests wait")
	// ErrUnavailable: there is no worker.
	ErrUnavailable = errors.New("no unwinding worker")
	// ErrClosed: the Engine is closed.
	ErrClosed = errors.New("unwinding has ended")
)

// errUnreaped: there are maxUnreaped killed workers.
var errUnreaped = fmt.Errorf("%d that were killed have not ended: processes make the kernel wait", maxUnreaped)

// errExhausted: a worker has asked for maxWorkerBytes of tables.
var errExhausted = errors.New("worker has used up its tables")

// Target is a program that a process runs.
type Target struct {
	ID        procscan.ProcessID // in our own pid namespace
	KernelPID uint32             // in the initial one
	// Program is comparable, and another one after an exec of the process.
	Program any
	// User is who has the same rights as the process. What the engine finds in files and in memory of a
	// user's processes, it uses for these alone.
	User worker.User
}

// Engine unwinds stacks. It is safe for concurrent use; requests are served one at a time.
type Engine struct {
	chain    *chain
	spawner  *worker.Spawner
	counters *Counters

	waiting atomic.Int32
	slot    chan struct{} // has the token while no request is served

	// Of the request that is served.
	worker     *worker.Process // nil: none
	tableBytes uint64          // that the worker has got
	retryAt    time.Time       // when the next may be started
	retryAfter time.Duration

	mu          sync.Mutex
	closed      bool
	serving     *worker.Process // to be interrupted
	onReset     func()
	generation  uint64
	known       map[uint32]known // by KernelPID
	quarantined map[any]quarantine
	unreaped    int
	failure     error // why there is no worker
	broken      error // why there will be none
}

// known is a target of which the worker may have stored something.
type known struct {
	Target
	ready bool // it is synchronized
}

// quarantine is a program that is left out.
type quarantine struct {
	pid    int
	reason string
	until  time.Time
	length time.Duration
}

// Open loads the programs and tables, starts a worker and unwinds a stack of this process, which takes
// about a second. The caller must close the Engine. The error says what the machine lacks. procRoot
// is a procfs of our own pid namespace. The program's main function must call worker.Main with Kind.
func Open(procRoot string, counters *Counters) (*Engine, error) {
	e, err := open(procRoot, counters, Kind())
	if err != nil {
		return nil, fmt.Errorf("unwinding: %w", err)
	}
	if err := e.selfTest(procRoot); err != nil {
		return nil, errors.Join(fmt.Errorf("unwinding: testing it with this process: %w", err), e.Close())
	}
	debug.FreeOSMemory() // loading the programs takes several MB, once
	return e, nil
}

// open is Open with a kind of worker, without the test.
func open(procRoot string, counters *Counters, kind worker.Kind) (*Engine, error) {
	var chain *chain
	err := bpf.Permitted(func() (err error) {
		chain, err = loadChain()
		return err
	})
	if err != nil {
		return nil, err
	}
	spawner, err := worker.NewSpawner(procRoot, kind)
	if err != nil {
		chain.close()
		return nil, err
	}
	e := &Engine{
		chain: chain, spawner: spawner, counters: counters, slot: make(chan struct{}, 1),
		known: make(map[uint32]known), quarantined: make(map[any]quarantine),
	}
	e.slot <- struct{}{}
	return e, nil
}

// Unwinder returns the programs for a sampler, which sets their last one. They are closed by Close: the
// sampler must have no unwinder then.
func (e *Engine) Unwinder() *bpf.Unwinder {
	l := e.chain.layout
	return &bpf.Unwinder{
		Entry:   e.chain.programs[entryProgram],
		Records: e.chain.maps[recordsMap],
		Layout: bpf.RecordLayout{
			Words: l.words, WordCount: l.wordCount, KernelFrames: l.kernelFrames, Error: l.failure, Size: l.size,
		},
		SetLast: e.chain.setLast,
	}
}

// Close ends the worker, without waiting for that, and unloads the programs. Requests under way
// return.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	serving := e.serving
	e.mu.Unlock()
	e.spawner.Close()
	if serving != nil {
		serving.Interrupt()
	}
	<-e.slot // no request is served after this one
	if e.worker != nil {
		e.worker.Kill()
		e.worker = nil
	}
	e.chain.close()
	e.slot <- struct{}{}
	return nil
}

// OnReset sets what is called whenever a worker was killed, before anything that it has written is
// deleted: nothing may enter the programs when it returns. It must not call the Engine. All targets
// have to be synchronized again after it. It is called once at a time, by the goroutine whose request
// was served.
func (e *Engine) OnReset(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onReset = f
}

// Generation grows with every reset. A target that was synchronized in an older one no longer is.
func (e *Engine) Generation() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.generation
}

// Synchronize reads the executable mappings of a target, and what they contain, so that its stacks can
// be unwound; it is repeated when mappings have changed. It returns the Generation for which that is
// so. Errors are ErrGone, ErrNotReady, after which it may be tried again, ErrQuarantined, ErrKilled,
// ErrBusy, ErrUnavailable, ErrClosed, that of ctx, and others, of the process.
func (e *Engine) Synchronize(ctx context.Context, t Target) (generation uint64, err error) {
	err = e.serve(ctx, &t, func() error {
		e.mu.Lock()
		other, found := e.known[t.KernelPID]
		e.mu.Unlock()
		if found && other.Program != t.Program {
			if err := e.remove(&other.Target); err != nil {
				return err
			}
		}
		e.setKnown(&t, found && other.ready)
		answer, err := e.call(&t, synchronizeTimeout, opSynchronize,
			synchronize{ID: t.ID, KernelPID: t.KernelPID, User: string(t.User)})
		if err != nil {
			return err
		}
		var s synchronized
		if json.Unmarshal(answer, &s) != nil || s.Outcome < 0 || s.Outcome >= outcomes {
			return e.kill(&t, errAnswer)
		}
		e.counters.FilesSkipped.Add(min(s.Skipped, maxRanges))
		e.counters.MapErrors.Add(min(s.MapErrors, 1<<20))
		err = e.outcome(&s)
		e.setKnown(&t, err == nil)
		generation = e.Generation()
		return err
	})
	return generation, err
}

func (e *Engine) setKnown(t *Target, ready bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[t.KernelPID] = known{*t, ready}
}

// ready reports whether a target is synchronized.
func (e *Engine) ready(t *Target) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.known[t.KernelPID]
	return k.ready && k.Program == t.Program
}

// outcome returns what a synchronization came to, counted unless it succeeded.
func (e *Engine) outcome(s *synchronized) error {
	failure := s.Failure[:min(len(s.Failure), maxFailureBytes)]
	switch s.Outcome {
	case outcomeReady:
		e.counters.Synchronized.Add(1)
		return nil
	case outcomeGone:
		e.counters.Gone.Add(1)
		return ErrGone
	case outcomeNotReady:
		e.counters.NotReady.Add(1)
		if failure != "" {
			return fmt.Errorf("%w: %q", ErrNotReady, failure)
		}
		return ErrNotReady
	}
	e.counters.Failed.Add(1)
	return fmt.Errorf("reading a process's code for unwinding: %q", failure)
}

// Remove deletes what Synchronize has stored of a target. It is called when the process has ended or
// runs another program, and when its stacks are not to be unwound any more.
func (e *Engine) Remove(ctx context.Context, t Target) error {
	isKnown := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.known[t.KernelPID].Program == t.Program
	}
	if !isKnown() {
		return nil
	}
	return e.serve(ctx, nil, func() error {
		if !isKnown() {
			return nil // a worker was killed since
		}
		return e.remove(&t)
	})
}

// remove has the worker remove a target.
func (e *Engine) remove(t *Target) error {
	answer, err := e.call(t, removeTimeout, opRemove, remove{KernelPID: t.KernelPID})
	if err != nil {
		return err
	}
	if len(answer) != 0 {
		return e.kill(t, errAnswer)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.known, t.KernelPID)
	return nil
}

// Frames appends the frames of a stack's words to dst, leaf first. tid is that of the thread in the
// initial pid namespace. A CutFrame says where the stack could not be named. The error is
// ErrNotSynchronized, or one of those of Synchronize.
func (e *Engine) Frames(ctx context.Context, t Target, tid uint32, words []uint64, dst []Frame) ([]Frame, error) {
	if len(words) > maxWords {
		return dst, fmt.Errorf("naming a stack of %d words: %w", len(words), unix.EMSGSIZE)
	}
	before := len(dst)
	err := e.serve(ctx, &t, func() error {
		if !e.ready(&t) {
			return ErrNotSynchronized
		}
		answer, err := e.exchange(&t, framesTimeout, appendFramesRequest(nil, t.KernelPID, tid, words))
		if err != nil {
			return err
		}
		if dst, err = decodeFrames(dst, answer); err != nil {
			return e.kill(&t, err)
		}
		return nil
	})
	if err != nil {
		return dst[:before], err
	}
	e.countFrames(dst[before:])
	return dst, nil
}

func (e *Engine) countFrames(frames []Frame) {
	e.counters.Stacks.Add(1)
	e.counters.Frames.Add(uint64(len(frames)))
	cut := false
	for _, f := range frames {
		switch {
		case f.Kind == CutFrame:
			cut = true
		case f.Kind == JVMFrame && f.Function == "":
			e.counters.FramesUnnamed.Add(1)
		case f.Kind == NativeFrame && f.Address == 0:
			e.counters.FramesUnmapped.Add(1)
		}
	}
	if cut {
		e.counters.StacksCut.Add(1)
	}
}

// serve calls a function while no other request is served, with a worker. t is the target that is
// served, or nil.
func (e *Engine) serve(ctx context.Context, t *Target, do func() error) error {
	if t != nil {
		if err := e.leftOut(t); err != nil {
			e.counters.LeftOut.Add(1)
			return err
		}
	}
	if e.waiting.Add(1) > maxWaiting {
		e.waiting.Add(-1)
		e.counters.Refused.Add(1)
		return ErrBusy
	}
	select {
	case <-e.slot:
		e.waiting.Add(-1)
	case <-ctx.Done():
		e.waiting.Add(-1)
		e.counters.Refused.Add(1)
		return ctx.Err()
	}
	defer func() { e.slot <- struct{}{} }()
	if t != nil { // while it waited, a worker may have been killed for it
		if err := e.leftOut(t); err != nil {
			e.counters.LeftOut.Add(1)
			return err
		}
	}
	if err := e.ensureWorker(); err != nil {
		e.counters.Refused.Add(1)
		return err
	}
	return do()
}

// leftOut returns an error when a target is in quarantine.
func (e *Engine) leftOut(t *Target) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, ok := e.quarantined[t.Program]
	if !ok || time.Now().After(q.until) {
		return nil
	}
	return fmt.Errorf("%w until %s: %s", ErrQuarantined, q.until.Format(time.TimeOnly), q.reason)
}

// ensureWorker starts a worker unless there is one. One that has ended while it served nothing did so
// for no target's sake.
func (e *Engine) ensureWorker() error {
	if e.worker != nil && hasEnded(e.worker.PID()) {
		_ = e.kill(nil, worker.ErrEnded)
	}
	e.mu.Lock()
	closed, broken, unreaped, failure := e.closed, e.broken, e.unreaped, e.failure
	e.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case e.worker != nil:
		return nil
	case broken != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, broken)
	case unreaped >= maxUnreaped:
		return fmt.Errorf("%w: %w", ErrUnavailable, errUnreaped)
	case time.Now().Before(e.retryAt):
		return fmt.Errorf("%w: %w", ErrUnavailable, failure)
	}
	err := e.startWorker()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure = err; err != nil {
		e.retryAfter = min(max(2*e.retryAfter, retryTime), maxRetryTime)
		e.retryAt = time.Now().Add(e.retryAfter)
		if e.closed {
			return ErrClosed
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	e.retryAfter = 0
	return nil
}

// hasEnded reports whether a child has ended. It was not waited for.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

func (e *Engine) startWorker() error {
	process, err := e.spawner.Start()
	if err != nil {
		return err
	}
	e.counters.Started.Add(1)
	e.mu.Lock()
	e.serving = process
	closed := e.closed
	e.mu.Unlock()
	if closed {
		process.Kill()
		return ErrClosed
	}
	e.worker, e.tableBytes = process, 0
	r := start{Tables: e.chain.written()}
	var fds []int
	for _, name := range r.Tables {
		fds = append(fds, e.chain.maps[name].FD())
	}
	message, err := jsonMessage(opStart, r)
	if err == nil {
		err = process.SendDescriptors(message, fds)
	}
	var answer []byte
	if err == nil {
		answer, err = e.receive(time.Now().Add(startTimeout), opStart)
	}
	var s started
	if err == nil && json.Unmarshal(answer[1:], &s) != nil {
		err = errAnswer
	}
	if err == nil && s.Failure != "" {
		err = errors.New(s.Failure[:min(len(s.Failure), maxFailureBytes)])
	}
	if err != nil {
		return e.kill(nil, err)
	}
	return nil
}

// call sends a request in JSON and returns the answer without its first byte.
func (e *Engine) call(t *Target, timeout time.Duration, op byte, request any) ([]byte, error) {
	message, err := jsonMessage(op, request)
	if err != nil {
		return nil, err
	}
	answer, err := e.exchange(t, timeout, message)
	if err != nil {
		return nil, err
	}
	return answer[1:], nil
}

// exchange sends a request and returns the answer. If there is none, the worker is killed.
func (e *Engine) exchange(t *Target, timeout time.Duration, message []byte) ([]byte, error) {
	deadline := time.Now().Add(timeout)
	err := e.worker.Send(message)
	var answer []byte
	if err == nil {
		answer, err = e.receive(deadline, message[0])
	}
	if err != nil {
		return nil, e.kill(t, err)
	}
	return answer, nil
}

// receive waits for the answer to a request, and makes the tables that the worker asks for before.
func (e *Engine) receive(deadline time.Time, op byte) ([]byte, error) {
	for range maxTables + 1 {
		message, fd, err := e.worker.Receive(deadline)
		if fd >= 0 {
			_ = unix.Close(fd)
			err = errAnswer
		}
		switch {
		case err != nil:
			return nil, err
		case len(message) == 0:
			return nil, errAnswer
		case message[0] == op:
			return message, nil
		case message[0] != opTable || len(message) != 2 || op != opSynchronize:
			return nil, errAnswer
		}
		if err := e.makeTable(uint(message[1])); err != nil {
			return nil, err
		}
	}
	return nil, errAnswer
}

// makeTable sends the worker a table of 1<<bucket entries, or refuses to.
func (e *Engine) makeTable(bucket uint) error {
	if bucket < support.StackDeltaBucketSmallest || bucket > support.StackDeltaBucketLargest {
		return errAnswer
	}
	size := tableBytes(bucket)
	if e.tableBytes += size; e.tableBytes > maxWorkerBytes {
		return errExhausted
	}
	if e.storedBytes()+size > maxTableBytes {
		return e.worker.Send([]byte{opTableRefused})
	}
	spec := e.chain.inner.Copy()
	spec.Name, spec.MaxEntries = "unwind_file", 1<<bucket
	table, err := ebpf.NewMap(spec)
	if err != nil {
		return e.worker.Send([]byte{opTableRefused}) // the machine has no memory for it
	}
	defer table.Close()
	return e.worker.SendDescriptors([]byte{opTable}, []int{table.FD()})
}

// tableBytes is the size of a table: the kernel rounds entries up to 8 bytes.
func tableBytes(bucket uint) uint64 { return 8 << bucket }

// storedBytes returns the size of all tables of files.
func (e *Engine) storedBytes() (size uint64) {
	for bucket := uint(support.StackDeltaBucketSmallest); bucket <= support.StackDeltaBucketLargest; bucket++ {
		outer := e.chain.maps[fmt.Sprintf(outerFormat, bucket)]
		var key, next uint64
		for err := outer.NextKey(nil, &next); err == nil; err = outer.NextKey(key, &next) {
			key, size = next, size+tableBytes(bucket)
			if size > maxTableBytes { // and should it go round in circles
				return size
			}
		}
	}
	return size
}

// kill kills the worker because of an error, without waiting for its end, and deletes what it has
// written. t is what it served, or nil. It returns the error as the caller is to see it.
func (e *Engine) kill(t *Target, err error) error {
	process := e.worker
	e.worker = nil
	e.mu.Lock()
	e.serving = nil
	closed := e.closed
	e.generation++
	clear(e.known)
	onReset := e.onReset
	e.mu.Unlock()
	if onReset != nil {
		onReset()
	}
	process.Kill()
	e.watch(process)
	if closed {
		return ErrClosed
	}
	reason := "the worker ended"
	switch {
	case errors.Is(err, worker.ErrTimeout):
		e.counters.TimedOut.Add(1)
		reason = "the worker did not answer in time"
	case errors.Is(err, errExhausted):
		e.counters.Exhausted.Add(1)
		t = nil // it need not be the cause
	case errors.Is(err, errAnswer):
		e.counters.Nonsense.Add(1)
		reason = "the worker answered nonsense"
	default:
		e.counters.Ended.Add(1)
	}
	if t != nil {
		e.quarantine(t, reason)
	}
	if wipeErr := e.wipe(); wipeErr != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.broken = fmt.Errorf("clearing tables: %w", wipeErr)
		return fmt.Errorf("%w: %w", ErrUnavailable, e.broken)
	}
	return fmt.Errorf("%w: %w", ErrKilled, err)
}

// watch counts a killed worker until it has ended, and gives it a moment for that.
func (e *Engine) watch(process *worker.Process) {
	e.mu.Lock()
	e.unreaped++
	e.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		<-process.Ended()
		e.mu.Lock()
		e.unreaped--
		e.mu.Unlock()
		close(ended)
	}()
	timer := time.NewTimer(killTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// quarantine leaves a target out for a while.
func (e *Engine) quarantine(t *Target, reason string) {
	e.counters.Quarantined.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	length := max(quarantineTime, min(16*e.quarantined[t.Program].length, maxQuarantineTime))
	if len(e.quarantined) >= maxQuarantined {
		var first any
		for program, q := range e.quarantined {
			if first == nil || q.until.Before(e.quarantined[first].until) {
				first = program
			}
		}
		delete(e.quarantined, first)
	}
	e.quarantined[t.Program] = quarantine{pid: t.ID.PID, reason: reason, until: now.Add(length), length: length}
}

// wipe deletes all that workers have written. What they write to an array is replaced by the next one.
func (e *Engine) wipe() error {
	var all error
	for _, name := range e.chain.written() {
		table := e.chain.maps[name]
		if table.Type() == ebpf.Array {
			continue
		}
		all = errors.Join(all, wipeTable(table))
	}
	return all
}

// wipeTable deletes all entries of a table.
func wipeTable(table *ebpf.Map) error {
	key := make([]byte, table.KeySize())
	for range 2 * uint64(table.MaxEntries()) {
		if err := table.NextKey(nil, &key); errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("walking %s: %w", table, err)
		}
		if err := table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("deleting from %s: %w", table, err)
		}
	}
	return fmt.Errorf("%s is filled while it is cleared", table)
}

// Status is the state of an Engine.
type Status struct {
	Failure      string       `json:"failure,omitempty"`     // why there is no worker
	Generation   uint64       `json:"generation"`            // how often all was synchronized anew
	Synchronized int          `json:"synchronized"`          // processes
	Unreaped     int          `json:"unreaped"`              // killed workers that have not ended
	Quarantined  []Quarantine `json:"quarantined,omitempty"` // by pid
}

// Quarantine is a process that is left out.
type Quarantine struct {
	PID    int       `json:"pid"` // in our own pid namespace
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"`
}

// Status returns a snapshot.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{Generation: e.generation, Unreaped: e.unreaped}
	for _, k := range e.known {
		if k.ready {
			s.Synchronized++
		}
	}
	switch {
	case e.broken != nil:
		s.Failure = e.broken.Error()
	case e.failure != nil:
		s.Failure = e.failure.Error()
	case e.serving == nil && e.unreaped >= maxUnreaped:
		s.Failure = errUnreaped.Error()
	}
	now := time.Now()
	for _, q := range e.quarantined {
		if now.Before(q.until) {
			s.Quarantined = append(s.Quarantined, Quarantine{PID: q.pid, Reason: q.reason, Until: q.until})
		}
	}
	slices.SortFunc(s.Quarantined, func(a, b Quarantine) int { return a.PID - b.PID })
	return s
}
