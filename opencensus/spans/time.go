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
func (e *encoding) times(of *members) (start, end uint64, unfinished bool) {
	start, hasStart := e.time(of.start)
	end, hasEnd := e.time(of.end)
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
func (r *reader) dateTime() (of dateTime) {
	for name := range r.members {
		switch string(name) {
		case "date":
			of.date = r.value()
		case "timezone_type":
			of.kind = r.value()
		case "timezone":
			of.zone = r.value()
		default:
			r.value()
		}
	}
	return of
}

// time returns a time in Unix nanoseconds. ok is false if it is missing.
func (e *encoding) time(of dateTime) (nanos uint64, ok bool) {
	d, ok := parseDate(e.text(of.date))
	if !ok {
		return 0, false
	}
	if !e.zone.is(of.kind, of.zone) {
		e.zone = e.zones.find(of.kind, of.zone, e.text(of.zone))
	}
	if !e.zone.known {
		e.UnknownZones++
	}
	at := time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.second, d.nanosecond, e.zone.location)
	return unixNanos(at.Unix(), at.Nanosecond())
}

// date is a local time.
type date struct{ year, month, day, hour, minute, second, nanosecond int }

// parseDate parses YYYY-MM-DD HH:MM:SS, with up to nine digits of a fraction.
func parseDate(text []byte) (d date, ok bool) {
	const layout = "0000-00-00 00:00:00"
	if len(text) < len(layout) {
		return d, false
	}
	for i, c := range text[:len(layout)] {
		if layout[i] == '0' && (c < '0' || c > '9') || layout[i] != '0' && c != layout[i] {
			return d, false
		}
	}
	two := func(i int) int { return int(text[i]-'0')*10 + int(text[i+1]-'0') }
	d = date{two(0)*100 + two(2), two(5), two(8), two(11), two(14), two(17), 0}
	if d.nanosecond, ok = parseFraction(text[len(layout):]); !ok {
		return d, false
	}
	return d, 1 <= d.month && d.month <= 12 && 1 <= d.day && d.day <= days(d.year, d.month) && d.hour < 24 &&
		d.minute < 60 && d.second < 60
}

// parseFraction parses a point and up to nine digits, or nothing, as nanoseconds.
func parseFraction(text []byte) (nanoseconds int, ok bool) {
	if len(text) == 0 {
		return 0, true
	}
	if text[0] != '.' || len(text) < 2 || len(text) > 10 {
		return 0, false
	}
	for i := 1; i < 10; i++ {
		digit := byte('0')
		if i < len(text) {
			digit = text[i]
		}
		if digit < '0' || digit > '9' {
			return 0, false
		}
		nanoseconds = nanoseconds*10 + int(digit-'0')
	}
	return nanoseconds, true
}

// days returns the number of days of a month.
func days(year, month int) int {
	switch {
	case month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0):
		return 29
	case month == 2:
		return 28
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	}
	return 31
}
