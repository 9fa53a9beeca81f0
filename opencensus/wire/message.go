// Package wire reads the stream that the OpenCensus clients of PHP write to their daemon: it cuts
// it into messages, finds the next one where a client left one unfinished, and decodes all payloads
// but the JSON of trace exports.
//
// A message is a header (see Header) and a payload. Nothing else separates messages: no length
// precedes the header, no mark that could not occur in a payload. The userland client writes with a
// socket that does not block and gives up at the first write that would; what it has written stays
// in the stream, and the next message follows right behind. A Splitter detects that and searches.
//
// Payloads are made of these:
//
//	Byte      one unsigned byte
//	UVarInt   base 128, least significant group first, as in protobuf; minimal; at most 64 bits
//	Float64   IEEE 754 binary64, big endian
//	String    UVarInt length, then so many bytes of any value
//	Array     UVarInt count, then so many items
//	KeyValue  String key, String value
//
// The source of all layouts is what opencensus-php 0.6.0 and 0.7.0 and its extension 0.3.0 were
// observed to write. That differs from the protocol's document, which says that all numbers are big
// endian, that values of measurements are always floats, and that floats have 4 bytes behind a
// padded StartTime.
package wire

import "time"

// Header is what precedes the payload of a message.
//
//	size  field            encoding
//	4     start of message 00 00 00 00
//	1     type             Byte, not 0
//	1-10  sequence number  UVarInt, at least 1
//	1-10  process id       UVarInt, 1 to 2^32-1
//	1-10  thread id        UVarInt
//	8     StartTime        Float64, or 00 00, binary32 big endian, 00 00: seconds since 1970
//	1-10  payload length   UVarInt
type Header struct {
	Type     Type
	Sequence uint64 // at least 1
	PID      uint32 // in the client's own pid namespace; at least 1
	ThreadID uint64 // opaque; 0 unless PHP is thread-safe
	// Sent is when the client began to send the message, to the microsecond; with Padded to 128 s.
	Sent   time.Time
	Padded bool   // StartTime was a binary32, between zeros: of the extension on a 32-bit platform
	Length uint64 // of the payload, in bytes
}

// Message is a complete message.
type Message struct {
	Header
	Offset  uint64 // of the header, in the stream
	Payload []byte
}

// Init is the payload of ProcessInit and RequestInit.
//
//	Byte version, String PHP, String Zend
type Init struct {
	Version   uint8 // of the protocol
	PHP, Zend string
}

// MeasureType is the type of a measure's values.
type MeasureType uint8

// The types of measures.
const (
	Int     MeasureType = 1
	Float   MeasureType = 2
	Unknown MeasureType = 0xff // has no value
)

// Measure is the payload of MeasureCreate. Its texts may hold any bytes.
//
//	Byte type, String name, String description, String unit
type Measure struct {
	Type                    MeasureType
	Name, Description, Unit string
}

// Aggregation is how a view aggregates. Values above LastValue are not known.
type Aggregation uint64

// The aggregations of views.
const (
	None         Aggregation = 0
	Count        Aggregation = 1
	Sum          Aggregation = 2
	Distribution Aggregation = 3
	LastValue    Aggregation = 4
)

// View is a view of ViewRegister, whose payload is an Array of these. Its texts may hold any bytes.
//
//	String name, String description, Array of String tag keys, String measure,
//	UVarInt aggregation, if that is Distribution: Array of Float64 boundaries
type View struct {
	Name, Description string
	TagKeys           []string // the first MaxTagKeys
	MoreTagKeys       int      // that were not decoded
	Measure           string
	Aggregation       Aggregation
	Boundaries        []float64 // of a Distribution: as sent, any values in any order
}

// Record is the payload of StatsRecord. All bytes are those of the payload.
//
//	Array of Measurement, Array of KeyValue tags, Array of KeyValue attachments
type Record struct {
	Measurements []Measurement // the first MaxMeasurements
	Tags         []KeyValue    // the first MaxKeyValues
	Attachments  []KeyValue    // the first MaxKeyValues

	MoreMeasurements, MoreTags, MoreAttachments int // that were not decoded
}

// Measurement is a value of a measure.
//
//	String measure, Byte type, Int: UVarInt, Float: Float64, Unknown: nothing
//
// The clients write a negative integer as one byte, its value modulo 256. From 80 on it reads as
// the beginning of a longer UVarInt, and the record does not decode; below, it is a wrong value.
type Measurement struct {
	Measure []byte
	Type    MeasureType
	Int     uint64  // if Type is Int
	Float   float64 // if Type is Float; may be no number
}

// KeyValue is a tag or an attachment.
type KeyValue struct{ Key, Value []byte }
