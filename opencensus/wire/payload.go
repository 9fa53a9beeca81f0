package wire

import (
	"bytes"
	"encoding/binary"
	"math"
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

// check reports what is wrong with the payload of a message, and allocates nothing. Of a trace
// export it looks only for what a truncated one contains, and at how it begins.
func check(h *Header, p []byte) error {
	switch h.Type {
	case StatsRecord:
		return walkRecord(p, nil)
	case TraceExport:
		return checkTrace(p)
	case ProcessInit, RequestInit:
		return walkInit(p, nil)
	case MeasureCreate:
		return walkMeasure(p, nil)
	case ReportingPeriod:
		_, err := DecodePeriod(p, h.Padded)
		return err
	case ViewRegister:
		_, err := walkViews(p, nil)
		return err
	case ViewUnregister:
		_, err := walkNames(p, nil)
		return err
	default: // a shutdown, which has none
		if len(p) > 0 {
			return errRest
		}
		return nil
	}
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
	var init Init
	err := walkInit(p, &init)
	return init, err
}

func walkInit(p []byte, init *Init) error {
	c := cursor{p: p}
	version, php, zend := c.byte(), c.string(), c.string()
	if err := c.end(); err != nil || init == nil {
		return err
	}
	*init = Init{Version: version, PHP: string(php), Zend: string(zend)}
	return nil
}

// DecodeMeasure decodes the payload of MeasureCreate.
func DecodeMeasure(p []byte) (Measure, error) {
	var measure Measure
	err := walkMeasure(p, &measure)
	return measure, err
}

func walkMeasure(p []byte, measure *Measure) error {
	c := cursor{p: p}
	kind := MeasureType(c.byte())
	name, description, unit := c.string(), c.string(), c.string()
	if c.err == nil && kind != Int && kind != Float && kind != Unknown {
		c.fail(errMeasureType)
	}
	if err := c.end(); err != nil || measure == nil {
		return err
	}
	*measure = Measure{Type: kind, Name: string(name), Description: string(description), Unit: string(unit)}
	return nil
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
	if more, err = walkViews(p, &views); err != nil {
		return nil, 0, err
	}
	return views, more, nil
}

func walkViews(p []byte, views *[]View) (more int, err error) {
	c := cursor{p: p}
	n := c.count(minView)
	kept := 0
	if views != nil {
		kept = min(n, MaxViews)
		*views = make([]View, kept)
	}
	for i := range n {
		var view *View
		if i < kept {
			view = &(*views)[i]
		}
		if walkView(&c, view); c.err != nil {
			break
		}
	}
	return n - kept, c.end()
}

func walkView(c *cursor, view *View) {
	name, description := c.string(), c.string()
	keys := c.count(minString)
	if view != nil {
		kept := min(keys, MaxTagKeys)
		view.TagKeys, view.MoreTagKeys = make([]string, 0, kept), keys-kept
	}
	for range keys {
		if key := c.string(); view != nil && len(view.TagKeys) < MaxTagKeys {
			view.TagKeys = append(view.TagKeys, string(key))
		}
	}
	measure, aggregation := c.string(), Aggregation(c.uvarint())
	if aggregation == Distribution {
		n := c.count(sizeFloat64)
		if view != nil {
			view.Boundaries = make([]float64, 0, n) // as large as they are in the payload
		}
		for range n {
			if boundary := c.float64(); view != nil {
				view.Boundaries = append(view.Boundaries, boundary)
			}
		}
	}
	if view == nil || c.err != nil {
		return
	}
	view.Name, view.Description = string(name), string(description)
	view.Measure, view.Aggregation = string(measure), aggregation
}

// DecodeNames decodes the payload of ViewUnregister, and returns the first MaxViews and how many
// more there are.
func DecodeNames(p []byte) (names []string, more int, err error) {
	if more, err = walkNames(p, &names); err != nil {
		return nil, 0, err
	}
	return names, more, nil
}

func walkNames(p []byte, names *[]string) (more int, err error) {
	c := cursor{p: p}
	n := c.count(minString)
	kept := 0
	if names != nil {
		kept = min(n, MaxViews)
		*names = make([]string, kept)
	}
	for i := range n {
		if name := c.string(); c.err != nil {
			break
		} else if i < kept {
			(*names)[i] = string(name)
		}
	}
	return n - kept, c.end()
}

// Decode decodes the payload of StatsRecord. It uses the slices of r again, and what it decodes
// refers to p. With an error, r is not usable but for the next payload.
func (r *Record) Decode(p []byte) error {
	*r = Record{Measurements: r.Measurements[:0], Tags: r.Tags[:0], Attachments: r.Attachments[:0]}
	return walkRecord(p, r)
}

func walkRecord(p []byte, r *Record) error {
	c := cursor{p: p}
	n := c.count(minMeasurement)
	for i := range n {
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
		if r != nil && i < MaxMeasurements {
			r.Measurements = append(r.Measurements, m)
		}
	}
	if r == nil {
		c.skipKeyValues()
		c.skipKeyValues()
	} else {
		r.MoreMeasurements = n - len(r.Measurements)
		r.Tags, r.MoreTags = c.keyValues(r.Tags)
		r.Attachments, r.MoreAttachments = c.keyValues(r.Attachments)
	}
	return c.end()
}

func (c *cursor) skipKeyValues() {
	for range c.count(minKeyValue) {
		c.string()
		if c.string(); c.err != nil {
			return
		}
	}
}

// keyValues appends the first MaxKeyValues to an empty slice, and returns how many more there are.
func (c *cursor) keyValues(to []KeyValue) (kept []KeyValue, more int) {
	n := c.count(minKeyValue)
	for range n {
		kv := KeyValue{Key: c.string(), Value: c.string()}
		if c.err != nil {
			return to, 0
		}
		if len(to) < MaxKeyValues {
			to = append(to, kv)
		}
	}
	return to, n - len(to)
}
