package wire

// Counts are what was lost of a stream, in messages by Type.Index. They are plain numbers: a
// Splitter adds to them during Feed and End.
type Counts struct {
	Malformed [Types]uint64 // the payload does not decode; at 0: no valid header where one is due
	Truncated [Types]uint64 // the client did not finish; at 0: not even the type
	Oversize  [Types]uint64 // the payload is larger than was allowed
	NoMemory  [Types]uint64 // there was no memory to keep what had arrived until the rest does
	Unknown   uint64        // messages of unknown type
	Skipped   uint64        // bytes that were skipped in search of a header
}

// Add adds those of o.
func (c *Counts) Add(o *Counts) {
	for i := range Types {
		c.Malformed[i] += o.Malformed[i]
		c.Truncated[i] += o.Truncated[i]
		c.Oversize[i] += o.Oversize[i]
		c.NoMemory[i] += o.NoMemory[i]
	}
	c.Unknown += o.Unknown
	c.Skipped += o.Skipped
}

// Reason is why a part of a stream was lost.
type Reason uint8

// The reasons: those of Counts.
const (
	Malformed Reason = iota + 1
	Truncated
	Oversize
	NoMemory
	UnknownType
	NoHeader // the bytes of Counts.Skipped
)

// String returns the reason as in labels of metrics.
func (r Reason) String() string {
	return [...]string{"", "malformed", "truncated", "oversize", "no_memory", "unknown_type", "no_header"}[r]
}

// Loss is a part of a stream that was not delivered.
type Loss struct {
	Reason Reason
	Offset uint64 // in the stream
	Bytes  uint64 // of the stream, the header's among them
	Header Header // without a type if there was none, or none that was complete
	Err    error  // if Malformed: why
}
