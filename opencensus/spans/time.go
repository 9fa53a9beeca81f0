package spans

import (
	"math"
	"time"
)

// A time is an object as PHP encodes its dates:
//
//	{"date": "2026-11-20 17:41:38.067870", "timezone_type": 3, "timezone": "UTC"}
//
//	date      local time in the zone, with six digits behind the point
//	type 1    the zone is an offset: +00:00, -07:30
//	type 2    an abbreviation: EST
//	type 3    a name of the time zone database: UTC, Europe/Paris

// times returns the times of a span, in Unix nanoseconds. The client sends null as the end of a
// span that was not ended, its extension 1970-01-01: such a span lasts at least until it was sent.
func (e *encoding) times(m *members) (start, end uint64, unfinished bool) {
	start, hasStart := e.time(m.start)
	end, hasEnd := e.time(m.end)
	switch {
	case !hasStart && hasEnd:
		start = end
	case !hasStart:
		start = e.sent
	}
	if !hasEnd {
		end = e.sent
	}
	return start, max(start, end), !hasEnd
}

// sentAt returns when an export was sent, as far as is known.
func sentAt(x *Export) uint64 {
	at := x.Sent
	if at.IsZero() {
		at = x.Received
	}
	nanos, _ := unixNanos(at.Unix(), at.Nanosecond())
	return nanos
}

// unixNanos returns a time in Unix nanoseconds. ok is false, and the time 0, if it is not between
// 1970, which is what a missing time is, and 2262, where 64 bits end.
func unixNanos(seconds int64, nanoseconds int) (nanos uint64, ok bool) {
	if seconds < 0 || seconds >= math.MaxInt64/int64(time.Second) || seconds == 0 && nanoseconds == 0 {
		return 0, false
	}
	return uint64(seconds)*1e9 + uint64(nanoseconds), true
}

// dateTime are the members of such an object. Without a date the time is missing.
type dateTime struct{ date, kind, zone value }

// dateTime reads the next value.
func (r *reader) dateTime() (d dateTime) {
	r.into(place{"date", &d.date}, place{"timezone_type", &d.kind}, place{"timezone", &d.zone})
	return d
}

// time returns a time in Unix nanoseconds. ok is false if it is missing.
func (e *encoding) time(d dateTime) (nanos uint64, ok bool) {
	if !e.zone.is(d.kind, d.zone) {
		e.zone = e.zones.find(d.kind, d.zone, e.text(d.zone))
	}
	at, ok := parseDate(e.text(d.date), e.zone.location)
	if !ok {
		return 0, false
	}
	if !e.zone.known {
		e.UnknownZones++
	}
	return unixNanos(at.Unix(), at.Nanosecond())
}

// parseDate parses YYYY-MM-DD HH:MM:SS, with up to nine digits of a fraction. [time.ParseInLocation]
// would also take an hour of one digit, a comma, and more digits.
func parseDate(text []byte, in *time.Location) (at time.Time, ok bool) {
	const layout = time.DateTime
	fraction := len(text) - len(layout)
	if fraction < 0 || fraction == 1 || fraction > len(".123456789") || text[len("2006-01-02 15")] != ':' ||
		fraction > 0 && text[len(layout)] != '.' {
		return at, false
	}
	at, err := time.ParseInLocation(layout, string(text), in)
	return at, err == nil
}
