package profiles

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/internal/host/textcut"
	"correlator/otlp/field"
	"correlator/profile"
)

// table is one table of the dictionary: its encoded entries, and the index of each. Entry 0 is the
// zero value, which means none. An entry is added with the first reference to it, and undone if the
// reference is, so every entry is referred to.
type table[K comparable] struct {
	number  protowire.Number
	indices map[K]int32
	count   int32 // of entries besides the zero one
	entries []byte

	added         []K // since the mark
	markedCount   int32
	markedEntries int // how long entries was then
}

// reset empties the table for a new dictionary, but for the zero entry.
func (t *table[K]) reset(number protowire.Number) {
	if t.indices == nil {
		t.indices = make(map[K]int32)
	}
	clear(t.indices)
	t.number, t.count = number, 0
	t.entries = field.Append(t.entries[:0], number, "")
	t.mark()
}

func (t *table[K]) find(key K) (index int32, known bool) {
	index, known = t.indices[key]
	return index, known
}

func (t *table[K]) add(key K, entry []byte) int32 {
	t.count++
	t.entries = field.Append(t.entries, t.number, entry)
	return t.alias(key, t.count)
}

// alias makes a key find the entry of another one.
func (t *table[K]) alias(key K, index int32) int32 {
	t.indices[key] = index
	t.added = append(t.added, key)
	return index
}

func (t *table[K]) mark() {
	t.added, t.markedCount, t.markedEntries = t.added[:0], t.count, len(t.entries)
}

// rollBack undoes what was added since the mark.
func (t *table[K]) rollBack() {
	for _, key := range t.added {
		delete(t.indices, key)
	}
	t.count, t.entries = t.markedCount, t.entries[:t.markedEntries]
	t.mark()
}

// dictionary has what the profiles of one request refer to: ProfilesDictionary of profiles.proto.
//
//	field  table             key of an entry here
//	    1  mapping_table     file id and executable segment
//	    2  location_table    mapping, type, address, function and line
//	    3  function_table    name, source file, and a mangled name
//	    4  link_table        trace and span
//	    5  string_table      text
//	    6  attribute_table   key and value
//	    7  stack_table       stack-trace-id and the process whose names its frames have; then its locations
type dictionary struct {
	mappings   table[mapping]
	locations  table[location]
	functions  table[profile.Function]
	links      table[link]
	strings    table[string]
	attributes table[attribute]
	stacks     table[stack]

	sets   // no table of ProfilesDictionary
	frames // the same

	entry   []byte // being made
	indices []byte // of a stack or set being made
}

// stack is a stack by its id, as named in a process, or by its encoded locations: processes share a
// stack where they have the same names for it.
type stack struct {
	id        profile.StackTraceID
	names     *profile.Resource
	locations string
}

// frames are the locations of frames: most that a stack has are known, and their texts need not be looked at.
type frames struct{ known table[profile.Frame] }

// naming names frames as they are named in a process. Its zero value does not.
type naming struct {
	process *profile.Resource
	name    func(*profile.Resource, profile.Frame) profile.Frame
}

func (n naming) named(f profile.Frame) profile.Frame {
	if n.name == nil {
		return f
	}
	return n.name(n.process, f)
}

type mapping struct {
	file profile.FileID
	code profile.CodeRange
}

type location struct {
	mapping, frameType, function int32
	line                         uint32
	address                      uint64
}

type link struct {
	trace [16]byte
	span  [8]byte
}

// attribute is a key and a value: text, or without it a number.
type attribute struct {
	key    attributeKey
	name   string // the key of a published or named attribute
	text   string
	number uint64
}

// attributeKey is the key of an attribute, which defines the meaning of its number.
type attributeKey uint8

const (
	frameType attributeKey = iota
	htlhash
	gnuBuildID
	goBuildID
	threadID
	threadName
	transactionID // the number is the id
	published     // by a thread; its key is the name, and it has a text
	named         // the same, with a number
)

// String returns the key, from OpenTelemetry's conventions if they have one. They have none for the
// local root span (and datadog.local_root_span_id belongs to a vendor, too); transaction.id is from
// the Elastic Common Schema, whose agents have transactions.
func (k attributeKey) String() string { return attributeKeys[k] }

var attributeKeys = [published]string{
	frameType:     "profile.frame.type",
	htlhash:       "process.executable.build_id.htlhash",
	gnuBuildID:    "process.executable.build_id.gnu",
	goBuildID:     "process.executable.build_id.go",
	threadID:      "thread.id",
	threadName:    "thread.name",
	transactionID: "transaction.id",
}

// reset empties the dictionary except for the zero entries and the strings that every profile
// refers to.
func (d *dictionary) reset() {
	d.mappings.reset(1)
	d.locations.reset(2)
	d.functions.reset(3)
	d.links.reset(4)
	d.strings.reset(5)
	d.attributes.reset(6)
	d.stacks.reset(7)
	d.sets.reset()
	d.frames.known.reset(1) // without entries
	for _, s := range [...]string{
		samplesString: "samples", countString: "count", cpuString: "cpu", nanosecondsString: "nanoseconds",
	} {
		d.string(s)
	}
}

// Indices of the strings of a profile's types, which reset adds.
const (
	samplesString = iota + 1
	countString
	cpuString
	nanosecondsString
)

// mark is the state to which rollBack returns.
func (d *dictionary) mark() {
	d.mappings.mark()
	d.locations.mark()
	d.functions.mark()
	d.links.mark()
	d.strings.mark()
	d.attributes.mark()
	d.stacks.mark()
	d.sets.mark()
	d.frames.known.mark()
}

func (d *dictionary) rollBack() {
	d.mappings.rollBack()
	d.locations.rollBack()
	d.functions.rollBack()
	d.links.rollBack()
	d.strings.rollBack()
	d.attributes.rollBack()
	d.stacks.rollBack()
	d.sets.rollBack()
	d.frames.known.rollBack()
}

// append appends the encoded dictionary.
func (d *dictionary) append(b []byte) []byte {
	b = append(b, d.mappings.entries...)
	b = append(b, d.locations.entries...)
	b = append(b, d.functions.entries...)
	b = append(b, d.links.entries...)
	b = append(b, d.strings.entries...)
	b = append(b, d.attributes.entries...)
	return append(b, d.stacks.entries...)
}

// size returns the encoded length of the dictionary.
func (d *dictionary) size() int {
	return len(d.mappings.entries) + len(d.locations.entries) + len(d.functions.entries) + len(d.links.entries) +
		len(d.strings.entries) + len(d.attributes.entries) + len(d.stacks.entries)
}

// string returns the index of a text, made UTF-8: otherwise the request would be undecodable.
func (d *dictionary) string(s string) int32 {
	s = valid(s)
	if s == "" {
		return 0
	}
	index, known := d.strings.find(s)
	if !known {
		d.entry = append(d.entry[:0], s...)
		index = d.strings.add(s, d.entry)
	}
	return index
}

// maxTextBytes limits a text: the longest name that a process can publish. A path is at most half
// as long (PATH_MAX). So no text is too large for a request.
const maxTextBytes = 8192

// valid makes a text UTF-8, with U+FFFD for invalid bytes, and shortens it to maxTextBytes.
func valid(s string) string {
	return strings.ToValidUTF8(textcut.At(s, maxTextBytes), "\ufffd")
}

// attribute returns the index of an attribute.
func (d *dictionary) attribute(a attribute) int32 {
	index, known := d.attributes.find(a)
	if known {
		return index
	}
	sent := a
	sent.name, sent.text = valid(a.name), valid(a.text)
	if sent != a { // another text may have become the same
		return d.attributes.alias(a, d.attribute(sent))
	}
	name := a.name
	if a.key < published {
		name = a.key.String()
	}
	key := d.string(name)
	b := field.AppendVarint(d.entry[:0], 1, uint64(key))
	switch {
	case a.key == transactionID:
		b = appendIDValue(b, 2, a.number)
	case a.text != "", a.key == published:
		b = field.AppendTextValue(b, 2, a.text)
	default:
		b = field.AppendIntValue(b, 2, a.number)
	}
	d.entry = b
	return d.attributes.add(a, b)
}

// mapping returns the index of the part of a file that an address is in. Files with the same id
// share the name and the build ids of the first.
func (d *dictionary) mapping(f *profile.File, code profile.CodeRange) int32 {
	key := mapping{f.ID, code}
	index, known := d.mappings.find(key)
	if known {
		return index
	}
	name := d.string(f.Path)
	attributes := [3]int32{d.attribute(attribute{key: htlhash, text: f.ID.String()})}
	n := 1
	if f.BuildID != "" {
		attributes[n] = d.attribute(attribute{key: gnuBuildID, text: f.BuildID})
		n++
	}
	if f.GoBuildID != "" {
		attributes[n] = d.attribute(attribute{key: goBuildID, text: f.GoBuildID})
		n++
	}
	d.entry = field.AppendVarint(d.entry[:0], 1, code.Start)
	d.entry = field.AppendVarint(d.entry, 2, code.Limit)
	d.entry = field.AppendVarint(d.entry, 3, code.Offset)
	d.entry = field.AppendVarint(d.entry, 4, uint64(name))
	d.entry = appendIndices(d.entry, 5, attributes[:n])
	return d.mappings.add(key, d.entry)
}

// function returns the index of a function, which has a name.
func (d *dictionary) function(f profile.Function) int32 {
	index, known := d.functions.find(f)
	if known {
		return index
	}
	sent := profile.Function{Name: valid(f.Name), SourceFile: valid(f.SourceFile), SystemName: valid(f.SystemName)}
	if sent != f { // another text may have become the same
		return d.functions.alias(f, d.function(sent))
	}
	name, systemName, sourceFile := d.string(f.Name), d.string(f.SystemName), d.string(f.SourceFile)
	d.entry = field.AppendVarint(d.entry[:0], 1, uint64(name))
	d.entry = field.AppendVarint(d.entry, 2, uint64(systemName))
	d.entry = field.AppendVarint(d.entry, 3, uint64(sourceFile))
	return d.functions.add(f, d.entry)
}

// location returns the index of a location.
func (d *dictionary) location(key location) int32 {
	index, known := d.locations.find(key)
	if known {
		return index
	}
	attributes := [...]int32{key.frameType}
	d.entry = field.AppendVarint(d.entry[:0], 1, uint64(key.mapping))
	d.entry = field.AppendVarint(d.entry, 2, key.address)
	if key.function != 0 {
		size := field.VarintSize(uint64(key.function)) + field.VarintSize(uint64(key.line))
		d.entry = field.AppendHeader(d.entry, 3, size)
		d.entry = field.AppendVarint(d.entry, 1, uint64(key.function))
		d.entry = field.AppendVarint(d.entry, 2, uint64(key.line))
	}
	d.entry = appendIndices(d.entry, 4, attributes[:])
	return d.locations.add(key, d.entry)
}

// frameTypeOf returns the frame type that receivers know. Code without a file is "native", too:
// that of a runtime would promise a function. "abort-marker" is what the OpenTelemetry profiler and receivers of
// its profiles call the end of a stack that could not be followed further.
func frameTypeOf(f profile.Frame) string {
	switch kind := f.Kind(); {
	case kind == profile.KernelFrame, kind == profile.AnonymousFrame && f.Address >= 1<<63:
		return "kernel"
	case kind.OfRuntime():
		return kind.String()
	case kind == profile.CutFrame:
		return "abort-marker"
	}
	return "native"
}

// canBeSent reports whether a receiver finds the file id of a frame in what is sent of it: there is
// no address 0, and text that is not UTF-8 or too long is not sent as it is.
func canBeSent(f profile.Frame) bool {
	if f.Address == 0 || f.File == nil && f.Function != nil && (f.Function.Name == "" ||
		valid(f.Function.Name) != f.Function.Name || valid(f.Function.SourceFile) != f.Function.SourceFile) {
		return false
	}
	return true
}

// stack returns the index of a stack, 0 if it has a frame that cannot be sent.
func (d *dictionary) stack(s *profile.Stack, names naming) int32 {
	id := stack{id: s.ID, names: names.process}
	if index, known := d.stacks.find(id); known {
		return index
	}
	d.indices = d.indices[:0]
	var last profile.Frame
	var code profile.CodeRange // of last
	var kind string
	var key location
	for _, f := range s.Frames { // consecutive frames are usually in one file
		f = names.named(f)
		if index, known := d.frames.known.find(f); known {
			d.indices = protowire.AppendVarint(d.indices, uint64(index))
			continue
		}
		if !canBeSent(f) {
			return 0
		}
		switch {
		case f.File == nil:
			key.mapping = 0
		case f.File != last.File || f.Address < code.Start || f.Address >= code.Limit:
			code = f.File.CodeAt(f.Address)
			key.mapping = d.mapping(f.File, code)
		}
		if k := frameTypeOf(f); k != kind {
			kind, key.frameType = k, d.attribute(attribute{key: frameType, text: k})
		}
		key.function, key.line = 0, 0
		if name := f.Name(); name != "" {
			function := profile.Function{Name: name} // of a CutFrame
			if f.Function != nil {
				function = *f.Function
			}
			key.function, key.line = d.function(function), f.Line
		}
		key.address = f.Address
		index := d.frames.known.alias(f, d.location(key))
		d.indices = protowire.AppendVarint(d.indices, uint64(index))
		last = f
	}
	d.entry = field.Append(d.entry[:0], 1, d.indices)
	if names.process == nil {
		return d.stacks.add(id, d.entry)
	}
	named := stack{locations: string(d.indices)}
	index, known := d.stacks.find(named)
	if !known {
		index = d.stacks.add(named, d.entry)
	}
	return d.stacks.alias(id, index)
}

// link returns the index of a link, 0 for none.
func (d *dictionary) link(l link) int32 {
	if l == (link{}) {
		return 0
	}
	index, known := d.links.find(l)
	if !known {
		d.entry = appendLink(d.entry[:0], l)
		index = d.links.add(l, d.entry)
	}
	return index
}

func appendLink(b []byte, l link) []byte {
	b = field.Append(b, 1, l.trace[:])
	return field.Append(b, 2, l.span[:])
}
