package spans

import (
	"bytes"
	_ "embed" // zones.txt
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for hosts and containers without a database
)

// zoneNames are the names of the time zone database that is built in, one a line. Other names are
// not looked up: they would be names of files, chosen by a client.
//
//go:embed zones.txt
var zoneNames string

// zone is the zone of a time.
type zone struct {
	kind, name value // the members that it was found by, in the payload
	location   *time.Location
	known      bool // not taken as UTC for want of a better one
}

// is reports whether a zone was found by those members.
func (z *zone) is(kind, name value) bool {
	return z.location != nil && bytes.Equal(z.kind, kind) && bytes.Equal(z.name, name)
}

// zones finds the zones of the database, and keeps those that were found.
type zones struct {
	mu     sync.RWMutex
	loaded map[string]*time.Location // nil: the database does not have it
}

// find returns the zone of a type by its name, whose text is given, too.
func (z *zones) find(kind, name value, text []byte) zone {
	found := zone{kind: kind, name: name}
	switch string(kind) {
	case "1":
		found.location = offset(text)
	case "2":
		switch minutes, known := abbreviations[string(text)]; {
		case known && minutes == 0:
			found.location = time.UTC
		case known:
			found.location = time.FixedZone("", 60*minutes)
		}
	case "3":
		found.location = z.named(text)
	}
	if found.known = found.location != nil; !found.known {
		found.location = time.UTC
	}
	return found
}

// abbreviations are what PHP takes abbreviations for, in minutes: of the zones that have one, in its
// list of up to dozens, the first. Those that nobody has used for decades are left out.
var abbreviations = map[string]int{
	"UTC": 0, "GMT": 0, "Z": 0,
	"SST":  -11 * 60,
	"HST":  -10 * 60,
	"HDT":  -570,
	"AKST": -9 * 60,
	"AKDT": -8 * 60, "PST": -8 * 60,
	"MST": -7 * 60, "PDT": -7 * 60,
	"CST": -6 * 60, "MDT": -6 * 60,
	"CDT": -5 * 60, "EST": -5 * 60,
	"AST": -4 * 60, "EDT": -4 * 60,
	"NST": -210,
	"ADT": -3 * 60,
	"UCT": 0 * 60, "WET": 0 * 60,
	"BST": 1 * 60, "CET": 1 * 60, "MET": 1 * 60, "WAT": 1 * 60, "WEST": 1 * 60,
	"CAT": 2 * 60, "CEST": 2 * 60, "EET": 2 * 60, "IST": 2 * 60, "MEST": 2 * 60, "SAST": 2 * 60,
	"EAT": 3 * 60, "EEST": 3 * 60, "IDT": 3 * 60, "MSK": 3 * 60,
	"PKT":  5 * 60,
	"WIB":  7 * 60,
	"AWST": 8 * 60, "HKT": 8 * 60, "WITA": 8 * 60,
	"KST": 510,
	"JST": 9 * 60, "WIT": 9 * 60,
	"ACST": 570,
	"AEST": 10 * 60, "CHST": 10 * 60,
	"ACDT": 630,
	"AEDT": 11 * 60,
	"NZST": 12 * 60,
	"NZDT": 13 * 60,
}

// offset returns the zone of an offset: a sign, HH:MM, and maybe :SS. It returns nil for other
// text.
func offset(text []byte) *time.Location {
	const layout = "+00:00:00"
	if len(text) != len("+00:00") && len(text) != len(layout) || text[0] != '+' && text[0] != '-' {
		return nil
	}
	var seconds int
	unit := 3600
	for i := 1; i < len(text); i += 3 {
		if i > 1 && text[i-1] != ':' || text[i] < '0' || text[i] > '9' || text[i+1] < '0' || text[i+1] > '9' {
			return nil
		}
		seconds += unit * (int(text[i]-'0')*10 + int(text[i+1]-'0'))
		unit /= 60
	}
	if seconds == 0 {
		return time.UTC
	}
	if text[0] == '-' {
		seconds = -seconds
	}
	return time.FixedZone("", seconds)
}

// named returns the zone of a name, nil if there is none.
func (z *zones) named(name []byte) *time.Location {
	if string(name) == "UTC" {
		return time.UTC
	}
	z.mu.RLock()
	location, ok := z.loaded[string(name)]
	z.mu.RUnlock()
	if ok || !isZoneName(string(name)) {
		return location
	}
	location, err := time.LoadLocation(string(name))
	if err != nil {
		location = nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.loaded == nil {
		z.loaded = make(map[string]*time.Location)
	}
	z.loaded[string(name)] = location
	return location
}

// isZoneName reports whether a name is a line of zoneNames.
func isZoneName(name string) bool {
	const longest = 64
	if name == "" || len(name) > longest || strings.Contains(name, "\n") {
		return false
	}
	return strings.HasPrefix(zoneNames, name+"\n") || strings.Contains(zoneNames, "\n"+name+"\n")
}
