package naming

import (
	"context"
	"sync"
	"time"

	"correlator/internal/names/symbolizer"
	"correlator/profile"
)

const (
	// maxHold is how long a sample waits for names: less than the time between two exports.
	maxHold = 4 * time.Second

	// maxHeld is how many samples wait, and maxHeldOfOwner how many of one owner. Each takes 300 bytes, and
	// keeps its stack, of some 3 kB if no other has that.
	maxHeld        = 2048
	maxHeldOfOwner = 512
	heldBytes      = 3300

	// maxWanted is how many addresses of one process are to be named, maxKernelWanted of the
	// kernel.
	maxWanted       = 2 * symbolizer.MaxLiveAddrs
	maxKernelWanted = 4096

	// A perf map is looked at again so soon when frames in compiled code come; later where there was
	// none.
	perfMapInterval = 5 * time.Second
	noMapInterval   = 30 * time.Second

	// idleTime is when a process without samples is forgotten, crowdedIdleTime when there is hardly
	// any room left: thousands of processes may begin and end in a minute. idleWorker is when a
	// worker ends.
	idleTime        = time.Minute
	crowdedIdleTime = 10 * time.Second
	idleWorker      = 10 * time.Second

	tick = 500 * time.Millisecond
)

// Namer names frames. It is safe for concurrent use.
type Namer struct {
	live     *symbolizer.Live
	symbols  *symbolizer.Kernel // used by the goroutine that asks for the kernel's names
	procRoot string
	emit     func(*profile.Sample)
	counters *Counters
	opened   time.Time
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	running  sync.WaitGroup
	released chan struct{} // has a token when no sample is held any more
	wake     chan struct{} // has a token when something new is wanted, or a request has ended

	mu        sync.Mutex
	closing   bool // no more samples are held
	closed    bool
	processes map[*profile.Resource]*process
	kernel    *process
	owners    map[string]*owner
	memory    memory // of the names of processes
	held      int
	shares    shares
	aged      time.Time // when names of code that the kernel has compiled were last marked as outdated
}

// owner is a container, or a user: whose processes share what there is.
type owner struct {
	memory    *memory
	bytes     int // of memory
	processes int
	held      int
	evicted   time.Time             // when room for it was last looked for at another's cost
	waiting   map[*process]struct{} // of which something is wanted
	turn      turn
}

// process is one program of a process, or the kernel.
type process struct {
	resource *profile.Resource // nil: the kernel
	owner    *owner            // of the kernel a separate one
	files    map[profile.FileID]*file
	bytes    int // of the owner's
	held     []heldSample
	wanted   map[address]struct{}
	taken    map[address]struct{} // what the request under way asks for
	asking   bool                 // one is
	look     bool                 // its perf map is to be looked at
	used     time.Time            // when the last sample came
	served   time.Time            // when its last request began
	next     time.Time            // when it may be asked again
	reason   reason               // why it is not asked before that
	pause    time.Duration        // how long that was
	gone     bool

	perfMap     symbolizer.PerfMap // when it was looked at last
	perfMapRead time.Time
}

// file has what is known of the names in a file, or in memory.
type file struct {
	names ranges
	// version grows when names may have changed: those of an earlier one are outdated. They are
	// used until they have been read again.
	version uint32
	// After a failure, nothing more is asked for before retry, which comes later each time.
	retry time.Time
	pause time.Duration
}

// address is an address in a file, or in memory if that is nil.
type address struct {
	file *profile.File
	addr uint64
}

func (a address) id() profile.FileID { return profile.Frame{File: a.file, Address: a.addr}.FileID() }

type heldSample struct {
	sample profile.Sample
	until  time.Time
}

// codeID is the file id of code in no file. It is the same in all processes; what is kept is not.
var codeID = profile.Frame{}.FileID()

// Open returns a Namer, which the caller must close. procRoot is a procfs of our own pid namespace. emit
// gets all samples, when their names are known or will not be; it is called with nothing locked. The
// program's main function must call worker.Main with symbolizer.LiveKind.
func Open(procRoot string, counters *Counters, emit func(*profile.Sample)) (*Namer, error) {
	live, err := symbolizer.OpenLive(procRoot, &counters.Workers)
	if err != nil {
		return nil, err
	}
	n := &Namer{
		live: live, symbols: symbolizer.NewKernel(procRoot, "/sys"), procRoot: procRoot, emit: emit,
		counters: counters, opened: time.Now(), released: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		processes: make(map[*profile.Resource]*process), owners: make(map[string]*owner),
		memory: memory{max: maxBytes}, aged: time.Now(),
	}
	n.kernel = newProcess(nil, newOwner(&memory{max: maxKernelBytes}))
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.running.Go(n.run)
	return n, nil
}

func newOwner(memory *memory) *owner {
	return &owner{memory: memory, waiting: make(map[*process]struct{})}
}

func newProcess(resource *profile.Resource, owner *owner) *process {
	return &process{
		resource: resource, owner: owner, files: make(map[profile.FileID]*file),
		wanted: make(map[address]struct{}), taken: make(map[address]struct{}),
	}
}

// Close emits the samples that are held when their names are known, or ctx ends, and ends the workers.
// Samples that come later are emitted as they are.
func (n *Namer) Close(ctx context.Context) {
	n.mu.Lock()
	n.closing = true
	for n.held > 0 && ctx.Err() == nil {
		n.mu.Unlock()
		select {
		case <-n.released:
		case <-ctx.Done():
		}
		n.mu.Lock()
	}
	n.closed = true
	var samples []heldSample
	for _, p := range n.processes {
		samples = append(samples, n.release(p, nil)...)
	}
	n.mu.Unlock()
	n.stop()
	n.live.Close()
	n.emitAll(samples, unnamedShutdown)
	n.running.Wait() // what is asked of the kernel; workers do not answer any more
}

// Sampled emits a sample, at once or when its names are known. It waits for nothing. The sample stays
// the caller's.
func (n *Namer) Sampled(s *profile.Sample) {
	if reason, held := n.hold(s); !held {
		n.counters.add(reason, s.Count)
		n.emit(s)
	}
}

// Name returns a frame of a process with its function, if that is known. It must not be called by emit.
func (n *Namer) Name(resource *profile.Resource, f profile.Frame) profile.Frame {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.of(n.processes[resource], f)
	if p == nil {
		return f
	}
	if known := p.files[f.FileID()].find(f.Address); known != nil && known.function != nil {
		return f.WithName(known.function)
	}
	return f
}

// of returns what a frame of a process is of: the process, the kernel, or nil if there is no name to be
// read.
func (n *Namer) of(p *process, f profile.Frame) *process {
	switch symbolizer.OriginOf(f) {
	case symbolizer.KernelOrigin, symbolizer.VDSOOrigin:
		return n.kernel
	case symbolizer.ProcessOrigin:
		return p
	}
	return nil
}

// find returns what is known of an address, or nil. There may be no file.
func (f *file) find(addr uint64) *named {
	if f == nil {
		return nil
	}
	return f.names.find(addr)
}

// hold holds a sample if names of its frames may come. Otherwise it returns why they are not known,
// numReasons if they are.
func (n *Namer) hold(s *profile.Sample) (reason, bool) {
	if s.Resource == nil || s.Stack == nil {
		return numReasons, false
	}
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.process(s.Resource)
	p.used = now
	reason, mayCome := n.want(p, s.Stack, now)
	switch {
	case !mayCome:
		return reason, false
	case n.closing:
		return unnamedShutdown, false
	case n.held >= maxHeld || p.owner.held >= maxHeldOfOwner:
		return unnamedFull, false
	}
	n.held++
	p.owner.held++
	p.held = append(p.held, heldSample{*s, now.Add(maxHold)})
	return numReasons, true
}

// process returns the state of a process.
func (n *Namer) process(resource *profile.Resource) *process {
	p := n.processes[resource]
	if p == nil {
		o := n.owners[resource.Owner]
		if o == nil {
			o = newOwner(&n.memory)
			n.owners[resource.Owner] = o
		}
		o.processes++
		p = newProcess(resource, o)
		n.processes[resource] = p
		n.grow(p, processBytes)
	}
	return p
}

// want has the frames of a stack named whose names are not known, or may have changed. It reports
// whether all that is not known may come in time, and otherwise why not; numReasons: all is known.
func (n *Namer) want(p *process, stack *profile.Stack, now time.Time) (_ reason, mayCome bool) {
	never, failed := numReasons, numReasons
	for _, f := range stack.Frames {
		of := n.of(p, f)
		if of == nil {
			continue
		}
		id := f.FileID()
		file := of.files[id]
		if id == codeID && of == p {
			n.lookAtPerfMap(p, now)
		}
		known := file.find(f.Address)
		if known != nil {
			known.used = n.seconds(now)
			if known.version == file.version {
				continue
			}
		}
		reason := n.ask(of, file, address{f.File, f.Address}, now)
		switch {
		case known != nil:
		case reason == numReasons:
			mayCome = true
		case reason == unnamedFailed: // others may come
			failed = reason
		default:
			never = reason
		}
	}
	switch {
	case never != numReasons:
		return never, false
	case mayCome:
		return numReasons, true
	}
	return failed, false
}

// ask has an address named. It returns why its name will not come in time; numReasons: it may.
func (n *Namer) ask(p *process, file *file, a address, now time.Time) reason {
	switch {
	case p.gone:
		return unnamedGone
	case file != nil && file.retry.After(now):
		return unnamedFailed
	}
	_, wanted := p.wanted[a]
	if _, taken := p.taken[a]; !wanted && !taken {
		switch {
		case len(p.wanted)+len(p.taken) >= p.maxWanted():
			return unnamedFull
		case !n.makeRoom(p, roomBytes, now):
			return unnamedMemory
		}
		p.wanted[a] = struct{}{}
		n.grow(p, wantedBytes)
		n.wait(p)
	}
	latest := now.Add(maxHold)
	switch {
	case p.asking:
	case p.next.After(latest):
		return p.reason
	case p.owner.turn.next.After(latest):
		return unnamedShare
	}
	return numReasons
}

func (p *process) maxWanted() int {
	if p.resource == nil {
		return maxKernelWanted
	}
	return maxWanted
}

// lookAtPerfMap has the perf map of a process looked at again if that was some time ago.
func (n *Namer) lookAtPerfMap(p *process, now time.Time) {
	interval := perfMapInterval
	if p.perfMap == (symbolizer.PerfMap{}) {
		interval = noMapInterval
	}
	if !p.perfMapRead.IsZero() && now.Sub(p.perfMapRead) > interval && !p.gone && !p.look {
		p.look = true
		n.wait(p)
	}
}

// settle returns the samples of a process whose names are known, or will not come in time, by why they
// are not known.
func (n *Namer) settle(p *process, now time.Time) (settled [numReasons + 1][]heldSample) {
	var rest []heldSample
	for _, h := range p.held {
		reason, mayCome := n.want(p, h.sample.Stack, now)
		if mayCome && now.Before(h.until) {
			rest = append(rest, h)
			continue
		}
		if mayCome {
			reason = unnamedLate
		}
		settled[reason] = append(settled[reason], h)
	}
	n.release(p, rest)
	return settled
}

// release returns the samples that a process holds; rest are held from now on.
func (n *Namer) release(p *process, rest []heldSample) (all []heldSample) {
	all, p.held = p.held, rest
	p.owner.held -= len(all) - len(rest)
	if n.held -= len(all) - len(rest); n.held == 0 {
		select {
		case n.released <- struct{}{}:
		default:
		}
	}
	return all
}

// settleAll emits the samples of some processes that are settled.
func (n *Namer) settleAll(some func(*process) bool) {
	now := time.Now()
	n.mu.Lock()
	var settled [numReasons + 1][]heldSample
	for _, p := range n.processes {
		if len(p.held) > 0 && some(p) {
			for reason, samples := range n.settle(p, now) {
				settled[reason] = append(settled[reason], samples...)
			}
		}
	}
	n.mu.Unlock()
	for r, samples := range settled {
		n.emitAll(samples, reason(r))
	}
}

func (n *Namer) emitAll(samples []heldSample, reason reason) {
	for i := range samples {
		n.counters.add(reason, samples[i].sample.Count)
		n.emit(&samples[i].sample)
	}
}

// seconds returns the time in the unit of named.used.
func (n *Namer) seconds(now time.Time) uint32 { return uint32(now.Sub(n.opened) / time.Second) }
