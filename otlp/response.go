package otlp

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"correlator/internal/host/textcut"
)

const (
	// maxMessage is how much of a receiver's text is kept: enough for a line in a log.
	maxMessage = 1 << 10
	// maxDelay is the longest wait that a receiver may ask for. Longer ones are mistakes, or worse.
	maxDelay = 10 * time.Minute
)

// result is how one attempt ended.
type result struct {
	code    codes.Code // a known one
	message string     // of the status, at most maxMessage

	retryInfo bool          // the status has a RetryInfo
	delay     time.Duration // that it asks for, 0 to maxDelay

	partial partialSuccess // of an OK

	malformed  bool // something in the response is invalid; the rest was used
	final      bool // not to be sent again whatever the code is
	unanswered bool // the receiver did not respond
	doubtful   bool // it did not respond, and may have the request

	took time.Duration
}

// partialSuccess reports which part of a batch the receiver rejected. Both fields unset is success;
// a message alone is a warning.
type partialSuccess struct {
	rejected int64
	message  string
}

// decodeResponse reads an Export<Signal>ServiceResponse. The fields that a client needs are the
// same for all signals:
//
//	response         field 1  partial_success  message
//	partial_success  field 1  rejected_*       int64
//	                 field 2  error_message    string
//
// Other fields, and other wire types of partial_success's, are skipped. ok is false if the bytes are no such message;
// fields before the error are returned. A number in field 1 is the code of a Status.
func decodeResponse(b []byte) (p partialSuccess, ok bool) {
	ok = eachField(b, func(num protowire.Number, typ protowire.Type, v []byte) bool {
		if num != 1 {
			return true
		}
		if typ != protowire.BytesType {
			return false
		}
		inner, _ := protowire.ConsumeBytes(v)
		return eachField(inner, func(num protowire.Number, typ protowire.Type, v []byte) bool {
			switch {
			case num == 1 && typ == protowire.VarintType:
				n, _ := protowire.ConsumeVarint(v)
				p.rejected = int64(n)
			case num == 2 && typ == protowire.BytesType:
				s, _ := protowire.ConsumeBytes(v)
				p.message = clip(string(s[:min(len(s), maxMessage+1)]))
				return utf8.Valid(s)
			}
			return true
		})
	})
	return p, ok
}

// eachField calls field with every field of a message and its encoded value, until field returns
// false.
func eachField(b []byte, field func(protowire.Number, protowire.Type, []byte) bool) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		if n < 0 || !field(num, typ, b[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// readDetails reads the RetryInfo in the details of a status: of several, the longest delay. A
// negative delay counts as none and one over maxDelay is reduced; both are malformed, like details
// that cannot be decoded.
func (r *result) readDetails(details []*anypb.Any) {
	for _, d := range details {
		if !d.MessageIs((*errdetails.RetryInfo)(nil)) {
			continue
		}
		var info errdetails.RetryInfo
		if proto.Unmarshal(d.GetValue(), &info) != nil {
			r.malformed = true
			continue
		}
		delay, ok := retryDelay(info.GetRetryDelay())
		r.malformed = r.malformed || !ok
		if delay >= 0 {
			r.retryInfo = true
			r.delay = max(r.delay, delay)
		}
	}
}

// retryDelay returns the delay of a RetryInfo, negative if it is to be ignored; ok is false if it
// is out of range.
func retryDelay(d *durationpb.Duration) (delay time.Duration, ok bool) {
	sec, nanos := d.GetSeconds(), d.GetNanos()
	switch {
	case sec < 0 || nanos < 0:
		return -1, false
	case sec > int64(maxDelay/time.Second):
		return maxDelay, false
	}
	delay = time.Duration(sec)*time.Second + time.Duration(nanos)
	return min(delay, maxDelay), delay <= maxDelay
}

// clip makes one line of a receiver's text: valid UTF-8 of at most maxMessage bytes, without
// anything that a terminal or an editor would obey: controls (also above 0x7f), line separators,
// changes of direction.
func clip(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, textcut.At(s, maxMessage))
}
