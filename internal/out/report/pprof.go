package report

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"correlator/internal/host/sorting"
	"correlator/internal/host/terminal"
	"correlator/internal/names/symbolizer"
	"correlator/internal/out/record"
	"correlator/profile"
)

// Labels of samples. Ids are lower-case hexadecimal digits; empty values have no label. The two
// numbers have the names that the converter of perf's profiles uses. Attributes that a thread
// published are labels, too, named by their keys; those with the name of one of these are left out,
// whether the sample has that label or not.
const (
	labelTrace       = "trace_id"
	labelTransaction = "transaction_id"
	labelSpan        = "span_id"
	labelService     = "service"
	labelEnvironment = "environment"
	labelContainer   = "container_id"
	labelThread      = "thread"
	labelPID         = "pid"
	labelTID         = "tid"

	// Of waits only.
	labelWait        = "wait" // profile.WaitKind
	labelPeer        = "peer"
	labelPath        = "path"
	labelWaker       = "waker"          // profile.WakerKind
	labelWakerThread = "waker_thread"   // and of a thread, its name,
	labelWakerTrace  = "waker_trace_id" // and what it worked on
	labelWakerTx     = "waker_transaction_id"
)

// buildProfile converts the recording to a pprof profile: a sample for each Key, with its count and
// the CPU time that it stands for, and one for each WaitKey. The result is deterministic, order included.
//
// Addresses are those of the frames: ELF addresses of a file, whose mapping covers all addresses
// from 0, so that pprof can find missing names in a file of the same build id; offsets from the
// start of the text in the kernel, which do not disclose where it was loaded. Code in no file has a
// mapping for each process, and so have addresses in no known memory: they are meaningless in
// another one. Methods of JVMs have one mapping for all processes, and no addresses. So has the frame
// at the root of a truncated stack, which says that. pprof searches for names in files whose mapping
// has HasFunctions unset, so it is unset for the mappings of a file when any of its frames has no
// name.
//
// Strings come from processes: non-printing characters are escaped.
func buildProfile(r *record.Recording, names *symbolNames) *pprof.Profile {
	b := builder{
		names: names,
		profile: &pprof.Profile{
			SampleType:        []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
			DefaultSampleType: "cpu",
			PeriodType:        &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"},
			Period:            int64(r.Period()),
			TimeNanos:         r.Start.UnixNano(),
			DurationNanos:     int64(r.Duration),
		},
		stacks:    make(map[processStack]stack),
		mappings:  make(map[mappingKey]*mapping),
		locations: make(map[locationKey]*pprof.Location),
		functions: make(map[functionKey]*pprof.Function),
	}
	for _, key := range sortedKeys(r) {
		b.add(&key, r.Samples[key], b.stack(key.Process, key.Stack, r.Stacks[key.Stack]))
	}
	if r.Waits != nil {
		b.addWaits(r)
	}
	return b.finish()
}

// addWaits adds a sample for each WaitKey, with its time, and a type of it.
func (b *builder) addWaits(r *record.Recording) {
	b.profile.SampleType = append(b.profile.SampleType, &pprof.ValueType{Type: "off_cpu", Unit: "nanoseconds"})
	for _, s := range b.profile.Sample {
		s.Value = append(s.Value, 0)
		for _, name := range waitLabels {
			delete(s.Label, name) // of attributes
		}
	}
	for _, key := range sortedWaits(r) {
		frames := r.Stacks[key.Stack]
		labels := labels(&key.Key)
		for _, name := range waitLabels {
			delete(labels, name)
		}
		add := func(name, text string) {
			if text != "" {
				labels[name] = []string{terminal.Escape(text)}
			}
		}
		add(labelWait, string(key.Wait().Kind(key.Process.PID, frames)))
		add(labelPeer, key.Peer)
		add(labelPath, key.Path)
		if of := &key.Waker; of.Kind != profile.UnknownWaker {
			add(labelWaker, of.Kind.String())
			add(labelWakerThread, of.Thread)
			if of.HasTrace() {
				add(labelWakerTrace, hex.EncodeToString(of.TraceID[:]))
				if of.TransactionID != [8]byte{} {
					add(labelWakerTx, hex.EncodeToString(of.TransactionID[:]))
				}
			}
		}
		b.profile.Sample = append(b.profile.Sample, &pprof.Sample{
			Location: b.stack(key.Process, key.Stack, frames).locations,
			Value:    []int64{0, 0, int64(r.Waits[key].Sum)},
			Label:    labels,
			NumLabel: numbers(&key.Key),
		})
	}
}

// sortedWaits returns the keys of Waits in an order that does not depend on pointers.
func sortedWaits(r *record.Recording) []record.WaitKey {
	order := orderOf(r)
	return sorting.Sorted(maps.Keys(r.Waits), func(a, b record.WaitKey) int {
		x, y := &a.Waker, &b.Waker
		return cmp.Or(order(&a.Key, &b.Key), cmp.Compare(a.State, b.State), cmp.Compare(a.Peer, b.Peer),
			cmp.Compare(a.Path, b.Path), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.PID, y.PID),
			cmp.Compare(x.TID, y.TID), cmp.Compare(x.Thread, y.Thread), cmp.Compare(x.Service, y.Service),
			bytes.Compare(x.TraceID[:], y.TraceID[:]), bytes.Compare(x.TransactionID[:], y.TransactionID[:]),
			cmp.Compare(x.Context, y.Context))
	})
}

// sortedKeys returns the keys of Samples in an order that does not depend on pointers.
func sortedKeys(r *record.Recording) []record.Key {
	order := orderOf(r)
	return sorting.Sorted(maps.Keys(r.Samples), func(a, b record.Key) int { return order(&a, &b) })
}

// orderOf returns the order of keys of a recording.
func orderOf(r *record.Recording) func(a, b *record.Key) int {
	place := make(map[*record.Process]int, len(r.Processes))
	for i, p := range r.Processes {
		place[p] = i
	}
	return func(a, b *record.Key) int {
		return cmp.Or(
			cmp.Compare(place[a.Process], place[b.Process]), cmp.Compare(a.TID, b.TID), cmp.Compare(a.Thread, b.Thread),
			bytes.Compare(a.TraceID[:], b.TraceID[:]), bytes.Compare(a.TransactionID[:], b.TransactionID[:]),
			bytes.Compare(a.SpanID[:], b.SpanID[:]), a.Attributes.Compare(b.Attributes),
			bytes.Compare(a.Stack[:], b.Stack[:]))
	}
}

// processStack is a stack of one process: names of frames depend on the process.
type processStack struct {
	process *record.Process
	stack   profile.StackTraceID
}

// builder makes a profile.
type builder struct {
	names     *symbolNames
	profile   *pprof.Profile
	stacks    map[processStack]stack
	mappings  map[mappingKey]*mapping
	locations map[locationKey]*pprof.Location
	functions map[functionKey]*pprof.Function
}

// stack is a stack of a process.
type stack struct {
	locations []*pprof.Location
	leaf      *mapping // nil: no frames
}

// mapping is a mapping under construction, with the number of samples whose leaf is in it: the file
// with most comes first, after which pprof names the profile.
type mapping struct {
	*pprof.Mapping
	samples uint64
	file    profile.FileID // of a mapped file
	unnamed bool           // it has locations without a name
}

// mappingKey identifies a mapping: the file and its path in the process, or without a file the kind
// and, for code at addresses of its own, the process, and whether it has compiled the code.
type mappingKey struct {
	kind     profile.Kind // without a file
	file     profile.FileID
	path     string
	process  *record.Process
	compiled bool
}

type locationKey struct {
	mapping  *mapping
	address  uint64
	function functionKey // files with the same id can have different names in different processes
	line     uint32
}

// functionKey has the name that is shown, and that of the symbol.
type functionKey struct{ name, systemName, sourceFile string }

func (b *builder) add(key *record.Key, samples uint64, s stack) {
	value := int64(min(samples, math.MaxInt64/uint64(b.profile.Period)))
	if s.leaf != nil {
		s.leaf.samples += samples
	}
	b.profile.Sample = append(b.profile.Sample, &pprof.Sample{
		Location: s.locations,
		Value:    []int64{value, value * b.profile.Period},
		Label:    labels(key),
		NumLabel: numbers(key),
	})
}

func numbers(key *record.Key) map[string][]int64 {
	return map[string][]int64{labelPID: {int64(key.Process.PID)}, labelTID: {int64(key.TID)}}
}

func (b *builder) stack(p *record.Process, id profile.StackTraceID, frames []profile.Frame) stack {
	key := processStack{p, id}
	if known, ok := b.stacks[key]; ok {
		return known
	}
	var s stack
	for _, f := range frames {
		m := b.mapping(p, f)
		if s.leaf == nil {
			s.leaf = m
		}
		s.locations = append(s.locations, b.location(p, m, f))
	}
	b.stacks[key] = s
	return s
}

func labels(key *record.Key) map[string][]string {
	labels := make(map[string][]string)
	add := func(name, text string) {
		if text != "" {
			labels[name] = []string{terminal.Escape(text)}
		}
	}
	if key.HasTrace() {
		add(labelTrace, hex.EncodeToString(key.TraceID[:]))
		if key.TransactionID != [8]byte{} { // else all that do not say it would seem to be one
			add(labelTransaction, hex.EncodeToString(key.TransactionID[:]))
		}
		if key.SpanID != [8]byte{} {
			add(labelSpan, hex.EncodeToString(key.SpanID[:]))
		}
	}
	add(labelService, key.Process.Service)
	add(labelEnvironment, key.Process.Environment)
	add(labelContainer, key.Process.ContainerID)
	add(labelThread, key.Thread)
	for name, value := range key.Attributes.All() {
		name = terminal.Escape(name)
		if _, again := labels[name]; !again && name != "" && !slices.Contains(ownLabels, name) {
			add(name, value)
		}
	}
	return labels
}

// ownLabels are the names of labels that are no attributes.
var ownLabels = []string{labelTrace, labelTransaction, labelSpan, labelService, labelEnvironment, labelContainer,
	labelThread, labelPID, labelTID}

// waitLabels are those of labels of waits. Attributes have none of them where there are waits.
var waitLabels = []string{labelWait, labelPeer, labelPath, labelWaker, labelWakerThread, labelWakerTrace, labelWakerTx}

// mapping returns the mapping that a frame is in.
func (b *builder) mapping(p *record.Process, f profile.Frame) *mapping {
	var key mappingKey
	switch {
	case f.File != nil:
		key = mappingKey{file: f.File.ID, path: b.names.path(p, f)}
	case f.Kind() != profile.AnonymousFrame:
		key.kind = f.Kind()
	case f.Address < symbolizer.KernelSpace:
		key = mappingKey{process: p, compiled: b.names.compiled(p, f)}
	}
	if known := b.mappings[key]; known != nil {
		return known
	}
	m := &mapping{Mapping: &pprof.Mapping{Limit: math.MaxUint64, File: mappingName(&key, f)}}
	if f.File != nil {
		m.BuildID, m.file = f.File.BuildID, f.File.ID
	}
	b.mappings[key] = m
	b.profile.Mapping = append(b.profile.Mapping, m.Mapping)
	return m
}

// mappingName returns the path of a frame's file. pprof does not treat names in brackets as files.
func mappingName(key *mappingKey, f profile.Frame) string {
	switch {
	case f.Kind().OfRuntime():
		return "[" + f.Kind().String() + "]" // functions have names
	case f.Kind() == profile.CutFrame:
		return profile.CutName
	case f.File == nil && f.Address >= symbolizer.KernelSpace:
		return nameKernel
	case f.File == nil && key.compiled:
		return "[jit " + strconv.Itoa(key.process.PID) + "]"
	case f.File == nil:
		return nameUnknown
	case f.Kind() == profile.KernelFrame && f.File.Path == symbolizer.VMLinuxPath:
		return "[kernel.kallsyms]"
	case f.Kind() == profile.KernelFrame:
		return "[" + terminal.Escape(f.File.Path) + "]"
	}
	return terminal.Escape(key.path)
}

// Names of code in no file that has no other.
const (
	nameJIT     = "[jit]"
	nameKernel  = "[kernel]"
	nameUnknown = "[unknown]" // an address in no known memory
)

// hasAddress reports whether the address of a frame is one of code: in a file, in the kernel, in
// memory.
func hasAddress(f profile.Frame) bool {
	return !f.Kind().OfRuntime() && f.Kind() != profile.CutFrame
}

// unnamed returns what a frame in no file is called that has no name.
func unnamed(f profile.Frame, compiled bool) string {
	switch {
	case f.Address >= symbolizer.KernelSpace:
		return nameKernel
	case compiled:
		return nameJIT
	}
	return nameUnknown
}

// location returns the location of a frame. The missing name of one in a file is left to pprof;
// elsewhere it gets a placeholder.
func (b *builder) location(p *record.Process, m *mapping, f profile.Frame) *pprof.Location {
	name, addr := terminal.Escape(b.names.display(p, f)), f.Address
	systemName := terminal.Escape(Display(f, b.names.symbol(p, f)))
	switch {
	case !hasAddress(f):
		addr = 0
	case name == "" && f.File == nil:
		name = unnamed(f, b.names.compiled(p, f))
		systemName = name
	}
	key := locationKey{m, addr, functionKey{name, systemName, terminal.Escape(f.SourceFile())}, f.Line}
	if known := b.locations[key]; known != nil {
		return known
	}
	made := &pprof.Location{ID: uint64(len(b.profile.Location) + 1), Mapping: m.Mapping, Address: addr}
	if name == "" {
		m.unnamed = true
	} else {
		made.Line = []pprof.Line{{Function: b.function(key.function), Line: int64(f.Line)}}
	}
	b.locations[key] = made
	b.profile.Location = append(b.profile.Location, made)
	return made
}

// function has the mangled name, too: pprof demangles only functions both of whose names are the same.
func (b *builder) function(key functionKey) *pprof.Function {
	if known := b.functions[key]; known != nil {
		return known
	}
	made := &pprof.Function{ID: uint64(len(b.profile.Function) + 1), Name: key.name, SystemName: key.systemName,
		Filename: key.sourceFile}
	b.functions[key] = made
	b.profile.Function = append(b.profile.Function, made)
	return made
}

func (b *builder) finish() *pprof.Profile {
	of := make(map[*pprof.Mapping]*mapping)
	unnamed := make(map[profile.FileID]bool)
	for _, m := range b.mappings {
		of[m.Mapping] = m
		unnamed[m.file] = unnamed[m.file] || m.unnamed
	}
	// pprof merges the mappings of one build id: they have to agree.
	for _, m := range b.mappings {
		m.HasFunctions = !unnamed[m.file]
	}
	// Stable: those with equally many samples stay in the order of the samples.
	sorting.Stable(b.profile.Mapping, func(x, y *pprof.Mapping) int {
		return cmp.Or(cmp.Compare(bracketed(x), bracketed(y)), cmp.Compare(of[y].samples, of[x].samples))
	})
	for i, m := range b.profile.Mapping {
		m.ID = uint64(i + 1)
	}
	return b.profile
}

// bracketed is 0 for a file.
func bracketed(m *pprof.Mapping) int {
	if strings.HasPrefix(m.File, "[") {
		return 1
	}
	return 0
}
