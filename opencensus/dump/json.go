package dump

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"correlator/opencensus/wire"
)

// lines prints JSON objects.
type lines struct{ b bytes.Buffer }

// line is a message, or a part of the stream that is none.
type line struct {
	Offset   uint64     `json:"offset"`
	Lost     string     `json:"lost,omitempty"`
	Bytes    uint64     `json:"bytes,omitempty"` // of what was lost, the header's among them
	Type     string     `json:"type,omitempty"`
	Sequence uint64     `json:"sequence,omitempty"`
	PID      uint32     `json:"pid,omitempty"`
	ThreadID uint64     `json:"threadId,omitempty"`
	Sent     *time.Time `json:"sent,omitempty"`
	Padded   bool       `json:"padded,omitempty"` // sent is exact to 128 s
	Length   *uint64    `json:"length,omitempty"`
	Payload  any        `json:"payload,omitempty"`
	Error    string     `json:"error,omitempty"`
}

func lineOf(offset uint64, h wire.Header) line {
	l := line{Offset: offset}
	if h.Type != 0 {
		l.Type = h.Type.String()
	}
	if h.Sequence > 0 {
		l.Sequence, l.PID, l.ThreadID, l.Padded = h.Sequence, h.PID, h.ThreadID, h.Padded
		l.Sent, l.Length = &h.Sent, &h.Length
	}
	return l
}

func (j *lines) message(m wire.Message) {
	l := lineOf(m.Offset, m.Header)
	payload, err := decode(m)
	if err != nil {
		l.Error = err.Error()
	} else {
		l.Payload = toJSON(payload)
	}
	appendJSON(&j.b, l)
}

func (j *lines) loss(loss wire.Loss) {
	l := lineOf(loss.Offset, loss.Header)
	l.Lost, l.Bytes = loss.Reason.String(), loss.Bytes
	if loss.Err != nil {
		l.Error = loss.Err.Error()
	}
	appendJSON(&j.b, l)
}

// appendJSON appends a value as a line.
func appendJSON(b *bytes.Buffer, v any) {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // every value was made to be encoded
	}
}

func (j *lines) flush(w io.Writer) error {
	if j.b.Len() == 0 {
		return nil
	}
	_, err := w.Write(j.b.Bytes())
	j.b.Reset()
	if j.b.Cap() > maxKept {
		j.b = bytes.Buffer{}
	}
	return err
}

func (j *lines) end(io.Writer) error { return nil }

// maxKept is how much room for lines is kept between reads.
const maxKept = 1 << 20

// bytesText is any bytes: text if it is UTF-8, otherwise an object with the key hex.
type bytesText string

func (t bytesText) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(struct {
		Hex string `json:"hex"`
	}{hex.EncodeToString([]byte(t))})
}

// number is a float: text if it is not finite.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	switch v := float64(n); {
	case math.IsNaN(v):
		return []byte(`"NaN"`), nil
	case math.IsInf(v, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(v, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(v)
	}
}

type keyValue struct {
	Key   bytesText `json:"key"`
	Value bytesText `json:"value"`
}

func toJSON(payload any) any {
	switch p := payload.(type) {
	case wire.Init:
		return struct {
			Version uint8     `json:"version"`
			PHP     bytesText `json:"php"`
			Zend    bytesText `json:"zend"`
		}{p.Version, bytesText(p.PHP), bytesText(p.Zend)}
	case wire.Measure:
		return struct {
			Type        string    `json:"type"`
			Name        bytesText `json:"name"`
			Description bytesText `json:"description"`
			Unit        bytesText `json:"unit"`
		}{measureType(p.Type), bytesText(p.Name), bytesText(p.Description), bytesText(p.Unit)}
	case spans:
		return struct {
			Spans int `json:"spans"`
		}{int(p)}
	case float64:
		return struct {
			Seconds number `json:"seconds"`
		}{number(p)}
	case views:
		return withMore(viewsToJSON(p.list), p.more)
	case names:
		return withMore(texts(p.list), p.more)
	case *wire.Record:
		return recordToJSON(p)
	}
	return nil
}

// withMore is a list, or if that is not all, its beginning and the number of the others.
func withMore(list any, more int) any {
	if more == 0 {
		return list
	}
	return struct {
		First any `json:"first"`
		More  int `json:"more"`
	}{list, more}
}

func texts(list []string) []bytesText {
	result := make([]bytesText, len(list))
	for i, s := range list {
		result[i] = bytesText(s)
	}
	return result
}

func viewsToJSON(views []wire.View) any {
	type view struct {
		Name        bytesText `json:"name"`
		Description bytesText `json:"description"`
		TagKeys     any       `json:"tagKeys"`
		Measure     bytesText `json:"measure"`
		Aggregation string    `json:"aggregation"`
		Boundaries  []number  `json:"boundaries,omitempty"`
	}
	result := make([]view, len(views))
	for i, v := range views {
		result[i] = view{
			Name: bytesText(v.Name), Description: bytesText(v.Description),
			TagKeys: withMore(texts(v.TagKeys), v.MoreTagKeys),
			Measure: bytesText(v.Measure), Aggregation: aggregation(v.Aggregation),
		}
		for _, boundary := range v.Boundaries {
			result[i].Boundaries = append(result[i].Boundaries, number(boundary))
		}
	}
	return result
}

func recordToJSON(r *wire.Record) any {
	type measurement struct {
		Measure bytesText `json:"measure"`
		Type    string    `json:"type"`
		Value   any       `json:"value,omitempty"`
	}
	measurements := make([]measurement, len(r.Measurements))
	for i, m := range r.Measurements {
		measurements[i] = measurement{Measure: bytesText(m.Measure), Type: measureType(m.Type)}
		switch m.Type {
		case wire.Int:
			measurements[i].Value = m.Int
		case wire.Float:
			measurements[i].Value = number(m.Float)
		}
	}
	return struct {
		Measurements any `json:"measurements"`
		Tags         any `json:"tags"`
		Attachments  any `json:"attachments"`
	}{
		withMore(measurements, r.MoreMeasurements), withMore(keyValues(r.Tags), r.MoreTags),
		withMore(keyValues(r.Attachments), r.MoreAttachments),
	}
}

func keyValues(pairs []wire.KeyValue) []keyValue {
	result := make([]keyValue, len(pairs))
	for i, kv := range pairs {
		result[i] = keyValue{bytesText(kv.Key), bytesText(kv.Value)}
	}
	return result
}

// aggregations are the names of the known ones.
var aggregations = [...]string{"none", "count", "sum", "distribution", "last value"}

func aggregation(a wire.Aggregation) string {
	if a < wire.Aggregation(len(aggregations)) {
		return aggregations[a]
	}
	return fmt.Sprintf("aggregation %d", a)
}

func measureType(t wire.MeasureType) string {
	switch t {
	case wire.Int:
		return "int"
	case wire.Float:
		return "float"
	default:
		return "unknown"
	}
}
