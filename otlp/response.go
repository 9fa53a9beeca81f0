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
)

const (
	// maxMessage is how much of a receiver's text is kept: enough for a line in a log.
	maxMessage = 1 << 10
	// maxDelay is the longest wait that a receiver may ask for. Longer ones are mistakes, or worse.
	maxDelay = 10 * time.Minute
)

// answer is what one attempt ended with.
type answer struct {
	code    codes.Code // a known one
	message string     // of the status, cut

	retryInfo bool          // the status has a RetryInfo
	delay     time.Duration // that it asks for, 0 to maxDelay

	partial partialSuccess // of an OK

	malformed bool // something in it is not as it must be; what could be used was
	final     bool // not to be sent again, whatever the code says
	doubtful  bool // no answer came, and the receiver may have the request

	took time.Duration
}

// partialSuccess is the answer that says which part of a batch was not taken. Both fields unset is
// success; a message alone is a warning.
type partialSuccess struct {
	rejected int64
	message  string
}

// decodeResponse reads an Export<Signal>ServiceResponse, which is the same for all signals as far as a
// client needs it:
//
//	response         field 1  partial_success  message
//	partial_success  field 1  rejected_*       int64
//	                 field 2  error_message    string
//
// Other fields are skipped, also in other wire types. It is false for bytes that are no such message; what
// was read until there stands.
func decodeResponse(b []byte) (p partialSuccess, ok bool) {
	ok = eachField(b, func(num protowire.Number, typ protowire.Type, v []byte) bool {
		if num != 1 || typ != protowire.BytesType {
			return true
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

// eachField calls field with every field of a message and its encoded value, until it says false.
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

// readDetails takes the RetryInfo from the details of a status: of several, the longest delay. A
// negative one counts as none, one over maxDelay is cut; both are malformed, like details that cannot be
// decoded.
func (a *answer) readDetails(details []*anypb.Any) {
	for _, d := range details {
		if !d.MessageIs((*errdetails.RetryInfo)(nil)) {
			continue
		}
		var info errdetails.RetryInfo
		if proto.Unmarshal(d.GetValue(), &info) != nil {
			a.malformed = true
			continue
		}
		delay, ok := retryDelay(info.GetRetryDelay())
		a.malformed = a.malformed || !ok
		if delay >= 0 {
			a.retryInfo = true
			a.delay = max(a.delay, delay)
		}
	}
}

// retryDelay is the delay of a RetryInfo as far as it is followed, negative if it is not.
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

// clip makes a line of a receiver's text: valid UTF-8, no longer than maxMessage, and nothing in it that a
// terminal or an editor would obey: controls (those above 0x7f too), line separators, changes of direction.
func clip(s string) string {
	if len(s) > maxMessage {
		n := maxMessage
		for n > maxMessage-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
