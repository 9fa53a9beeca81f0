package bpf

import (
	"errors"
	"fmt"
	"slices"
	"sync"

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
// in [Count].Attributes.
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

var (
	errLabelKeys   = errors.New("keys of labels")
	errManyLayouts = errors.New("too many layouts of Go programs")
)

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
	mu      sync.Mutex
	tried   bool
	err     error // why they cannot be read
	layouts []GoLayout
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
	shared := &s.objects.sharedMaps
	err = load(spec, &programs, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
		samplerMapCounters: shared.Counters,
		samplerMapScratch:  shared.Scratch,
		samplerMapUnwinder: s.objects.Unwinder,
		".bss":             shared.Variables,
		".rodata":          shared.Constants,
	}})
	if err != nil {
		return fmt.Errorf("loading what reads labels: %w", err)
	}
	defer programs.ReadLabels.Close() // the map keeps it
	return s.objects.Unwinder.Put(labelReader, programs.ReadLabels)
}

// layout returns the number of a layout, for correlator_target.labels: 0 for none, or if there can be
// none. Layouts are few, and stay: one for each version of Go, and place of g.
func (s *Sampler) layout(layout GoLayout) (uint8, error) {
	if layout == (GoLayout{}) {
		return 0, nil
	}
	if err := s.LoadLabels(); err != nil {
		return 0, err
	}
	l := &s.labels
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.layouts, layout); i >= 0 {
		return uint8(i + 1), nil
	}
	var encoded [1 << 8]samplerGoLayout
	if len(l.layouts)+1 == len(encoded) {
		return 0, errManyLayouts
	}
	layouts := append(slices.Clip(l.layouts), layout)
	for i, layout := range layouts {
		encoded[i+1] = newGoLayout(layout)
	}
	if err := s.objects.GoLayouts.Set(&encoded); err != nil {
		return 0, fmt.Errorf("setting layouts of Go programs: %w", err)
	}
	l.layouts = layouts
	return uint8(len(layouts)), nil
}

func newGoLayout(l GoLayout) samplerGoLayout {
	form := samplerGoLabelsFormGO_LABELS_SLICE
	if l.Map {
		form = samplerGoLabelsFormGO_LABELS_MAP
	}
	return samplerGoLayout{G: l.G, G_m: l.GM, G_labels: l.GLabels, M_procid: l.MProcID, M_curg: l.MCurG,
		M_extra: l.MExtra, Form: uint8(form)}
}
