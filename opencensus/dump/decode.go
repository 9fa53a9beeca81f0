package dump

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"correlator/opencensus/wire"
)

// spans is the number of those of a trace export.
type spans int

// views are those of a registration, as far as they are decoded, and how many more there are.
type views struct {
	list []wire.View
	more int
}

// names are those of views, as far as they are decoded, and how many more there are.
type names struct {
	list []string
	more int
}

// decode returns the payload of a message: a type of wire or of above, or nil if it has none.
func decode(m wire.Message) (any, error) {
	switch m.Type {
	case wire.ProcessInit, wire.RequestInit:
		return wire.DecodeInit(m.Payload)
	case wire.MeasureCreate:
		return wire.DecodeMeasure(m.Payload)
	case wire.ReportingPeriod:
		return wire.DecodePeriod(m.Payload, m.Padded)
	case wire.ViewRegister:
		list, more, err := wire.DecodeViews(m.Payload)
		return views{list, more}, err
	case wire.ViewUnregister:
		list, more, err := wire.DecodeNames(m.Payload)
		return names{list, more}, err
	case wire.StatsRecord:
		r := &wire.Record{}
		err := r.Decode(m.Payload)
		return r, err
	case wire.TraceExport:
		if len(m.Payload) == 0 {
			return spans(0), nil
		}
		n, err := countSpans(m.Payload)
		if err != nil {
			return nil, fmt.Errorf("decoding spans: %w", err)
		}
		return spans(n), nil
	}
	return nil, nil
}

// countSpans returns the number of elements of a list or an object.
func countSpans(p []byte) (int, error) {
	d := json.NewDecoder(bytes.NewReader(p))
	outer, err := d.Token()
	if err != nil {
		return 0, err
	}
	if outer != json.Delim('[') && outer != json.Delim('{') {
		return 0, errors.New("neither a list nor an object")
	}
	n := 0
	for ; d.More(); n++ {
		if outer == json.Delim('{') {
			if _, err := d.Token(); err != nil {
				return 0, err
			}
		}
		var span json.RawMessage
		if err := d.Decode(&span); err != nil {
			return 0, err
		}
	}
	if _, err := d.Token(); err != nil {
		return 0, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return 0, errors.New("text behind the spans")
	}
	return n, nil
}
