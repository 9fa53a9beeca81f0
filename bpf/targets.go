package bpf

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"correlator/tlsdesc"
)

// errTooManyTargets reports that the table has no room for another target.
var errTooManyTargets = errors.New("too many targets")

// A Target identifies a process whose samples are correlated. A sampler never reuses one.
type Target uint32

// SetTarget makes a process a target, or changes its rules: a process that is a target already, with
// the same identity, keeps its Target. Another identity of the same process replaces the former.
//
// The rules must have been resolved after [Sampler.Identify] returned the identity. Then they are
// never applied to another program than their own, whenever the process exits or execs. Labels that
// cannot be read, as there is no room for their layout, are as if there were none: see SideCounters.
func (s *Sampler) SetTarget(identity ExecID, rules TargetRules) (Target, error) {
	if rules.Labels != (GoLayout{}) && s.LoadLabels() != nil {
		s.table.layouts.unread.Add(1)
		rules.Labels = GoLayout{}
	}
	target, err := s.table.set(identity, rules)
	if err != nil {
		return 0, fmt.Errorf("setting target: %w", err)
	}
	return target, nil
}

// TargetRules are where the threads of a target have what they work on. A zero rule is none.
//
// With both, a sample whose slot has no sampled trace has the context of the record, if there is one,
// and else is what it would be without the record. With neither, all samples are NoSlot.
type TargetRules struct {
	Elastic tlsdesc.Rule // of the pointer to a slot of Elastic's library
	OTel    tlsdesc.Rule // of the pointer to a record of OpenTelemetry's otel_thread_ctx_v1

	// Keys are the attributes of OTel's records that are wanted, at most MaxKeys, by index in the key
	// map of the process; KnownKeys is how many that has, those above 256 without meaning.
	Keys      []uint8
	KnownKeys int

	// Labels is where goroutines have labels: the context of a thread that has no other, in the form of a record's.
	// See [Sampler.LoadLabels].
	Labels GoLayout

	// Unseen: labels may be of no tracer. Without another rule, waits are accounted from SawTrace on.
	Unseen bool

	// Owner is a user or a container, whose targets share bounds of accounts of waits. Targets without share one, too.
	Owner string
}

// RemoveTarget removes a target. Its earlier samples can still be drained. A target that was
// replaced or removed before is not an error.
func (s *Sampler) RemoveTarget(target Target) error {
	if err := s.table.remove(target); err != nil {
		return fmt.Errorf("removing target: %w", err)
	}
	return nil
}

// targetTable is the table of struct correlator_target.
type targetTable struct {
	mu          sync.Mutex
	table       *ebpf.Map
	filter      *ebpf.Variable // target_filter of sampler.bpf.c
	bits        filterBits     // its contents, except for bits of targets that could not be added
	waits       *Waits         // nil: there are no accounts
	accounted   filterBits     // the contents of their filter
	all         bool           // any target may have contexts: OBI's
	unwound     *ebpf.Variable // unwound_targets of sampler.bpf.c
	unwoundBits filterBits     // its contents
	unwinds     bool           // there is an unwinder
	byTGID      map[uint32]*targetEntry
	tgids       map[Target]uint32
	ids         filterBits // of the targets in tgids
	owners      map[string]*targetOwner
	ownerOf     map[Target]*targetOwner
	numbers     filterBits // of owners
	last        Target
	layouts     goLayouts
}

type targetEntry struct {
	identity  ExecID
	target    Target
	contexts  bool // it may have some
	accounted bool // the accounts' filter lets it through, and its threads are prepared
}

// targetOwner is an owner of targets.
type targetOwner struct {
	name    string
	number  uint32
	targets int
}

// filterBits has a bit by the lowest 16 bits of a number, as target_filter and unwound_targets.
type filterBits [1 << 10]uint64

func (b *filterBits) word(n uint32) *uint64 { return &b[n/64%uint32(len(b))] }
func (b *filterBits) set(n uint32)          { *b.word(n) |= 1 << (n % 64) }
func (b *filterBits) clear(n uint32)        { *b.word(n) &^= 1 << (n % 64) }
func (b *filterBits) has(n uint32) bool     { return *b.word(n)&(1<<(n%64)) != 0 }

// open empties the table, which may be that of an earlier sampler.
func (t *targetTable) open(objects *samplingObjects) error {
	t.table, t.filter, t.unwound = objects.Targets, objects.TargetFilter, objects.UnwoundTargets
	t.layouts.table = objects.GoLayouts
	t.byTGID = make(map[uint32]*targetEntry)
	t.tgids = make(map[Target]uint32)
	t.owners, t.ownerOf = make(map[string]*targetOwner), make(map[Target]*targetOwner)
	return t.clear()
}

func (t *targetTable) clear() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.byTGID)
	clear(t.tgids)
	clear(t.owners)
	clear(t.ownerOf)
	t.layouts.clear()
	t.ids, t.numbers = filterBits{}, filterBits{}
	if err := EmptyTable(t.table); err != nil {
		return err
	}
	return t.setFilter()
}

// EmptyTable deletes all entries of a table, into which nobody puts others meanwhile.
func EmptyTable(table *ebpf.Map) error {
	key := make([]byte, table.KeySize())
	for range 2 * uint64(table.MaxEntries()) {
		err := table.NextKey(nil, &key)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err == nil {
			err = ignoreMissing(table.Delete(key))
		}
		if err != nil {
			return fmt.Errorf("emptying %s: %w", table, err)
		}
	}
	return fmt.Errorf("%s is filled while it is emptied", table)
}

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// set returns 0 if the table does not have the rules.
func (t *targetTable) set(identity ExecID, rules TargetRules) (Target, error) {
	value, err := newCorrelatorTarget(identity, rules)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	value.Labels = t.layouts.take(rules.Labels, rules.Owner)
	target, err := t.put(identity, &rules, value)
	if target == 0 {
		t.layouts.release(value.Labels)
	} else {
		t.layouts.assign(target, value.Labels, rules.Labels, rules.Owner)
	}
	t.retryLayouts()
	return target, err
}

func (t *targetTable) put(identity ExecID, rules *TargetRules, value samplerCorrelatorTarget) (target Target,
	err error) {
	entry := t.byTGID[identity.tgid]
	if entry == nil || entry.identity != identity {
		entry = &targetEntry{identity: identity, target: t.nextID()}
	}
	value.Id = uint32(entry.target)
	value.Check = checkSum(&value)
	former := t.byTGID[identity.tgid]
	if former != entry {
		defer func() {
			if err != nil && t.byTGID[identity.tgid] != entry { // it is not in the table
				t.forgetOwner(entry.target)
			}
		}()
		if err := t.setOwner(entry.target, rules.Owner); err != nil {
			return 0, err
		}
	}
	t.bits.set(identity.tgid)
	entry.contexts = entry.contexts || value.Elastic.Kind != 0 || value.Otel.Kind != 0 ||
		rules.Labels != (GoLayout{}) && !rules.Unseen
	if err := t.account(entry); err != nil {
		return 0, err
	}
	err = t.table.Put(&identity.tgid, &value)
	if errors.Is(err, unix.E2BIG) {
		return 0, fmt.Errorf("%w: the table holds %d", errTooManyTargets, t.table.MaxEntries())
	}
	if err != nil {
		return 0, err
	}
	t.byTGID[identity.tgid] = entry
	t.tgids[entry.target] = identity.tgid
	t.ids.set(uint32(entry.target))
	if former != nil && former != entry {
		err = t.forget(former.target)
	}
	return entry.target, err
}

// setOwner says whose a new target is.
func (t *targetTable) setOwner(target Target, name string) error {
	owner := t.owners[name]
	if owner == nil {
		owner = &targetOwner{name: name}
		for t.numbers.has(owner.number) { // there are no more owners than targets
			owner.number++
		}
		t.numbers.set(owner.number)
		t.owners[name] = owner
	}
	owner.targets++
	t.ownerOf[target] = owner
	if t.waits == nil {
		return nil
	}
	// Its number may have been another's, and others of its targets may be gone.
	return errors.Join(t.waits.setOwner(target, owner.number),
		t.waits.addUp(func(of *targetOwner) bool { return of == owner }))
}

func (t *targetTable) forgetOwner(target Target) {
	owner := t.ownerOf[target]
	delete(t.ownerOf, target)
	if owner.targets--; owner.targets == 0 {
		delete(t.owners, owner.name)
		t.numbers.clear(owner.number)
	}
	if t.waits != nil {
		t.waits.owned.Store(true)
	}
}

// nextID returns an id that was never given, and has another bit than those of the present targets,
// which are fewer than there are bits.
func (t *targetTable) nextID() Target {
	for t.last++; t.ids.has(uint32(t.last)); t.last++ {
	}
	return t.last
}

// forget is for a target that is in the kernel's table no more.
func (t *targetTable) forget(target Target) error {
	delete(t.tgids, target)
	t.layouts.forget(target)
	t.ids.clear(uint32(target))
	t.forgetOwner(target)
	if !t.unwoundBits.has(uint32(target)) {
		return nil
	}
	t.unwoundBits.clear(uint32(target))
	return t.setUnwound()
}

func (t *targetTable) remove(target Target) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	tgid, ok := t.tgids[target]
	if !ok {
		return nil
	}
	if err := ignoreMissing(t.table.Delete(&tgid)); err != nil {
		return err
	}
	delete(t.byTGID, tgid)
	err := t.forget(target)
	t.retryLayouts()
	return errors.Join(err, t.setFilter())
}

// setUnwinder says whether there is an unwinder. It is no target's yet.
func (t *targetTable) setUnwinder(there bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unwinds = there
	t.unwoundBits = filterBits{}
	return t.setUnwound()
}

// setUnwound gives the bits of unwound targets to all programs that have some.
func (t *targetTable) setUnwound() error {
	err := t.unwound.Set(&t.unwoundBits)
	if t.waits != nil {
		err = errors.Join(err, t.waits.setUnwound(&t.unwoundBits))
	}
	return err
}

// setWaitUnwinder has stacks of waits walked by an unwinder, or, with nil, not any more.
func (t *targetTable) setWaitUnwinder(u *Unwinder) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == nil {
		return nil
	}
	err := errors.Join(t.waits.setUnwinder(u), t.waits.setUnwound(&t.unwoundBits))
	if err != nil {
		t.waits.chainless = err
	}
	return err
}

func (t *targetTable) unwind(target Target, on bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, present := t.tgids[target]; !present || !on && !t.unwinds {
		return nil
	}
	if !t.unwinds {
		return ErrNoUnwinder
	}
	if on {
		t.unwoundBits.set(uint32(target))
	} else {
		t.unwoundBits.clear(uint32(target))
	}
	return t.setUnwound()
}

// setFilter computes the filter from the present targets.
func (t *targetTable) setFilter() error {
	t.bits, t.accounted = filterBits{}, filterBits{}
	for tgid, entry := range t.byTGID {
		t.bits.set(tgid)
		if entry.accounted {
			t.accounted.set(tgid)
		}
	}
	return t.setBits()
}

// setBits gives the filters to all programs that have one.
func (t *targetTable) setBits() error {
	err := t.filter.Set(&t.bits)
	if t.waits != nil {
		err = errors.Join(err, t.waits.objects.Filter.Set(&t.accounted))
	}
	return err
}

// MaxKeys is how many attributes of a target can be wanted.
const MaxKeys = len(samplerCorrelatorTarget{}.AttributeKeys)

// maxKnownKeys is how many keys of a process can be told apart: an index is a byte.
const maxKnownKeys = 1 << 8

// newCorrelatorTarget returns the entry of the table without id and check.
func newCorrelatorTarget(identity ExecID, rules TargetRules) (target samplerCorrelatorTarget, err error) {
	target = samplerCorrelatorTarget{
		StartTime: identity.StartTime, ExecId: identity.execID, Memory: identity.memory,
		Pid: uint32(identity.PID), Level: identity.level,
		KnownKeys: uint16(min(max(rules.KnownKeys, 0), maxKnownKeys)), AttributeCount: uint8(len(rules.Keys)),
	}
	if target.Elastic, err = newCorrelatorRule(rules.Elastic); err == nil {
		target.Otel, err = newCorrelatorRule(rules.OTel)
	}
	if err != nil {
		return target, fmt.Errorf("process %d: %w", identity.PID, err)
	}
	if len(rules.Keys) > MaxKeys {
		return target, fmt.Errorf("process %d: %d wanted keys, of at most %d", identity.PID, len(rules.Keys), MaxKeys)
	}
	for i, key := range rules.Keys {
		if uint16(key) >= target.KnownKeys {
			return target, fmt.Errorf("process %d: key %d is wanted of %d", identity.PID, key, target.KnownKeys)
		}
		target.AttributeKeys[i] = key
	}
	return target, nil
}

// newCorrelatorRule returns a rule as the program has it.
func newCorrelatorRule(rule tlsdesc.Rule) (samplerCorrelatorRule, error) {
	kind := samplerCorrelatorKindCORRELATOR_DTV
	switch rule.Kind {
	case 0:
		return samplerCorrelatorRule{}, nil
	case tlsdesc.Static:
		kind = samplerCorrelatorKindCORRELATOR_STATIC
	case tlsdesc.Dynamic, tlsdesc.DTPMod:
	default:
		return samplerCorrelatorRule{}, fmt.Errorf("unknown rule %v", rule.Kind)
	}
	return samplerCorrelatorRule{
		Offset: rule.Offset, Module: rule.Module, Generation: rule.Generation,
		DtvOffset: rule.DTVOffset, DtvStride: rule.DTVStride, DtvCapacityOffset: rule.DTVCapacityOffset,
		Kind: uint32(kind),
	}, nil
}

// checkSum is correlator_check of correlator.h.
func checkSum(target *samplerCorrelatorTarget) uint64 {
	words := (*[unsafe.Sizeof(*target) / 8]uint64)(unsafe.Pointer(target))
	sums := [2]uint64{0xcbf29ce484222325, ^uint64(0xcbf29ce484222325)}
	for i, word := range words[:len(words)-1] {
		sum := (sums[i%2] ^ word) * 0x100000001b3
		sums[i%2] = sum ^ sum>>32
	}
	return sums[0] ^ sums[1]
}
