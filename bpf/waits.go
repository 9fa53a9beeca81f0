package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// WaitCounters count what is not in accounts as it should be, since OpenWaits.
type WaitCounters struct {
	Accounts  uint64 // those that were put into a table, or added to one
	Lost      uint64 // those for which there was no room
	Unknown   uint64 // switches of threads whose context could not be read then
	Stateless uint64 // switches of threads of targets that there is no state of
	Unwoken   uint64 // waits whose end was not seen: they last until the thread ran
	Unseen    uint64 // switches of threads that were not seen: how long they ran is what the scheduler says

	Walked    uint64 // stacks that were walked
	Unasked   uint64 // those that would have been too many
	UnaskedNS uint64 // the time that these stood for, and what others did that follow and nothing stands for any more
	// Stacks that were to be walked, and were not: what they stood for is that of the thread's next wait, too, if that
	// is of the same state and context; what it waited for a CPU afterwards is not.
	Unrung     uint64 // the CPU could not be interrupted: Drain was not called for long
	Missed     uint64 // another thread ran in the interrupt, or it did not come
	Unfinished uint64 // the unwinder has lost them
	Unsent     uint64 // there was no room for them, or they had no frame
}

const (
	// defaultMaxAccounts is the contexts that all threads may have between two drains: 40,000 a second
	// at ten drains. An entry takes 380 bytes: 3 MB in both tables.
	defaultMaxAccounts = 4096

	// partOfAccounts is which part of them one target may have; an owner has as many as are left free.
	partOfAccounts = 4

	// defaultMaxThreads is the threads of a process that has an account: each takes 512 bytes of the kernel's memory.
	// Processes of an owner have ownedThreads times as many in all.
	defaultMaxThreads, ownedThreads = 10_000, 2
)

// Waits keeps the accounts of the threads of a sampler's targets. Its methods are for one goroutine at a
// time; Pause and Resume may be for another one.
type Waits struct {
	sampler  *Sampler
	options  WaitOptions
	objects  waitObjects
	walks    *walks // nil: no stacks are walked
	walkless error  // why not

	chainless error // guarded by the mutex of the sampler's table, see Sampler.Chainless
	links     []link.Link
	paused    atomic.Bool
	counters  *ebpf.Memory
	usages    *ebpf.Memory // of targets
	owners    *ebpf.Memory
	begun     uint32      // threads, as of the last addUpThreads
	owned     atomic.Bool // owners may have other threads since
	cpus      int
	filters   bool // the kernel can walk a single process

	epoch      uint32
	stored     uint64 // as of the last Drain
	unfinished bool   // the table that is not active is not empty, because of an error
	keys       [drainBatch / 8]waitsAccountKey
	values     [drainBatch / 8]waitsAccount
	batch      batch
}

type waitObjects struct {
	Switch   *ebpf.Program  `ebpf:"account_switch"`
	Waking   *ebpf.Program  `ebpf:"account_waking"`
	New      *ebpf.Program  `ebpf:"prepare_new"`
	Prepare  *ebpf.Program  `ebpf:"prepare"`
	Begin    *ebpf.Program  `ebpf:"begin"`
	Finish   *ebpf.Program  `ebpf:"finish"`
	Targets  *ebpf.Map      `ebpf:"targets"`
	Threads  *ebpf.Map      `ebpf:"threads"`
	Jobs     *ebpf.Map      `ebpf:"jobs"`
	Paces    *ebpf.Map      `ebpf:"paces"`
	Bells    *ebpf.Map      `ebpf:"bells"`
	A        *ebpf.Map      `ebpf:"accounts_a"`
	B        *ebpf.Map      `ebpf:"accounts_b"`
	Counters *ebpf.Map      `ebpf:"counters"`
	Usages   *ebpf.Map      `ebpf:"usages"`
	Owners   *ebpf.Map      `ebpf:"owners"`
	Prepared *ebpf.Variable `ebpf:"prepared"`

	PreparedProcess *ebpf.Variable `ebpf:"prepared_process"`
	Filter          *ebpf.Variable `ebpf:"target_filter"`
	Epoch           *ebpf.Variable `ebpf:"epoch"`
	Walks           *ebpf.Variable `ebpf:"walks"`
	Since           *ebpf.Variable `ebpf:"since"`
	Attached        *ebpf.Variable `ebpf:"attached"`
}

func (o *waitObjects) Close() error {
	return _WaitsClose(o.Switch, o.Waking, o.New, o.Prepare, o.Begin, o.Finish, o.Targets, o.Threads, o.Jobs,
		o.Paces, o.Bells, o.A, o.B, o.Counters, o.Usages, o.Owners)
}

// WaitOptions are bounds of accounts and stacks.
type WaitOptions struct {
	MaxAccounts int // the size of each of two tables, 0: 4096, or twice MaxThreads with ByThread
	MaxThreads  int // threads of a process that begin while it has more, or are found then, have no account; 0: 10,000

	Period   time.Duration // of waits for which one stack is due, of those for a CPU ten times that; 0: 10 ms
	MaxWalks int           // of a CPU in a tenth of a second, 0: 6; of one owner 5, of one target 4: see bpf/budget.h
	NoWalks  bool          // no stacks are walked
	Paused   bool          // until Resume

	// ByThread: accounts are of threads, whatever context they have, and whether they have one: without ids. Those of
	// threads that there are at Resume begin then, and at Pause all end, also of threads that did not leave their CPU
	// meanwhile or did not come to one: states add up to the time from the first to the last. One target may have all
	// accounts that its owner may have.
	ByThread bool

	hook  string // the tracepoint, in place of walkHook
	begun func() // is called, ByThread, before switches are seen
}

// OpenWaits begins to keep accounts of the threads of the sampler's targets, and to walk stacks of their waits where
// that is possible, which only one Waits at a time can; the caller must Close it before the sampler. An unwinder that
// was set before walks no stacks of waits.
// The error is a [MissingError] when the machine or the process lacks something.
func (s *Sampler) OpenWaits(options WaitOptions) (*Waits, error) {
	setDefault(&options.MaxThreads, defaultMaxThreads)
	if options.ByThread {
		setDefault(&options.MaxAccounts, 2*options.MaxThreads)
	}
	setDefault(&options.MaxAccounts, defaultMaxAccounts)
	setDefault(&options.MaxWalks, windowWalks)
	if options.Period == 0 {
		options.Period = walkPeriod
	}
	options.hook = cmp.Or(options.hook, walkHook())
	w := &Waits{sampler: s, options: options}
	if err := w.open(); err != nil {
		w.Close()
		return nil, fmt.Errorf("opening accounts of waits: %w", err)
	}
	return w, nil
}

// Walkless returns why no stacks of waits are walked, nil if they are, or were not asked for.
func (w *Waits) Walkless() error { return w.walkless }

func (w *Waits) open() (err error) {
	if err := supportsWaits(); err != nil {
		return err
	}
	if w.cpus, err = ebpf.PossibleCPU(); err != nil {
		return fmt.Errorf("counting CPUs: %w", err)
	}
	spec, err := shared.read(waitsObject)
	if err != nil {
		return err
	}
	kernel, err := KernelTypes()
	if err != nil {
		return err
	}
	maxAccounts, ofTarget := w.options.MaxAccounts, partOfAccounts
	if w.options.ByThread {
		ofTarget = 1
	}
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("asking for the length of a tick: %w", err)
	}
	err = SetVariables(spec, map[string]any{
		waitsVarMaxUsed:         uint16(min(max(maxAccounts/ofTarget, 1), math.MaxUint16)),
		waitsVarMaxAccounts:     uint32(maxAccounts),
		waitsVarMaxThreads:      uint32(w.options.MaxThreads),
		waitsVarMaxOwnedThreads: uint32(w.options.MaxThreads * ownedThreads),
		waitsVarKernelStacks:    w.sampler.options.KernelStacks,
		waitsVarKeepUnsampled:   w.sampler.options.KeepUnsampled,
		waitsVarByThread:        w.options.ByThread,
		waitsVarLeastPeriod:     uint64(w.options.Period),
		waitsVarMaxAsked:        uint32(w.options.MaxWalks),
		waitsVarInterruptsAt:    uint32(interruptsAt(kernel)),
		waitsVarPidNamespace:    ownPIDNamespace(),
		waitsVarTick:            uint64(tick.Nano()),
	})
	if err := errors.Join(err, w.sampler.setLabels(spec)); err != nil {
		return err
	}
	spec.Maps[waitsMapAccountsA].MaxEntries = uint32(maxAccounts)
	spec.Maps[waitsMapAccountsB].MaxEntries = uint32(maxAccounts)
	spec.Maps[waitsMapCounters].MaxEntries = uint32(w.cpus)
	spec.Maps[waitsMapPaces].MaxEntries = uint32(w.cpus * (paces + ownerPaces))
	spec.Maps[waitsMapBells] = setBells(spec.Maps[waitsMapBells])
	spec.Maps[waitsMapTargets].MaxEntries = uint32(w.sampler.options.MaxTargets)
	shared := ebpf.CollectionOptions{MapReplacements: w.sampler.sharedContexts()}
	if err := load(spec, &w.objects, shared); err != nil {
		return err
	}
	if w.counters, err = w.objects.Counters.Memory(); err != nil {
		return fmt.Errorf("mapping counters: %w", err)
	}
	if w.usages, err = w.objects.Usages.Memory(); err != nil {
		return fmt.Errorf("mapping usages: %w", err)
	}
	if w.owners, err = w.objects.Owners.Memory(); err != nil {
		return fmt.Errorf("mapping owners: %w", err)
	}
	if w.filters, err = canFilter(w.objects.Prepare); err != nil {
		return err
	}
	if !w.options.NoWalks {
		if w.walkless = w.openWalks(); w.walkless == nil { // what asks for walks comes after what makes them
			if err := w.objects.Walks.Set(true); err != nil {
				return fmt.Errorf("setting %s: %w", waitsVarWalks, err)
			}
		}
	}
	if err := w.sampler.table.follow(w); err != nil {
		return err
	}
	if w.options.Paused {
		return w.Pause()
	}
	return w.Resume()
}

// sharedContexts are the maps by which the programs of other objects know contexts.
func (s *Sampler) sharedContexts() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		samplerMapTargets: s.objects.Targets, samplerMapObi: s.objects.OBI, samplerMapGoLayouts: s.objects.GoLayouts,
	}
}

// Pause has the kernel do nothing for accounts until Resume. What was not drained can still be; what Close would
// lose is lost.
func (w *Waits) Pause() error {
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	if w.options.ByThread && len(w.links) > 0 {
		errs = append(errs, iterate(w.objects.Finish, everyProcess))
	}
	w.links = nil
	w.paused.Store(true)
	if w.walks != nil { // nobody asks for walks any more
		errs = append(errs, w.walks.detach())
	}
	return errors.Join(errs...)
}

// Resume has accounts kept of what threads do from now on, and the stacks of their waits walked.
func (w *Waits) Resume() (err error) {
	if len(w.links) > 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Pause())
		}
	}()
	if err := w.objects.Since.Set(Now()); err != nil {
		return fmt.Errorf("setting %s: %w", waitsVarSince, err)
	}
	if w.walks != nil {
		if err := w.walks.attach(w.options.hook); err != nil { // before what asks for walks
			return err
		}
	}
	for _, program := range []*ebpf.Program{w.objects.New, w.objects.Waking, w.objects.Switch} {
		if w.options.ByThread && program == w.objects.Waking {
			if err := iterate(w.objects.Begin, everyProcess); err != nil {
				return err
			}
			if w.options.begun != nil {
				w.options.begun()
			}
		}
		attached, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return fmt.Errorf("attaching: %w", err)
		}
		w.links = append(w.links, attached)
	}
	if err := w.objects.Attached.Set(Now()); err != nil {
		return fmt.Errorf("setting %s: %w", waitsVarAttached, err)
	}
	t := &w.sampler.table
	t.mu.Lock() // a target that is added meanwhile is prepared by who adds it: its threads count once
	defer t.mu.Unlock()
	w.paused.Store(false)
	return w.prepareAll()
}

// prepareAll prepares the threads of all targets that are accounted, and counts them: some have begun and ended
// meanwhile. The table must be locked.
func (w *Waits) prepareAll() error {
	w.owned.Store(true)
	return errors.Join(w.forgetThreads(), w.prepare(everyProcess, 0, 0))
}

// supportsWaits returns what the kernel lacks for accounts.
func supportsWaits() error {
	if err := ReadsInKernel(); err != nil {
		return err
	}
	types := shared.cache()
	kernel, err := kernelTypes(types)
	if err != nil {
		return err
	}
	missing := func(err error) error {
		return &MissingError{
			Feature: "a sched_switch tracepoint that tells the state of the thread that leaves a CPU",
			Remedy:  "boot Linux 6.1.36 or later", Err: err,
		}
	}
	var tracepoint *btf.Typedef
	if err := kernel.TypeByName("btf_trace_sched_switch", &tracepoint); err != nil {
		return missing(err)
	}
	pointer, _ := tracepoint.Type.(*btf.Pointer)
	if pointer == nil {
		return missing(errors.ErrUnsupported)
	}
	// The first parameter is the tracepoint's data. In the first releases of 5.18 the state came second.
	function, _ := pointer.Target.(*btf.FuncProto)
	if function == nil || len(function.Params) != 5 || !isPointer(function.Params[2].Type) {
		return missing(errors.ErrUnsupported)
	}
	return nil
}

func isPointer(t btf.Type) bool {
	_, is := btf.UnderlyingType(t).(*btf.Pointer)
	return is
}

// Close ends the accounts, and frees what OpenWaits allocated. What was not drained is lost, and what threads did
// in the last tenth of a second, or since they left their CPU.
func (w *Waits) Close() error {
	w.sampler.table.unfollow(w)
	errs := []error{w.Pause()}
	if w.walks != nil {
		errs = append(errs, w.walks.close())
	}
	if w.objects.Switch != nil {
		errs = append(errs, w.objects.Close())
	}
	return errors.Join(errs...)
}

// setOwner says whose share of the tables a target takes part in.
func (w *Waits) setOwner(target Target, owner uint32) error {
	of := waitsUsage{Owner: owner}
	if _, err := w.usages.WriteAt(asBytes(unsafe.Slice(&of, 1)), usageAt(uint32(uint16(target)))); err != nil {
		return fmt.Errorf("setting an owner: %w", err)
	}
	w.owned.Store(true)
	return nil
}

func usageAt(number uint32) int64 { return int64(number) * int64(unsafe.Sizeof(waitsUsage{})) }

// setThreads says how many threads an owner has.
func (w *Waits) setThreads(owner, threads uint32) error {
	at := int64(owner%owners)*int64(unsafe.Sizeof(waitsOwned{})) + int64(unsafe.Offsetof(waitsOwned{}.Begun))
	if _, err := w.owners.WriteAt(asBytes([]uint32{0, threads}), at); err != nil {
		return fmt.Errorf("setting threads of an owner: %w", err)
	}
	return nil
}

// forgetThreads has all threads counted anew. The table must be locked.
func (w *Waits) forgetThreads() error {
	var err error
	for target, owner := range w.sampler.table.ownerOf {
		err = errors.Join(err, w.setOwner(target, owner.number), w.setThreads(owner.number, 0))
	}
	return err
}

// addUpThreads says how many threads each owner has, if that may be another number.
func (w *Waits) addUpThreads() error {
	all, err := readEntry[waitsOwned](w.owners, owners)
	if err != nil {
		return fmt.Errorf("reading owners: %w", err)
	}
	t := &w.sampler.table
	if all.Begun == w.begun && !w.owned.Load() || !t.mu.TryLock() { // the next time
		return nil
	}
	defer t.mu.Unlock()
	w.begun = all.Begun
	w.owned.Store(false)
	return w.addUp(func(*targetOwner) bool { return true })
}

// addUp says how many threads owners have, of which each has a target. The table must be locked.
func (w *Waits) addUp(is func(*targetOwner) bool) error {
	sums := make(map[uint32]uint32)
	for target, owner := range w.sampler.table.ownerOf {
		if !is(owner) {
			continue
		}
		of, err := readEntry[waitsUsage](w.usages, int(uint16(target)))
		if err != nil {
			return fmt.Errorf("reading usages: %w", err)
		}
		sums[owner.number%owners] += of.Threads
	}
	for owner, sum := range sums {
		if err := w.setThreads(owner, sum); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the states of the threads that a process has, unless it is to be done later. That of a thread that
// begins later is made then. The process is that target, or 0: one that is in the table.
func (w *Waits) prepare(pid, tgid uint32, target Target) error {
	if w.paused.Load() {
		return nil
	}
	if !w.filters {
		pid = everyProcess
	}
	err := errors.Join(w.objects.Prepared.Set(uint32(target)), w.objects.PreparedProcess.Set(tgid))
	if err != nil {
		return fmt.Errorf("setting whose threads are prepared: %w", err)
	}
	return iterate(w.objects.Prepare, pid)
}

// iterate runs a program for each thread of a process, or of all.
func iterate(program *ebpf.Program, pid uint32) error {
	fd, err := openTaskIterator(program, pid)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Read(fd, make([]byte, 8)); err != nil {
		return fmt.Errorf("reading task iterator: %w", err)
	}
	return nil
}

// Counters returns the sums of all CPUs. It reads shared memory.
func (w *Waits) Counters() (total WaitCounters, err error) {
	for cpu := range w.cpus {
		c, err := w.readCPU(cpu)
		if err != nil {
			return total, err
		}
		total.Accounts += c.Stored
		total.Lost += c.Lost
		total.Unknown += c.Unknown
		total.Stateless += c.Stateless
		total.Unwoken += c.Unwoken
		total.Unseen += c.Unseen
		total.Walked += c.Walked
		total.Unasked += c.Unasked
		total.UnaskedNS += c.UnaskedNs
		total.Unrung += c.Unrung
		total.Missed += c.Missed
		total.Unfinished += c.Unfinished
		total.Unsent += c.Unsent
	}
	return total, nil
}

func (w *Waits) readCPU(cpu int) (perCPU waitsWaitCounters, err error) {
	if perCPU, err = readEntry[waitsWaitCounters](w.counters, cpu); err != nil {
		return perCPU, fmt.Errorf("reading counters: %w", err)
	}
	return perCPU, nil
}

// Drain calls yield with each account since the last call, and resets them, as [Sampler.Drain] does with
// counts: what is accounted meanwhile comes with the next call, and so does, after an error, what yield was
// not called with. The account of a thread comes a tenth of a second after the time that it is of, or later
// while the thread does not leave its CPU, or waits.
func (w *Waits) Drain(yield func(*Account)) error {
	if err := w.addUpThreads(); err != nil {
		return err
	}
	if w.unfinished {
		if err := w.empty(yield); err != nil {
			return err
		}
	}
	counters, err := w.Counters()
	if err != nil || counters.Accounts == w.stored {
		return err
	}
	if err := w.objects.Epoch.Set(w.epoch + 1); err != nil {
		return fmt.Errorf("swapping tables: %w", err)
	}
	w.epoch, w.unfinished = w.epoch+1, true
	w.stored = counters.Accounts // at least: what came since then may be in either table
	if err := awaitCounting(w.cpus, func(cpu int) (uint64, error) {
		perCPU, err := w.readCPU(cpu)
		return perCPU.Counting, err
	}); err != nil {
		return err
	}
	return w.empty(yield)
}

// DrainWalks calls yield with each wait whose stack was walked since the last call.
func (w *Waits) DrainWalks(yield func(*Walk)) error {
	if w.walks == nil {
		return nil
	}
	return w.walks.drain(yield)
}

// empty calls yield with the accounts of the table that is not active.
func (w *Waits) empty(yield func(*Account)) error {
	former := w.objects.A
	if w.epoch%2 == 0 {
		former = w.objects.B
	}
	err := w.batch.drain(former.FD(), unsafe.Pointer(&w.keys), unsafe.Pointer(&w.values), len(w.keys), func(n int) {
		for i := range n {
			account := newAccount(&w.keys[i], &w.values[i])
			yield(&account)
		}
	})
	if err != nil {
		return fmt.Errorf("draining accounts: %w", err)
	}
	w.unfinished = false
	return nil
}
