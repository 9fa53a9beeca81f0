package dotstool

import (
	"fmt"
	"strconv"
	"time"

	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// maxText is how much of a value is written into a table: no terminal shows more of it, and a vector
// may have millions of elements.
const maxText = 512

// text returns a value for a table. Control characters in it are left to the table, which escapes
// them.
func text(t *schema.Type, v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return string(cut([]byte(v[:min(len(v), maxText+1)])))
	}
	return string(cut(appendText(nil, t, v)))
}

func cut(b []byte) []byte {
	if len(b) <= maxText {
		return b
	}
	return append(b[:maxText], "…"...)
}

// appendText appends a value as it stands within others. It ends early when there is more than a
// table shows.
func appendText(dst []byte, t *schema.Type, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case float32:
		return strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
	case float64:
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	case string:
		return strconv.AppendQuote(dst, v[:min(len(v), maxText)])
	case uint32:
		return appendEnum(dst, t.Enum, v)
	case value.UUID:
		return dynamic.AppendUUID(dst, v)
	case value.Timepoint:
		return appendTime(dst, v)
	case value.SteadyTimepoint:
		return append(strconv.AppendFloat(dst, float64(v), 'f', -1, 64), 's')
	case value.Duration:
		return append(strconv.AppendFloat(dst, float64(v), 'f', -1, 64), 's')
	case value.PropertySet:
		return appendSet(dst, v)
	case value.Any:
		return fmt.Appendf(dst, "%s (%d bytes)", v.TypeName[:min(len(v.TypeName), maxText)], len(v.Instance))
	case []any:
		return appendVector(dst, t.Elem, v)
	case *dynamic.Object:
		return appendStruct(dst, v)
	}
	return fmt.Appendf(dst, "%v", v)
}

func appendEnum(dst []byte, e *schema.Enum, tag uint32) []byte {
	if e != nil {
		if element := e.ByTag(tag); element != nil {
			return append(dst, element.Name...)
		}
	}
	return strconv.AppendUint(dst, uint64(tag), 10)
}

// appendTime appends a time to the millisecond; one that is no time of these millennia as its
// number of seconds.
func appendTime(dst []byte, t value.Timepoint) []byte {
	const year10000 = 253402300800
	if t >= 0 && t < year10000 {
		return t.Time().UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
	return append(strconv.AppendFloat(dst, float64(t), 'g', -1, 64), 's')
}

func appendSet(dst []byte, set value.PropertySet) []byte {
	dst = append(dst, '{')
	for tag, more := uint32(0), false; tag < 32; tag++ {
		if !set.Has(tag) {
			continue
		}
		if more {
			dst = append(dst, ' ')
		}
		dst, more = strconv.AppendUint(dst, uint64(tag), 10), true
	}
	return append(dst, '}')
}

func appendVector(dst []byte, elem *schema.Type, values []any) []byte {
	dst = append(dst, '[')
	for i, v := range values {
		if len(dst) > maxText {
			return dst
		}
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = appendText(dst, elem, v)
	}
	return append(dst, ']')
}

func appendStruct(dst []byte, o *dynamic.Object) []byte {
	dst = append(dst, '{')
	more := false
	for i := range o.Type.Properties {
		p := &o.Type.Properties[i]
		v := o.Get(p.Tag)
		if v == nil {
			continue
		}
		if len(dst) > maxText {
			return dst
		}
		if more {
			dst = append(dst, ' ')
		}
		dst, more = appendText(append(append(dst, p.Name...), ':'), p.Type, v), true
	}
	return append(dst, '}')
}

// timeText returns a time for JSON, null if there is none that JSON can have.
func timeText(t value.Timepoint, ok bool) *string {
	if !ok {
		return nil
	}
	at := t.Time()
	if at.IsZero() {
		return nil
	}
	s := at.UTC().Format(time.RFC3339Nano)
	return &s
}
