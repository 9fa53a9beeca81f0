package bpf

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
)

// A LabelRole is what a label of runtime/pprof says of the goroutine that has it.
type LabelRole uint32

// The roles. A span's id, and that of the first span of the trace in the process, are in hexadecimal
// (16 digits) or in decimal; a trace's has 32 hexadecimal digits.
const (
	TraceIDLabel     = LabelRole(samplerGoRoleGO_TRACE_ID)
	SpanIDLabel      = LabelRole(samplerGoRoleGO_SPAN_ID)
	SpanDecimalLabel = LabelRole(samplerGoRoleGO_SPAN_DECIMAL)
	RootIDLabel      = LabelRole(samplerGoRoleGO_ROOT_ID)
	RootDecimalLabel = LabelRole(samplerGoRoleGO_ROOT_DECIMAL)
	NameLabel        = LabelRole(samplerGoRoleGO_NAME)
)

// A LabelKey is the key of a label that is read.
type LabelKey struct {
	Key  string // of 1 to MaxLabelKeyBytes bytes
	Role LabelRole
}

// MaxLabelKeys is how many keys of labels are read.
const MaxLabelKeys = 8

// MaxLabelKeyBytes is how long they are at most.
const MaxLabelKeyBytes = len(samplerGoKey{}.Text)*8 - 1

// LabelAttributes are the keys of attributes that labels can become, in the order of their numbers
// in [Count].Attributes where [Count].OfLabels.
var LabelAttributes = []string{
	samplerGoAttributeGO_ROOT_ATTRIBUTE: "datadog.local_root_span_id",
	samplerGoAttributeGO_SPAN_ATTRIBUTE: "datadog.span_id", // where there is no trace id
	samplerGoAttributeGO_NAME_ATTRIBUTE: "span_name",
}

// A GoLayout is where a Go program has the labels of the goroutine that a thread runs: offsets in its
// runtime's structures. The zero value is none.
type GoLayout struct {
	// G is where the thread has the pointer to a runtime.g, from the thread pointer; 0 on arm64: in a
	// register.
	G                      int64
	GM, GLabels            uint16 // g.m and g.labels
	MProcID, MCurG, MExtra uint16 // m.procid, m.curg and m.isExtraInC
	Map                    bool   // labels are a map, as up to Go 1.23; else a slice
}

var errLabelKeys = errors.New("keys of labels")

// newGoKeys returns the keys as the program has them.
func newGoKeys(keys []LabelKey) (encoded [MaxLabelKeys]samplerGoKey, err error) {
	if len(keys) > len(encoded) {
		return encoded, fmt.Errorf("%w: %d, at most %d", errLabelKeys, len(keys), len(encoded))
	}
	for i, key := range keys {
		text := asBytes(encoded[i].Text[:])
		if key.Key == "" || len(key.Key) > MaxLabelKeyBytes || key.Role == 0 || key.Role > NameLabel {
			return encoded, fmt.Errorf("%w: %q with role %d", errLabelKeys, key.Key, key.Role)
		}
		copy(text, key.Key)
		encoded[i].Length, encoded[i].Role = uint32(len(key.Key)), uint32(key.Role)
	}
	return encoded, nil
}

// keyLengths returns go_key_lengths of golabels.h.
func keyLengths(keys []LabelKey) (bits uint32) {
	for _, key := range keys {
		bits |= 1 << len(key.Key)
	}
	return bits
}

// setLabels has the programs of an object read the labels of goroutines that are to be read.
func (s *Sampler) setLabels(spec *ebpf.CollectionSpec) error {
	keys, err := newGoKeys(s.options.Labels)
	if err != nil {
		return err
	}
	return errors.Join(
		spec.Variables[samplerVarGoKeys].Set(keys),
		spec.Variables[samplerVarGoKeyLengths].Set(keyLengths(s.options.Labels)),
		spec.Variables[samplerVarGoAttributes].Set(wantedLabels(s.options.Attributes)),
	)
}

// wantedLabels returns go_attributes of golabels.h.
func wantedLabels(attributes []string) (bits uint32) {
	for i, key := range LabelAttributes {
		if slices.Contains(attributes, key) {
			bits |= 1 << i
		}
	}
	return bits
}

// labels is the part of the sampler that reads labels of goroutines. It is loaded for the first target
// that has some.
type labels struct {
	mu    sync.Mutex
	tried bool
	err   error // why they cannot be read
}

// LoadLabels loads what reads labels of goroutines, unless that was tried before. The error is why
// [TargetRules].Labels have no effect.
func (s *Sampler) LoadLabels() error {
	l := &s.labels
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tried {
		l.tried, l.err = true, s.loadLabels()
	}
	return l.err
}

func (s *Sampler) loadLabels() error {
	if len(s.options.Labels) == 0 {
		return fmt.Errorf("%w: none", errLabelKeys)
	}
	spec, err := s.newSpec(int(s.objects.Counters.MaxEntries()))
	if err != nil {
		return err
	}
	var programs struct {
		ReadLabels *ebpf.Program `ebpf:"read_labels"`
	}
	shared := s.sharedTables()
	shared[samplerMapObi], shared[samplerMapGoLayouts] = s.objects.OBI, s.objects.GoLayouts
	err = load(spec, &programs, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return fmt.Errorf("loading what reads labels: %w", err)
	}
	defer programs.ReadLabels.Close() // the map keeps it
	return s.objects.Unwinder.Put(labelReader, programs.ReadLabels)
}

// goLayouts are the layouts of the targets' programs, by their number in correlator_target.labels. The
// lock of the table of targets guards all but unread.
type goLayouts struct {
	table   *ebpf.Map            // go_layouts of golabels.h
	slots   [1 << 8]goLayoutSlot // [0] stays empty
	of      map[Target]uint8
	refused map[Target]refusedLayout
	freed   bool          // there may be room for some of these
	unread  atomic.Uint64 // see SideCounters
}

// refusedLayout is what there was no room for.
type refusedLayout struct {
	layout GoLayout
	owner  string
}

// goLayoutSlot is a layout, which stays after its last target until there is no room.
type goLayoutSlot struct {
	layout  GoLayout
	owner   string // of the first of its targets
	targets int
}

// maxOwnerLayouts is how many layouts the targets of an owner can have that no others had before: a
// process says itself where it has its g, and must not take the room of others'.
const maxOwnerLayouts = 16

func (l *goLayouts) clear() {
	l.slots = [1 << 8]goLayoutSlot{}
	l.of, l.refused = make(map[Target]uint8), make(map[Target]refusedLayout)
}

// take returns the number of a layout for another target, to be released: 0 for none, or if there is
// no room for it, which is counted.
func (l *goLayouts) take(layout GoLayout, owner string) uint8 {
	if layout == (GoLayout{}) {
		return 0
	}
	number := l.find(layout, owner)
	if number == 0 {
		l.unread.Add(1)
	}
	return number
}

// find is take without counting.
func (l *goLayouts) find(layout GoLayout, owner string) uint8 {
	owned, number := 0, 0
	for i := range l.slots {
		slot := &l.slots[i]
		if slot.targets > 0 && slot.owner == owner {
			owned++
		}
		if slot.layout == layout {
			number = i
		}
	}
	if number == 0 || l.slots[number].targets == 0 {
		switch {
		case owned >= maxOwnerLayouts:
			number = 0
		case number == 0:
			number = l.add(layout)
		}
	}
	if number == 0 {
		return 0
	}
	slot := &l.slots[number]
	if slot.targets == 0 {
		slot.owner = owner
	}
	slot.targets++
	return uint8(number)
}

// add puts a layout where there is none, and returns the number; 0: there is no room.
func (l *goLayouts) add(layout GoLayout) int {
	isFree := func(slot goLayoutSlot) bool { return slot.layout == GoLayout{} }
	number := slices.IndexFunc(l.slots[1:], isFree) + 1
	if number == 0 {
		isIdle := func(slot goLayoutSlot) bool { return slot.targets == 0 }
		if !slices.ContainsFunc(l.slots[1:], isIdle) || awaitPrograms() != nil {
			return 0
		}
		for i := range l.slots {
			if l.slots[i].targets == 0 {
				l.slots[i] = goLayoutSlot{}
			}
		}
		if number = slices.IndexFunc(l.slots[1:], isFree) + 1; number == 0 {
			return 0
		}
	}
	encoded := newGoLayout(layout)
	if l.table.Put(uint32(number), &encoded) != nil {
		return 0
	}
	l.slots[number] = goLayoutSlot{layout: layout}
	return number
}

// assign has a target, which may have had another layout, have a layout that was taken for it; with 0, one that was
// refused is tried again by retryLayouts.
func (l *goLayouts) assign(target Target, number uint8, layout GoLayout, owner string) {
	l.forget(target)
	l.of[target] = number
	if number == 0 && layout != (GoLayout{}) {
		l.refused[target] = refusedLayout{layout, owner}
	}
}

func (l *goLayouts) release(number uint8) {
	if number > 0 {
		l.slots[number].targets--
		l.freed = l.freed || l.slots[number].targets == 0
	}
}

// forget is for a target that is in the kernel's table no more.
func (l *goLayouts) forget(target Target) {
	l.release(l.of[target])
	delete(l.of, target)
	delete(l.refused, target)
}

// retryLayouts has labels of targets read whose layout was refused, if there may be room by now.
func (t *targetTable) retryLayouts() {
	l := &t.layouts
	if !l.freed {
		return
	}
	l.freed = false
	for target, of := range l.refused {
		number := l.find(of.layout, of.owner)
		if number == 0 {
			continue
		}
		tgid := t.tgids[target]
		var value samplerCorrelatorTarget
		err := t.table.Lookup(&tgid, &value)
		if err == nil {
			value.Labels = number
			value.Check = checkSum(&value)
			err = t.table.Put(&tgid, &value)
		}
		if err != nil { // the next time
			l.release(number)
			return
		}
		l.assign(target, number, of.layout, of.owner)
	}
}

// awaitPrograms waits until no program runs any more that runs now: a program is an RCU reader. The kernel waits for
// those when a map in a map is replaced; membarrier(2) does not on hosts with nohz_full.
func awaitPrograms() error {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		InnerMap: inner})
	if err != nil {
		return fmt.Errorf("waiting for programs in the kernel: %w", err)
	}
	defer outer.Close()
	value, err := ebpf.NewMap(inner)
	if err != nil {
		return fmt.Errorf("waiting for programs in the kernel: %w", err)
	}
	defer value.Close()
	if err := outer.Put(uint32(0), value); err != nil {
		return fmt.Errorf("waiting for programs in the kernel: %w", err)
	}
	return nil
}

func newGoLayout(l GoLayout) samplerGoLayout {
	form := samplerGoLabelsFormGO_LABELS_SLICE
	if l.Map {
		form = samplerGoLabelsFormGO_LABELS_MAP
	}
	return samplerGoLayout{G: l.G, G_m: l.GM, G_labels: l.GLabels, M_procid: l.MProcID, M_curg: l.MCurG,
		M_extra: l.MExtra, Form: uint8(form)}
}
