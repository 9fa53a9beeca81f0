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

// SetTarget makes a process a target, or changes its rule: a process that is a target already, with
// the same identity, keeps its Target. Another identity of the same process replaces the former.
//
// The rule must have been resolved after [Sampler.Identify] returned the identity. Then it is never
// applied to another program than its own, whenever the process exits or execs.
func (s *Sampler) SetTarget(identity ExecID, rule tlsdesc.Rule) (Target, error) {
	target, err := s.table.set(identity, rule)
	if err != nil {
		return 0, fmt.Errorf("setting target: %w", err)
	}
	return target, nil
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
	mu     sync.Mutex
	table  *ebpf.Map
	filter *ebpf.Variable // target_filter of sampler.bpf.c
	bits   filterBits     // its contents, except for bits of targets that could not be added
	byTGID map[uint32]*targetEntry
	tgids  map[Target]uint32
	last   Target
}

type targetEntry struct {
	identity ExecID
	target   Target
}

// filterBits has the bits of target_filter.
type filterBits [1 << 10]uint64

func (b *filterBits) set(tgid uint32) { b[tgid/64%uint32(len(b))] |= 1 << (tgid % 64) }

// open empties the table, which may be that of an earlier sampler.
func (t *targetTable) open(table *ebpf.Map, filter *ebpf.Variable) error {
	t.table, t.filter = table, filter
	t.byTGID = make(map[uint32]*targetEntry)
	t.tgids = make(map[Target]uint32)
	return t.clear()
}

func (t *targetTable) clear() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.byTGID)
	clear(t.tgids)
	if err := emptyTable(t.table); err != nil {
		return err
	}
	return t.setFilter()
}

func emptyTable(table *ebpf.Map) error {
	var tgid uint32
	for {
		err := table.NextKey(nil, &tgid)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err == nil {
			err = ignoreMissing(table.Delete(&tgid))
		}
		if err != nil {
			return fmt.Errorf("emptying target table: %w", err)
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

func (t *targetTable) set(identity ExecID, rule tlsdesc.Rule) (Target, error) {
	value, err := newCorrelatorTarget(identity, rule)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.byTGID[identity.tgid]
	if entry == nil || entry.identity != identity {
		t.last++
		entry = &targetEntry{identity: identity, target: t.last}
	}
	value.Id = uint32(entry.target)
	value.Check = checkSum(&value)
	t.bits.set(identity.tgid)
	if err := t.filter.Set(&t.bits); err != nil {
		return 0, err
	}
	err = t.table.Put(&identity.tgid, &value)
	if errors.Is(err, unix.E2BIG) {
		return 0, fmt.Errorf("%w: the table holds %d", errTooManyTargets, t.table.MaxEntries())
	}
	if err != nil {
		return 0, err
	}
	if former := t.byTGID[identity.tgid]; former != nil {
		delete(t.tgids, former.target)
	}
	t.byTGID[identity.tgid] = entry
	t.tgids[entry.target] = identity.tgid
	return entry.target, nil
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
	delete(t.tgids, target)
	return t.setFilter()
}

// setFilter computes the filter from the present targets.
func (t *targetTable) setFilter() error {
	t.bits = filterBits{}
	for tgid := range t.byTGID {
		t.bits.set(tgid)
	}
	return t.filter.Set(&t.bits)
}

// newCorrelatorTarget returns the entry of the table without id and check.
func newCorrelatorTarget(identity ExecID, rule tlsdesc.Rule) (samplerCorrelatorTarget, error) {
	kind := samplerCorrelatorKindCORRELATOR_DTV
	switch rule.Kind {
	case tlsdesc.Static:
		kind = samplerCorrelatorKindCORRELATOR_STATIC
	case tlsdesc.Dynamic, tlsdesc.DTPMod:
	default:
		return samplerCorrelatorTarget{}, fmt.Errorf("process %d: no rule", identity.PID)
	}
	return samplerCorrelatorTarget{
		StartTime: identity.StartTime, ExecId: identity.execID, Memory: identity.memory,
		Offset: rule.Offset, Module: rule.Module, Generation: rule.Generation,
		DtvOffset: rule.DTVOffset, DtvStride: rule.DTVStride, DtvCapacityOffset: rule.DTVCapacityOffset,
		Pid: uint32(identity.PID), Level: identity.level, Kind: uint32(kind),
	}, nil
}

// checkSum is correlator_check of correlator.h.
func checkSum(target *samplerCorrelatorTarget) uint64 {
	words := (*[unsafe.Sizeof(*target) / 8]uint64)(unsafe.Pointer(target))
	sum := uint64(0xcbf29ce484222325)
	for _, word := range words[:len(words)-1] {
		sum = (sum ^ word) * 0x100000001b3
		sum ^= sum >> 32
	}
	return sum
}
