package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// The sizes of the smallest items of arrays.
const (
	minString      = 1
	minKeyValue    = 2 * minString
	minMeasurement = minString + 1 // a name and a type without a value
	minView        = 2*minString + 1 + minString + 1
	sizeFloat64    = 8
	sizeFloat32    = 4 // which is no item
)

// The bounds of what is decoded, by items of an array: the rest is checked and counted, but not
// kept. A payload of 1 MiB could otherwise have half a million of them, which take 50 times its
// size, while usual messages have less than ten.
const (
	MaxMeasurements = 256    // of a record
	MaxKeyValues    = 64     // tags of a record, and attachments
	MaxTagKeys      = 64     // of a view
	MaxViews        = 10_000 // of a message, and names of views: what a user can have registered
)

// check reports what is wrong with the payload of a message. For a record, of which there are many, it
// allocates nothing. Of a trace export it looks only for what a truncated one contains, and at how it
// begins.
func check(h *Header, p []byte) (err error) {
	switch h.Type {
	case StatsRecord:
		return walkRecord(p, nil)
	case TraceExport:
		return checkTrace(p)
	case ProcessInit, RequestInit:
		_, err = DecodeInit(p)
	case MeasureCreate:
		_, err = DecodeMeasure(p)
	case ReportingPeriod:
		_, err = DecodePeriod(p, h.Padded)
	case ViewRegister:
		_, _, err = DecodeViews(p)
	case ViewUnregister:
		_, _, err = DecodeNames(p)
	default: // a shutdown, which has none
		if len(p) > 0 {
			err = errRest
		}
	}
	return err
}

// checkTrace reports what is wrong with the payload of a trace export, as far as its first bytes
// and the absence of NUL tell. It may be empty: encoding has failed in the client.
func checkTrace(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if bytes.IndexByte(p, 0) >= 0 {
		return errNUL
	}
	if text := bytes.TrimLeft(p, " \t\r\n"); len(text) == 0 || text[0] != '[' && text[0] != '{' {
		return errJSON
	}
	return nil
}

// DecodeInit decodes the payload of ProcessInit or RequestInit.
func DecodeInit(p []byte) (Init, error) {
	c := cursor{p: p}
	init := Init{Version: c.byte(), PHP: string(c.string()), Zend: string(c.string())}
	return init, c.end()
}

// DecodeMeasure decodes the payload of MeasureCreate.
func DecodeMeasure(p []byte) (Measure, error) {
	c := cursor{p: p}
	m := Measure{
		Type: MeasureType(c.byte()), Name: string(c.string()), Description: string(c.string()),
		Unit: string(c.string()),
	}
	if c.err == nil && m.Type != Int && m.Type != Float && m.Type != Unknown {
		c.fail(errMeasureType)
	}
	return m, c.end()
}

// DecodePeriod decodes the payload of ReportingPeriod: seconds, of any value. padded is that of the
// header: all known clients write a Float64 even then, but the protocol's document has a binary32.
func DecodePeriod(p []byte, padded bool) (float64, error) {
	switch {
	case len(p) == sizeFloat64:
		return math.Float64frombits(binary.BigEndian.Uint64(p)), nil
	case len(p) == sizeFloat32 && padded:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(p))), nil
	}
	return 0, errLength
}

// DecodeViews decodes the payload of ViewRegister, and returns the first MaxViews and how many more
// there are. Views with an unknown aggregation are among them.
func DecodeViews(p []byte) (views []View, more int, err error) {
	c := cursor{p: p}
	n := c.count(minView)
	views = make([]View, min(n, MaxViews))
	var further View
	for i := range n {
		view := &further
		if i < len(views) {
			view = &views[i]
		}
		if view.decode(&c); c.err != nil {
			break
		}
	}
	return views, n - len(views), c.end()
}

func (v *View) decode(c *cursor) {
	v.Name, v.Description = string(c.string()), string(c.string())
	v.TagKeys, v.MoreTagKeys = c.names(MaxTagKeys)
	v.Measure, v.Aggregation = string(c.string()), Aggregation(c.uvarint())
	if v.Aggregation != Distribution {
		return
	}
	n := c.count(sizeFloat64)
	v.Boundaries = slices.Grow(v.Boundaries[:0], n) // as large as they are in the payload
	for range n {
		v.Boundaries = append(v.Boundaries, c.float64())
	}
}

// DecodeNames decodes the payload of ViewUnregister, and returns the first MaxViews and how many
// more there are.
func DecodeNames(p []byte) (names []string, more int, err error) {
	c := cursor{p: p}
	names, more = c.names(MaxViews)
	return names, more, c.end()
}

// names reads an Array of Strings, and returns the first ones and how many more there are.
func (c *cursor) names(most int) (names []string, more int) {
	n := c.count(minString)
	names = make([]string, min(n, most))
	for i := range n {
		if name := c.string(); i < len(names) {
			names[i] = string(name)
		}
	}
	return names, n - len(names)
}

// Decode decodes the payload of StatsRecord. It uses the slices of r again, and what it decodes
// refers to p. With an error, r is not usable but for the next payload.
func (r *Record) Decode(p []byte) error {
	*r = Record{Measurements: r.Measurements[:0], Tags: r.Tags[:0], Attachments: r.Attachments[:0]}
	return walkRecord(p, r)
}

// walkRecord reads the payload of a StatsRecord into r, unless that is nil.
func walkRecord(p []byte, r *Record) error {
	c := cursor{p: p}
	n := c.count(minMeasurement)
	for range n {
		m := Measurement{Measure: c.string(), Type: MeasureType(c.byte())}
		switch m.Type {
		case Int:
			m.Int = c.uvarint()
		case Float:
			m.Float = c.float64()
		case Unknown:
		default:
			c.fail(errMeasureType)
		}
		if c.err != nil {
			return c.err
		}
		if r != nil && len(r.Measurements) < MaxMeasurements {
			r.Measurements = append(r.Measurements, m)
		}
	}
	if r == nil {
		c.keyValues(nil, 0)
		c.keyValues(nil, 0)
	} else {
		r.MoreMeasurements = n - len(r.Measurements)
		r.Tags, r.MoreTags = c.keyValues(r.Tags, MaxKeyValues)
		r.Attachments, r.MoreAttachments = c.keyValues(r.Attachments, MaxKeyValues)
	}
	return c.end()
}

// keyValues appends the first ones to an empty slice, and returns how many more there are.
func (c *cursor) keyValues(to []KeyValue, most int) (kept []KeyValue, more int) {
	n := c.count(minKeyValue)
	for range n {
		kv := KeyValue{Key: c.string(), Value: c.string()}
		if c.err != nil {
			return to, 0
		}
		if len(to) < most {
			to = append(to, kv)
		}
	}
	return to, n - len(to)
}
