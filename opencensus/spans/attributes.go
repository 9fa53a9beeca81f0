package spans

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"correlator/otlp/field"
)

const (
	// maxAttributes limits a list: more than any program has, while finding duplicates stays cheap.
	// SDKs keep 128 by default.
	maxAttributes = 1024

	// maxLevels limits the JSON levels of values, counted from the payload. Backends have little
	// stack for nested values.
	maxLevels = 64

	spanLevel = 4 // of lists and objects in attributes of spans: payload, span, attributes, value
	itemLevel = 6 // the same of events and links
)

// attributeList is a list of attributes at the end of the output, or a nested list of keys and
// values.
//
// OTLP wants unique keys. A client's are, but keys may become equal when invalid characters are
// replaced or attributes are translated, and hostile clients may repeat them. The last one wins, as
// it does in JSON.
type attributeList struct {
	field   protowire.Number
	level   int // of values
	base    int // of its entries
	dropped int

	ofSpan     bool // it may have attributes of the client's request handler
	httpStatus int  // of a span: http.status_code; 0: none
}

// entry is an attribute in the output. It ends where the next begins.
type entry struct {
	from, content int // of the field and what is in it
	key, keyEnd   int
	replaced      bool
}

func (e *encoding) newList(number protowire.Number, level int) attributeList {
	return attributeList{field: number, level: level, base: len(e.entries)}
}

// attributes appends the attributes of a span, and returns the HTTP status code that is among them,
// or 0.
func (e *encoding) attributes(m *members, unfinished bool) (httpStatus int) {
	l := e.newList(9, spanLevel)
	l.ofSpan = true
	e.addAll(&l, m.attributes)
	if len(m.stackTrace) > 0 {
		addText(e, &l, "code.stacktrace", m.stackTrace)
	}
	if unfinished {
		e.addTrue(&l, "opencensus.unfinished")
	}
	e.finish(&l)
	e.out = field.AppendVarint(e.out, 10, uint64(l.dropped))
	return l.httpStatus
}

// addAll adds the members of an object, or the elements of a list, whose keys are their indices:
// that is what PHP writes for an array with the keys 0, 1, 2 and so on, also for an empty one.
func (e *encoding) addAll(l *attributeList, v value) {
	if !v.hasContent() {
		return
	}
	var digits [20]byte
	r := e.open(v)
	defer e.close()
	for index, name := range r.elements {
		key := e.text(name)
		if v[0] == '[' {
			key = strconv.AppendInt(digits[:0], int64(index), 10)
		}
		v := r.value()
		switch {
		case r.bad || v[0] == 'n':
		case len(key) == 0 || len(e.entries)-l.base >= maxAttributes:
			e.drop(l)
		case !l.ofSpan || !e.addOfHandler(l, key, v):
			e.addValue(l, key, v)
		}
	}
}

// drop counts an attribute that is left out.
func (e *encoding) drop(l *attributeList) {
	l.dropped++
	e.DroppedAttributes++
}

// addValue adds an attribute, or counts it if it has no value in OTLP or is nested too deep.
func (e *encoding) addValue(l *attributeList, key []byte, v value) {
	entries := len(e.entries)
	out, added := begin(e.out, l.field, key)
	out, content := field.Begin(out, 2)
	e.out = out
	if !e.rawValue(v, l.level) {
		e.out, e.entries = e.out[:added.from], e.entries[:entries]
		e.drop(l)
		return
	}
	e.out = field.End(e.out, content)
	e.end(added)
}

// addText adds an attribute with a text.
func addText[T string | []byte](e *encoding, l *attributeList, key string, text T) {
	out, added := begin(e.out, l.field, key)
	e.out = field.AppendTextValue(out, 2, text)
	e.end(added)
}

func (e *encoding) addInt(l *attributeList, key string, n int64) {
	out, added := begin(e.out, l.field, key)
	e.out = field.AppendIntValue(out, 2, uint64(n))
	e.end(added)
}

func (e *encoding) addTrue(l *attributeList, key string) {
	out, added := begin(e.out, l.field, key)
	out, content := field.Begin(out, 2)
	e.out = field.End(appendBool(out, 1), content)
	e.end(added)
}

// begin appends a KeyValue without its value, and returns its entry.
func begin[K string | []byte](out []byte, number protowire.Number, key K) ([]byte, entry) {
	added := entry{from: len(out)}
	out, added.content = field.Begin(out, number)
	out = field.Append(out, 1, key)
	added.keyEnd = len(out)
	added.key = added.keyEnd - len(key)
	return out, added
}

// end ends the KeyValue at the end of the output, and adds its entry.
func (e *encoding) end(added entry) {
	before := len(e.out)
	e.out = field.End(e.out, added.content)
	moved := len(e.out) - before
	added.key += moved
	added.keyEnd += moved
	e.entries = append(e.entries, added)
}

// finish removes from the output the attributes of a list whose keys occur again, and ends it.
func (e *encoding) finish(l *attributeList) {
	entries := e.entries[l.base:]
	e.entries = e.entries[:l.base]
	if !e.findReplaced(entries) {
		return
	}
	to := entries[0].from
	for i, a := range entries {
		end := len(e.out)
		if i+1 < len(entries) {
			end = entries[i+1].from
		}
		if !a.replaced {
			to += copy(e.out[to:], e.out[a.from:end])
		}
	}
	e.out = e.out[:to]
}

// fewEntries are compared each with each other, which is faster than sorting them.
const fewEntries = 16

// findReplaced marks the entries whose keys occur again, and reports whether there are any.
func (e *encoding) findReplaced(entries []entry) (found bool) {
	key := func(a *entry) []byte { return e.out[a.key:a.keyEnd] }
	if len(entries) <= fewEntries {
		for i := range entries {
			for j := range entries[:i] {
				if bytes.Equal(key(&entries[i]), key(&entries[j])) {
					entries[j].replaced, found = true, true
				}
			}
		}
		return found
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(bytes.Compare(key(&a), key(&b)), cmp.Compare(a.from, b.from))
	})
	for i := range entries[1:] {
		if bytes.Equal(key(&entries[i]), key(&entries[i+1])) {
			entries[i].replaced, found = true, true
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.from, b.from) })
	return found
}
