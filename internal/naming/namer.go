package naming

import (
	"context"
	"errors"
	"sync"
	"time"

	"correlator/internal/symbolizer"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// maxHold is how long a sample waits for names: less than the time between two exports.
	maxHold = 4 * time.Second

	// maxHeld is how many samples wait, and maxHeldOfOwner how many of one owner. Each takes 300 bytes, and
	// keeps its stack, of some 3 kB if no other has that.
	maxHeld        = 2048
	maxHeldOfOwner = 512

	// maxWanted is how many addresses of one process are to be named: of some requests.
	maxWanted = 4 * symbolizer.MaxLiveAddrs

	// maxBytes bounds the names of all processes: when there are more, the largest process of the owner
	// who has most loses its names. A JVM with 1000 functions on its stacks takes 150 kB.
	maxBytes = 4 << 20

	// MemoryBytes is the memory of the Go runtime that a Namer needs: names, as much for what is held and
	// known of stacks, and twice that since near its limit the garbage collector would run all the time.
	MemoryBytes = 4 * maxBytes

	// maxComplete is how many stacks of a process are known to be named.
	maxComplete = 1024

	// maxAsking is how many requests are under way, of one owner one. A worker takes 5 MB.
	maxAsking = 4

	// pace is how much longer than the CPU time of a request is the time until the next one of the process:
	// reading its names takes at most a twentieth of a CPU. It is shortest at least, so that frames come
	// together.
	pace     = 20
	shortest = 200 * time.Millisecond

	// Reading names of the kernel takes some 100 ms of CPU time, however many. The first time is there for
	// most of the functions that are sampled at all, so the next one is after firstKernel, and each further
	// one after twice the time, up to mostKernel.
	firstKernel = 2 * time.Second
	mostKernel  = time.Minute

	// A process because of which a worker failed is not asked for some time, longer each time.
	firstPause = 10 * time.Second
	maxPause   = 10 * time.Minute

	// A perf map is looked at again so soon when frames in compiled code come; later where there was
	// none.
	perfMapInterval = 5 * time.Second
	noMapInterval   = 30 * time.Second

	// kernelAge is how long names of code that the kernel has compiled are valid.
	kernelAge = time.Minute

	// idleTime is when a process without samples is forgotten, and idleWorker when a worker ends.
	idleTime   = time.Minute
	idleWorker = 10 * time.Second

	tick = 500 * time.Millisecond
)

// Namer names frames. It is safe for concurrent use.
type Namer struct {
	live     *symbolizer.Live
	symbols  *symbolizer.Kernel // used by the goroutine that asks for the kernel's names
	procRoot string
	emit     func(*profile.Sample)
	counters *Counters
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	running  sync.WaitGroup
	slots    chan struct{}
	released chan struct{} // has a token when no sample is held any more

	mu        sync.Mutex
	closing   bool // no more samples are held
	closed    bool
	processes map[*profile.Resource]*process
	kernel    *process
	owners    map[string]*owner
	held      int
	bytes     int       // of all processes
	forgotten time.Time // when names of code that the kernel has compiled were
}

// owner is whose processes are asked one after the other.
type owner struct {
	asking    sync.Mutex
	processes int
	held      int
	bytes     int // of their names
}

// process is one program of a process, or the kernel.
type process struct {
	resource *profile.Resource // nil: the kernel
	owner    *owner            // of the kernel a separate one
	names    map[profile.FileID]*ranges
	bytes    int
	complete map[profile.StackTraceID]struct{} // stacks of which all that there is is known
	held     []heldSample
	wanted   map[address]struct{}
	asking   bool
	used     time.Time // when the last sample came
	next     time.Time // when it may be asked again
	reason   reason    // why it is not asked before that: numReasons without one
	pause    time.Duration
	gone     bool

	perfMap     string // its version, when it was looked at last
	perfMapRead time.Time
}

// address is an address in a file, or in memory if that is nil.
type address struct {
	file *profile.File
	addr uint64
}

type heldSample struct {
	sample profile.Sample
	until  time.Time
}

// Open returns a Namer, which the caller must close. procRoot is a procfs of our own pid namespace. emit
// gets all samples, when their names are known or will not be; it is called with nothing locked. The
// program's main function must call worker.Main with symbolizer.Kind.
func Open(procRoot string, counters *Counters, emit func(*profile.Sample)) (*Namer, error) {
	live, err := symbolizer.OpenLive(procRoot, &counters.Workers)
	if err != nil {
		return nil, err
	}
	n := &Namer{
		live: live, symbols: symbolizer.NewKernel(procRoot, "/sys"), procRoot: procRoot, emit: emit,
		counters: counters, slots: make(chan struct{}, maxAsking),
		released:  make(chan struct{}, 1),
		processes: make(map[*profile.Resource]*process), owners: make(map[string]*owner),
		forgotten: time.Now(),
	}
	n.kernel = newProcess(nil, &owner{})
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.running.Go(n.run)
	return n, nil
}

func newProcess(resource *profile.Resource, owner *owner) *process {
	return &process{
		resource: resource, owner: owner, names: make(map[profile.FileID]*ranges), reason: numReasons,
		complete: make(map[profile.StackTraceID]struct{}), wanted: make(map[address]struct{}),
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
	if function, _ := p.find(f); function != nil {
		return f.WithName(function)
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

// find returns the function of a frame of the process, nil for none, and whether that is known.
func (p *process) find(f profile.Frame) (function *profile.Function, known bool) {
	names := p.names[f.FileID()]
	if names == nil {
		return nil, false
	}
	return names.find(f.Address)
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
	n.lookAtPerfMap(p, now)
	reason, missing := n.want(p, s.Stack, now)
	if !missing || reason != numReasons {
		return reason, false
	}
	if n.closing {
		return unnamedShutdown, false
	}
	if n.held >= maxHeld || p.owner.held >= maxHeldOfOwner {
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
			o = &owner{}
			n.owners[resource.Owner] = o
		}
		o.processes++
		p = newProcess(resource, o)
		n.processes[resource] = p
	}
	return p
}

// want has the frames of a stack named whose names are not known. It reports whether there are any,
// and with a reason that their names will not come in time.
func (n *Namer) want(p *process, stack *profile.Stack, now time.Time) (_ reason, missing bool) {
	if _, complete := p.complete[stack.ID]; complete {
		return numReasons, false
	}
	why := numReasons
	for _, f := range stack.Frames {
		of := n.of(p, f)
		if of == nil {
			continue
		}
		if _, known := of.find(f); known {
			continue
		}
		missing = true
		switch {
		case of.gone:
			why = unnamedGone
		case of.next.After(now.Add(maxHold)):
			if why = of.reason; why == numReasons {
				why = unnamedLate
			}
		case len(of.wanted) >= maxWanted:
			why = unnamedFull
		default:
			of.wanted[address{f.File, f.Address}] = struct{}{}
			n.start(of)
		}
	}
	if !missing {
		if len(p.complete) >= maxComplete {
			clear(p.complete)
		}
		p.complete[stack.ID] = struct{}{}
	}
	return why, missing
}

// lookAtPerfMap has the perf map of a process looked at again if it was used, some time ago.
func (n *Namer) lookAtPerfMap(p *process, now time.Time) {
	interval := perfMapInterval
	if p.perfMap == "" {
		interval = noMapInterval
	}
	if code := p.names[codeID]; code != nil && now.Sub(p.perfMapRead) > interval && !p.gone {
		n.start(p)
	}
}

// codeID is the file id of code in no file.
var codeID = profile.Frame{}.FileID()

// start has a process asked, unless it already is.
func (n *Namer) start(p *process) {
	if p.asking || n.closed {
		return
	}
	p.asking = true
	n.running.Go(func() { n.ask(p) })
}

// settle returns the samples of a process whose names are known, or will not come in time, by why they
// are not known.
func (n *Namer) settle(p *process, now time.Time) (settled [numReasons + 1][]heldSample) {
	var rest []heldSample
	for _, h := range p.held {
		reason, missing := n.want(p, h.sample.Stack, now)
		switch {
		case !missing, reason != numReasons:
		case now.After(h.until):
			reason = unnamedLate
		default:
			rest = append(rest, h)
			continue
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

// run does what is due from time to time, until Close.
func (n *Namer) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-n.ctx.Done():
			return
		}
		now := time.Now()
		n.settleAll(func(p *process) bool { return now.After(p.held[0].until) })
		n.forget(now)
		n.live.EndIdle(idleWorker)
	}
}

// failed has a process left out for a while after a request failed, for good when it has ended.
func (p *process) failed(err error, now time.Time) {
	if errors.Is(err, procscan.ErrGone) {
		p.gone = true
		return
	}
	p.reason = unnamedWorker
	if errors.Is(err, worker.ErrTimeout) {
		p.reason = unnamedTimeout
	}
	p.pause = min(max(2*p.pause, firstPause), maxPause)
	p.next = now.Add(p.pause)
}
