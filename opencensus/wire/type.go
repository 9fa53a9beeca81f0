package wire

import "strconv"

// Type is the kind of a message. 0 is none.
type Type uint8

// The types that clients send.
const (
	ProcessInit     Type = 1
	ProcessShutdown Type = 2
	RequestInit     Type = 3
	RequestShutdown Type = 4
	TraceExport     Type = 20
	MeasureCreate   Type = 40
	ReportingPeriod Type = 41
	ViewRegister    Type = 42
	ViewUnregister  Type = 43
	StatsRecord     Type = 44
)

// Types is the number of values of Type.Index.
const Types = 11

// Index numbers the types that clients send from 1 on; 0 are all others.
func (t Type) Index() int {
	if int(t) < len(properties) {
		return int(properties[t].index)
	}
	return 0
}

// TypeAt returns the type with that index; 0 for 0.
func TypeAt(index int) Type {
	for t, p := range properties {
		if int(p.index) == index {
			return Type(t)
		}
	}
	return 0
}

// String returns the protocol's name of a type, in lower case and without "MSG_".
func (t Type) String() string {
	if i := t.Index(); i > 0 {
		return properties[t].name
	}
	return "type " + strconv.Itoa(int(t))
}

const (
	kilo = 1 << 10
	mega = 1 << 20
)

// MaxTraceBytes is the largest payload of a trace export: what announces more is not a header. It
// is 200 times what the userland client gets through a socket's buffer.
const MaxTraceBytes = 64 * mega

// maxUnknownBytes is the largest payload of a message of unknown type: that of the others.
const maxUnknownBytes = mega

// properties are those of the types. Longer payloads than the limits do not occur: a request's
// views take some kilobytes, a measure and a record less than 1 KiB, an init 15 bytes. A header
// that announces more is taken for none.
var properties = [...]struct {
	name  string
	limit uint64 // of the payload, in bytes
	index uint8
}{
	ProcessInit:     {"proc_init", 4 * kilo, 1},
	ProcessShutdown: {"proc_shutdown", 0, 2},
	RequestInit:     {"req_init", 4 * kilo, 3},
	RequestShutdown: {"req_shutdown", 0, 4},
	TraceExport:     {"trace_export", MaxTraceBytes, 5},
	MeasureCreate:   {"measure_create", 64 * kilo, 6},
	ReportingPeriod: {"view_reporting_period", 8, 7},
	ViewRegister:    {"view_register", mega, 8},
	ViewUnregister:  {"view_unregister", mega, 9},
	StatsRecord:     {"stats_record", mega, 10},
}
