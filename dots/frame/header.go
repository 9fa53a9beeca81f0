// Package frame encodes and decodes transmissions: a header and an instance, as they follow each
// other on a stream.
//
// Format v2, of which all numbers are big-endian:
//
//	offset  size  field
//	0       1     1A
//	1       4     size of what follows
//	5             header: CBOR, a Header
//	              instance: CBOR, of the type that the header names
//
// Format v1, of older guests, has the header within a second one:
//
//	offset  size  field
//	0       2     size of the transport header, little-endian
//	2             transport header: CBOR, a map
//	              instance: CBOR
//
//	tag  member of the transport header
//	1    text, "SYS" for internal types other than DotsClient and DotsDescriptorRequest
//	2    text, name of the type
//	3    Header
//	4    uint32, size of the instance
//	5    uint32, never sent
//
// Members 1, 2 and 5 mean nothing to receivers. Guests of v1 rely on a time and a sender in every
// header, which therefore are added.
//
// Sizes are exact: a header that does not end where its frame says is an error. The instance is
// what is left of a frame; whoever decodes it with its type must demand that it ends there.
package frame

import (
	"errors"
	"fmt"

	"correlator/dots/cbor"
	"correlator/dots/value"
)

// Members of a header that are set, or are to be sent.
const (
	TypeName       value.PropertySet = 1 << 1
	SentTime       value.PropertySet = 1 << 2
	Attributes     value.PropertySet = 1 << 3
	RemoveObj      value.PropertySet = 1 << 4
	Sender         value.PropertySet = 1 << 5
	IsFromMyself   value.PropertySet = 1 << 6
	ServerSentTime value.PropertySet = 1 << 7
	FromCache      value.PropertySet = 1 << 8
	SubscriptionID value.PropertySet = 1 << 9
)

// Header is what precedes every instance. A member that is not in Set means nothing.
//
//	tag  type          member
//	1    string        TypeName: type of the instance
//	2    timepoint     SentTime: when the first sender sent it
//	3    property_set  Attributes: properties transmitted, unset if the instance lacks them
//	4    bool          RemoveObj: the object is removed
//	5    uint32        Sender: client id of the first sender; 1 is the broker
//	6    bool          IsFromMyself: means nothing on the wire
//	7    timepoint     ServerSentTime: when the broker forwarded it
//	8    uint32        FromCache: objects that follow in a replay of the cache
//	9    uint32        SubscriptionID: filtered subscription that it answers
type Header struct {
	TypeName       []byte // a part of what was decoded
	SentTime       value.Timepoint
	ServerSentTime value.Timepoint
	Attributes     value.PropertySet
	Sender         uint32
	FromCache      uint32
	SubscriptionID uint32
	RemoveObj      bool
	IsFromMyself   bool
	Set            value.PropertySet // members that are set
}

// ErrNoTypeName is returned for a header without a type name.
var ErrNoTypeName = errors.New("header without a type name")

// Decode decodes the header that data begins with, and returns its length. Unknown members are
// skipped. The type name remains a part of data.
func (h *Header) Decode(data []byte) (n int, err error) {
	if n := h.decodeUsual(data); n > 0 {
		return n, nil
	}
	r := cbor.NewReader(data)
	h.read(&r)
	if err := r.Err(); err != nil {
		return 0, fmt.Errorf("decoding a header: %w", err)
	}
	return r.Pos(), nil
}

// read reads a header. Of a member that occurs twice the last one counts.
func (h *Header) read(r *cbor.Reader) {
	h.Set = 0
	for n := r.Map(); n > 0 && r.Err() == nil; n-- {
		tag := r.Uint(64)
		switch tag {
		case 1:
			h.TypeName = r.Text()
		case 2:
			h.SentTime = value.Timepoint(r.Float64())
		case 3:
			h.Attributes = value.PropertySet(r.Uint(32))
		case 4:
			h.RemoveObj = r.Bool()
		case 5:
			h.Sender = uint32(r.Uint(32))
		case 6:
			h.IsFromMyself = r.Bool()
		case 7:
			h.ServerSentTime = value.Timepoint(r.Float64())
		case 8:
			h.FromCache = uint32(r.Uint(32))
		case 9:
			h.SubscriptionID = uint32(r.Uint(32))
		default:
			r.Skip()
			continue
		}
		h.Set |= 1 << tag
	}
	if h.Set&TypeName == 0 {
		r.Fail(ErrNoTypeName)
	}
}

// Append appends the members that are set, in the order of the C++ implementation.
func (h *Header) Append(dst []byte) []byte {
	set := h.Set & (1<<10 - 2)
	dst = cbor.AppendMap(dst, set.Len())
	if set&TypeName != 0 {
		dst = cbor.AppendText(append(dst, 1), h.TypeName)
	}
	if set&SentTime != 0 {
		dst = cbor.AppendFloat64(append(dst, 2), float64(h.SentTime))
	}
	if set&ServerSentTime != 0 {
		dst = cbor.AppendFloat64(append(dst, 7), float64(h.ServerSentTime))
	}
	if set&Attributes != 0 {
		dst = cbor.AppendUint(append(dst, 3), uint64(h.Attributes))
	}
	if set&Sender != 0 {
		dst = cbor.AppendUint(append(dst, 5), uint64(h.Sender))
	}
	if set&FromCache != 0 {
		dst = cbor.AppendUint(append(dst, 8), uint64(h.FromCache))
	}
	if set&RemoveObj != 0 {
		dst = cbor.AppendBool(append(dst, 4), h.RemoveObj)
	}
	if set&IsFromMyself != 0 {
		dst = cbor.AppendBool(append(dst, 6), h.IsFromMyself)
	}
	if set&SubscriptionID != 0 {
		dst = cbor.AppendUint(append(dst, 9), uint64(h.SubscriptionID))
	}
	return dst
}
