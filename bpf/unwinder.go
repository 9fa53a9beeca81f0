package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// ErrNoUnwinder reports that a target cannot be unwound because no [Unwinder] is set.
var ErrNoUnwinder = errors.New("no unwinder")

// An Unwinder is a chain of BPF programs of type perf_event that walks user stacks in place of the
// sampler's own walk. Each tail calls the next; the last is the sampler's, which counts what it
// finds in the record of its CPU. A chain that ends before costs the sample: UnwindingFailed.
type Unwinder struct {
	Entry   *ebpf.Program             // first program of the chain
	Records *ebpf.Map                 // per-CPU array of one entry: the record of the stack being walked
	Layout  RecordLayout              // of a record
	SetLast func(*ebpf.Program) error // makes the chain end in that program, which it must not close

	// The same chain of type raw_tracepoint, with the same records, for stacks of waits; nil: those are walked
	// by frame pointers.
	WaitEntry   *ebpf.Program
	SetWaitLast func(*ebpf.Program) error
	WaitError   error // why WaitEntry is nil
}

// RecordLayout are offsets in a record, in bytes, in the machine's byte order.
type RecordLayout struct {
	Words        uint32 // 8 bytes each: the kernel's addresses, then words of the user stack, both leaf first
	WordCount    uint32 // 2 bytes: how many words there are, with the kernel's
	KernelFrames uint32 // 2 bytes: how many of them are addresses of the kernel
	Error        uint32 // 4 bytes: why the stack is cut, 0: it is whole; not TooManyWords
	Size         uint32 // of the record, with room for 895 words: all that are kept, after 127 of the kernel
}

// check prevents reads beyond the record, which is smaller than the map's value at most.
func (l *RecordLayout) check(valueBytes uint32) error {
	const words = MaxFrames*8 + uint64(len(samplerStack{}.Addrs)*8)
	end := max(uint64(l.Words)+words, uint64(l.WordCount)+2, uint64(l.KernelFrames)+2, uint64(l.Error)+4)
	if end > uint64(l.Size) || l.Size > valueBytes {
		return fmt.Errorf("record layout %+v reaches to %d, values have %d bytes", *l, end, valueBytes)
	}
	return nil
}

// SetUnwinder replaces the unwinder. No target is unwound until [Sampler.Unwind] says so; targets
// of a former unwinder are not any more. nil is no unwinder, and always possible. After an error
// there is none.
//
// It loads a program for the chain, which takes some 40 ms. A sample that is in the former chain
// meanwhile is counted as if it were still set. What is in u is the caller's to close, after it was
// replaced; as long as the chain exists, so do the sampler's tables.
func (s *Sampler) SetUnwinder(u *Unwinder) error {
	s.unwinding.Lock()
	defer s.unwinding.Unlock()
	if err := s.removeUnwinder(); err != nil {
		return fmt.Errorf("removing unwinder: %w", err)
	}
	if u == nil {
		return nil
	}
	if err := s.setUnwinder(u); err != nil {
		return fmt.Errorf("setting unwinder: %w", err)
	}
	return nil
}

// Keys of the map unwinder; waits have the first alone.
const (
	firstOfChain = uint32(0)
	walker       = uint32(1)
	labelReader  = uint32(2)
)

func (s *Sampler) removeUnwinder() error {
	return errors.Join(s.table.setUnwinder(false), ignoreMissing(s.objects.Unwinder.Delete(firstOfChain)),
		s.table.setWaitUnwinder(nil))
}

func (s *Sampler) setUnwinder(u *Unwinder) error {
	if err := u.Layout.check(u.Records.ValueSize()); err != nil {
		return err
	}
	last, err := s.loadLast(u)
	if err != nil {
		return fmt.Errorf("loading last program: %w", err)
	}
	defer last.Close() // the chain keeps it
	if err := u.SetLast(last); err != nil {
		return err
	}
	if err := s.objects.Unwinder.Put(firstOfChain, u.Entry); err != nil {
		return err
	}
	_ = s.table.setWaitUnwinder(u) // samples are unwound all the same: see Chainless
	return s.table.setUnwinder(true)
}

// SetWaitUnwinder has the stacks of waits walked as an unwinder says, until the next SetUnwinder: of the targets that
// are unwound, by its chain for them; without one, by frame pointers. So they are after an error: see
// [Sampler.Chainless].
func (s *Sampler) SetWaitUnwinder(u *Unwinder) error {
	s.unwinding.Lock()
	defer s.unwinding.Unlock()
	return s.table.setWaitUnwinder(u)
}

// Chainless returns why the unwinder walks no stacks of waits though it walks others, nil if there is none, or it
// does. They are walked by frame pointers then. It may be called by any goroutine.
func (s *Sampler) Chainless() error {
	t := &s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == nil {
		return nil
	}
	return t.waits.chainless
}

// loadLast loads the last program of a chain.
func (s *Sampler) loadLast(u *Unwinder) (*ebpf.Program, error) {
	spec, err := s.newSpec(int(s.objects.Counters.MaxEntries()))
	if err != nil {
		return nil, err
	}
	if err := SetVariables(spec, map[string]any{samplerVarLayout: u.Layout}); err != nil {
		return nil, err
	}
	records := spec.Maps[samplerMapRecords]
	records.ValueSize, records.Value = u.Records.ValueSize(), nil
	unwound, err := s.unwoundTable(spec)
	if err != nil {
		return nil, err
	}
	var programs struct {
		CountUnwound *ebpf.Program `ebpf:"count_unwound"`
	}
	shared := s.sharedTables()
	shared[samplerMapUnwoundStacks], shared[samplerMapRecords] = unwound.stacks, u.Records
	err = load(spec, &programs, ebpf.CollectionOptions{MapReplacements: shared})
	return programs.CountUnwound, err
}

// sharedTables are those of the sampler that further programs of it may use.
func (s *Sampler) sharedTables() map[string]*ebpf.Map {
	o := &s.objects
	return map[string]*ebpf.Map{
		samplerMapCounters: o.Counters, samplerMapCountsA: o.CountsA, samplerMapCountsB: o.CountsB,
		samplerMapAttributesA: o.AttributesA, samplerMapAttributesB: o.AttributesB, samplerMapEvents: o.Events,
		samplerMapScratch: o.Scratch, samplerMapStacks: o.Stacks, samplerMapUnwinder: o.Unwinder,
		".bss": o.Variables, ".rodata": o.Constants,
	}
}

// unwoundTable returns the table of unwound stacks. It is kept from the first unwinder on: counts of
// a former one still refer to stacks in it.
func (s *Sampler) unwoundTable(spec *ebpf.CollectionSpec) (*stackTable, error) {
	if table := s.unwound.Load(); table != nil {
		return table, nil
	}
	var stacks *ebpf.Map
	err := Permitted(func() (err error) {
		stacks, err = ebpf.NewMap(spec.Maps[samplerMapUnwoundStacks])
		return err
	})
	if err != nil {
		return nil, err
	}
	table := newStackTable(stacks, &s.retained)
	s.unwound.Store(table)
	return table, nil
}

// Unwind sets whether stacks of a target are walked by the [Unwinder], which must know the process.
// They are not at first, nor after an exec, which makes it another target. [ErrNoUnwinder] is only
// for on. A target that was replaced or removed before is not an error.
func (s *Sampler) Unwind(target Target, on bool) error {
	if err := s.table.unwind(target, on); err != nil {
		return fmt.Errorf("unwinding target: %w", err)
	}
	return nil
}
