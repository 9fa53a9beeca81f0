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

	// maxHeld is how many samples wait, for all consumers together, and maxHeldOfOwner how many of one
	// owner. Each takes 300 bytes, and keeps its stack, of some 3 kB if no other has that.
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

	// tick is how often it is looked what waits in vain; calmTick, while nothing waits, what was not used for long.
	tick     = 500 * time.Millisecond
	calmTick = 5 * time.Second
)

// Namer names frames for all consumers of an agent's samples. It is safe for concurrent use.
type Namer struct {
	live     *symbolizer.Live
	symbols  *symbolizer.Kernel // used by the goroutine that asks for the kernel's names
	procRoot string
	counters Counters
	opened   time.Time
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	running  sync.WaitGroup
	wake     chan struct{} // has a token when something new is wanted, or a request has ended

	mu        sync.Mutex
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
	bytes     int                     // of memory
	names     map[*names]struct{}     // of its processes
	shared    map[profile.View]*names // those of them that others may have, too
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
	space    *profile.AddressSpace // nil: not known
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
	rest     time.Duration        // between its last request, after which all was known, and the next
	watched  time.Time            // when the last sample came that waits for names, of a consumer that is not patient
	gone     bool

	perfMap     symbolizer.PerfMap // when it was looked at last
	perfMapRead time.Time
}

// file is a file of a process, or its memory.
type file struct {
	*names
	// After a failure, nothing more is asked for before retry, which comes later each time.
	retry time.Time
	pause time.Duration
}

// names has what is known of the names in a file, or in memory. Processes of one owner with the same view of a file
// have the same.
type names struct {
	ranges ranges
	// version grows when names may have changed: those of an earlier one are outdated. They are
	// used until they have been read again.
	version uint32
	view    profile.View // zero: they are of one process
	uses    int          // processes that have them
}

// address is an address in a file, or in memory if that is nil.
type address struct {
	file *profile.File
	addr uint64
}

func (a address) id() profile.FileID { return profile.Frame{File: a.file, Address: a.addr}.FileID() }

type heldSample struct {
	sample   profile.Sample
	consumer *Consumer
	until    time.Time
}

// codeID is the file id of code in no file. It is the same in all processes; what is kept is not.
var codeID = profile.Frame{}.FileID()

// Open returns a Namer, which the caller must close. procRoot is a procfs of our own pid namespace. It
// reads nothing before a consumer has samples. The program's main function must call worker.Main.
func Open(procRoot string) (*Namer, error) {
	n := &Namer{
		symbols: symbolizer.NewKernel(procRoot, "/sys"), procRoot: procRoot, opened: time.Now(),
		wake: make(chan struct{}, 1), processes: make(map[*profile.Resource]*process), owners: make(map[string]*owner),
		memory: memory{max: maxBytes}, aged: time.Now(),
	}
	var err error
	if n.live, err = symbolizer.OpenLive(procRoot, &n.counters.Workers); err != nil {
		return nil, err
	}
	n.kernel = newProcess(nil, newOwner(&memory{max: maxKernelBytes}))
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.running.Go(n.run)
	return n, nil
}

// Counters returns what the Namer counts; a nil one counts nothing.
func (n *Namer) Counters() *Counters {
	if n == nil {
		return new(Counters)
	}
	return &n.counters
}

func newOwner(memory *memory) *owner {
	return &owner{
		memory: memory, names: make(map[*names]struct{}),
		shared: make(map[profile.View]*names), waiting: make(map[*process]struct{}),
	}
}

func newProcess(resource *profile.Resource, owner *owner) *process {
	return &process{
		resource: resource, owner: owner, files: make(map[profile.FileID]*file),
		wanted: make(map[address]struct{}), taken: make(map[address]struct{}),
	}
}

// Close ends the workers, after which no name is read any more. Samples that are still held are emitted.
func (n *Namer) Close() {
	n.mu.Lock()
	n.closed = true
	samples := n.takeHeld(func(*heldSample) bool { return true })
	n.mu.Unlock()
	n.stop()
	n.live.Close()
	n.emitAll(samples, unnamedShutdown)
	n.running.Wait() // what is asked of the kernel; workers do not answer any more
}

// Name returns a frame of a process with its function, if that is known. A nil Namer knows none.
func (n *Namer) Name(resource *profile.Resource, f profile.Frame) profile.Frame {
	if n == nil {
		return f
	}
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
	return f.ranges.find(addr)
}

// hold holds a sample for a consumer if names of its frames may come. Otherwise it returns why they are
// not known, numReasons if they are.
func (n *Namer) hold(c *Consumer, s *profile.Sample) (reason, bool) {
	if s.Resource == nil || s.Stack == nil {
		return numReasons, false
	}
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.process(s.Resource)
	p.used = now
	if s.Space != nil {
		p.space = s.Space
	}
	reason, mayCome := n.want(p, s, now)
	if mayCome && !c.patient {
		p.watched = now
	}
	switch {
	case !mayCome:
		return reason, false
	case n.closed || c.closed:
		return unnamedShutdown, false
	case n.held >= maxHeld || p.owner.held >= maxHeldOfOwner:
		return unnamedFull, false
	}
	if n.held == 0 {
		n.notify() // there may be none before calmTick
	}
	n.held++
	c.held++
	p.owner.held++
	p.held = append(p.held, heldSample{*s, c, now.Add(maxHold)})
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
		n.grow(o, processBytes)
		n.notify()
	}
	return p
}

// want has the frames of a sample named whose names are not known, or may have changed. It reports
// whether all that is not known may come in time, and otherwise why not; numReasons: all is known.
func (n *Namer) want(p *process, s *profile.Sample, now time.Time) (_ reason, mayCome bool) {
	never, failed := numReasons, numReasons
	for _, f := range s.Stack.Frames {
		of := n.of(p, f)
		if of == nil || of == p && f.File == nil && p.isNoCode(f.Address, s) {
			continue
		}
		id := f.FileID()
		file := n.fileOf(of, id)
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

// isNoCode reports whether an address of a sample is a word that was taken for a return address, where code uses the
// frame pointer for something else: no perf map has a name of it, and most of those who have such have none.
func (p *process) isNoCode(addr uint64, s *profile.Sample) bool {
	return p.space != nil && !s.Last.IsZero() && !p.space.MayBeCode(addr, s.Last)
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
		n.grow(p.owner, wantedBytes)
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
		reason, mayCome := n.want(p, &h.sample, now)
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

// release takes from a process the samples that it holds, but for the rest. They are to be emitted.
func (n *Namer) release(p *process, rest []heldSample) {
	n.held -= len(p.held) - len(rest)
	p.owner.held -= len(p.held) - len(rest)
	p.held = rest
}

// takeHeld takes some of the samples that are held.
func (n *Namer) takeHeld(some func(*heldSample) bool) (taken []heldSample) {
	for _, p := range n.processes {
		var rest []heldSample
		for i := range p.held {
			if some(&p.held[i]) {
				taken = append(taken, p.held[i])
			} else {
				rest = append(rest, p.held[i])
			}
		}
		n.release(p, rest)
	}
	return taken
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

// emitAll emits samples that were released.
func (n *Namer) emitAll(samples []heldSample, reason reason) {
	if len(samples) == 0 {
		return
	}
	for i := range samples {
		samples[i].consumer.take(&samples[i].sample, reason)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range samples {
		samples[i].consumer.emitted()
	}
}

// seconds returns the time in the unit of named.used.
func (n *Namer) seconds(now time.Time) uint32 { return uint32(now.Sub(n.opened) / time.Second) }
