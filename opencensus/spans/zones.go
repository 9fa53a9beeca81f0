package spans

import (
	"bytes"
	_ "embed" // zones.txt, abbreviations.txt
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for hosts and containers without a database
)

// zoneNames are the names of the time zone database that is built in, one directory a line: "Asia/ Aden Almaty".
// Other names are not looked up: they would be names of files, chosen by a client.
//
//go:embed zones.txt
var zoneNames string

// abbreviations are what PHP takes abbreviations for, with the seconds east of UTC: of the zones that have
// one, in its list of up to dozens, the first.
//
//go:embed abbreviations.txt
var abbreviations string

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
		found.location = abbreviated(text)
	case "3":
		found.location = z.named(text)
	}
	if found.known = found.location != nil; !found.known {
		found.location = time.UTC
	}
	return found
}

// abbreviated returns the zone of an abbreviation, nil if there is none.
func abbreviated(name []byte) *time.Location {
	_, found, known := strings.Cut("\n"+abbreviations, "\n"+string(name)+" ")
	if !known || bytes.ContainsAny(name, " \n") {
		return nil
	}
	text, _, _ := strings.Cut(found, "\n")
	seconds, _ := strconv.Atoi(text)
	return time.FixedZone("", seconds)
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

// isZoneName reports whether a name is one of zoneNames.
func isZoneName(name string) bool {
	if strings.Contains(name, "\n") { // as zoneNames do
		return false
	}
	at := strings.LastIndexByte(name, '/') + 1
	_, found, _ := strings.Cut("\n"+zoneNames, "\n"+name[:at]+" ")
	line, _, _ := strings.Cut(found, "\n")
	return slices.Contains(strings.Fields(line), name[at:])
}
