package wire

import "time"

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

// Header is what precedes the payload of a message.
type Header struct {
	Type     Type
	Sequence uint64 // at least 1
	PID      uint32 // in the client's own pid namespace; at least 1
	ThreadID uint64 // opaque; 0 unless PHP is thread-safe
	// Sent is when the client began to send the message, to the microsecond; with Padded to 128 s.
	Sent   time.Time
	Padded bool   // StartTime was a binary32, between zeros
	Length uint64 // of the payload, in bytes
}

// Message is a complete message.
type Message struct {
	Header
	Payload []byte
}

// Init is the payload of ProcessInit and RequestInit.
type Init struct {
	Version   uint8 // of the protocol
	PHP, Zend string
}

// MeasureType is the type of a measure's values.
type MeasureType uint8

const (
	Int     MeasureType = 1
	Float   MeasureType = 2
	Unknown MeasureType = 0xff // has no value
)

// Measure is the payload of MeasureCreate. Its texts may hold any bytes.
type Measure struct {
	Type                    MeasureType
	Name, Description, Unit string
}

// Aggregation is how a view aggregates. Values above LastValue are not known.
type Aggregation uint64

const (
	None         Aggregation = 0
	Count        Aggregation = 1
	Sum          Aggregation = 2
	Distribution Aggregation = 3
	LastValue    Aggregation = 4
)

// View is a view of ViewRegister. Its texts may hold any bytes.
type View struct {
	Name, Description string
	TagKeys           []string
	Measure           string
	Aggregation       Aggregation
	Boundaries        []float64 // of a Distribution: as sent, any values in any order
}

// Record is the payload of StatsRecord. All bytes are those of the payload.
type Record struct {
	Measurements []Measurement
	Tags         []KeyValue
	Attachments  []KeyValue
}

// Measurement is a value of a measure.
type Measurement struct {
	Measure []byte
	Type    MeasureType
	Int     uint64  // if Type is Int
	Float   float64 // if Type is Float; may be no number
}

// KeyValue is a tag or an attachment.
type KeyValue struct{ Key, Value []byte }
