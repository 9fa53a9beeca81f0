package spans

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// value is the text of a JSON value that is known to be valid, without space around it. An empty
// one is missing.
type value []byte

func (v value) isString() bool    { return len(v) > 0 && v[0] == '"' }
func (v value) isContainer() bool { return len(v) > 0 && (v[0] == '{' || v[0] == '[') }

// hasContent reports whether a value is a list or an object that is not written as an empty one.
func (v value) hasContent() bool { return len(v) > len("[]") && v.isContainer() }

// reader reads a JSON text in order. The decoder checks all that it passes. After what is not valid
// the reader is bad, and every loop ends.
//
// The members of objects and the elements of lists are read by
//
//	for name := range r.members { r.value() }
//	for index, name := range r.elements { r.value() }
//
// where each value has to be passed, by any method, and may be of any kind.
type reader struct {
	text    []byte
	buffer  bytes.Buffer // of text, which the decoder does not copy
	decoder jsontext.Decoder
	bad     bool
}

// reset starts with a text. What does not keep spans from being used is allowed: text is repaired
// when it is decoded, and of members with the same name the last counts.
func (r *reader) reset(text []byte) {
	r.text, r.buffer, r.bad = text, *bytes.NewBuffer(text), false
	r.decoder.Reset(&r.buffer, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// kind returns the first byte of the next value, '0' for all numbers, or the bracket at the end of
// a list or an object. It is 0 if there is neither.
func (r *reader) kind() jsontext.Kind { return r.decoder.PeekKind() }

// value passes the next value, or the name of a member, and returns it. It stays valid as long as
// the text.
func (r *reader) value() value {
	v, err := r.decoder.ReadValue()
	if err != nil {
		r.bad = true
		return nil
	}
	end := int(r.decoder.InputOffset())
	return r.text[end-len(v) : end]
}

// name passes the name of a member, and returns its text, in which invalid UTF-8 is kept. Only one
// with escapes, which no client writes in the names that are used, is a copy.
func (r *reader) name() []byte {
	name := r.value()
	switch {
	case r.bad:
		return nil
	case bytes.IndexByte(name, '\\') >= 0:
		text, _ := jsontext.AppendUnquote(nil, name)
		return text
	}
	return name[1 : len(name)-1]
}

// bracket passes the start or the end of a list or an object.
func (r *reader) bracket() {
	if _, err := r.decoder.ReadToken(); err != nil {
		r.bad = true
	}
}

// more reports whether there is another element or member in the current list or object.
func (r *reader) more() bool {
	switch r.kind() {
	case 0, ']', '}':
		return false
	}
	return !r.bad
}

// ended reports whether the whole text was passed, and is valid.
func (r *reader) ended() bool {
	_, err := r.decoder.ReadToken()
	return !r.bad && errors.Is(err, io.EOF)
}

// members passes the next value, and yields the names of the members if it is an object.
func (r *reader) members(yield func(name []byte) bool) {
	if r.kind() != '{' {
		r.value()
		return
	}
	for r.bracket(); r.more(); {
		if name := r.name(); r.bad || !yield(name) {
			return
		}
	}
	r.bracket()
}

// elements passes the next value, and yields the indices of the elements of a list, or of those
// that an object has as values, then also their names. PHP writes a list as an object when elements
// were taken out of it.
func (r *reader) elements(yield func(index int, name value) bool) {
	object := r.kind() == '{'
	if !object && r.kind() != '[' {
		r.value()
		return
	}
	r.bracket()
	for index := 0; r.more(); index++ {
		var name value
		if object {
			name = r.value()
		}
		if r.bad || !yield(index, name) {
			return
		}
	}
	r.bracket()
}

// place is where the value of a member goes.
type place struct {
	name string
	to   *value
}

// into passes the next value, and puts the values of members into their places if it is an object.
func (r *reader) into(places ...place) {
	for name := range r.members {
		v := r.value()
		for _, p := range places {
			if string(name) == p.name {
				*p.to = v
			}
		}
	}
}
