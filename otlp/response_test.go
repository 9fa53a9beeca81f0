package otlp

import (
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"

	colmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	colprofiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	coltrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"gotest.tools/v3/assert"
)

// The responses of all signals are read like the official messages write them.
func TestDecodeResponse(t *testing.T) {
	want := partialSuccess{rejected: 300, message: "no"}
	for _, m := range []proto.Message{
		&coltrace.ExportTraceServiceResponse{
			PartialSuccess: &coltrace.ExportTracePartialSuccess{RejectedSpans: 300, ErrorMessage: "no"},
		},
		&colmetrics.ExportMetricsServiceResponse{
			PartialSuccess: &colmetrics.ExportMetricsPartialSuccess{RejectedDataPoints: 300, ErrorMessage: "no"},
		},
		&colprofiles.ExportProfilesServiceResponse{
			PartialSuccess: &colprofiles.ExportProfilesPartialSuccess{RejectedProfiles: 300, ErrorMessage: "no"},
		},
	} {
		b, err := proto.Marshal(m)
		assert.NilError(t, err)
		// partial_success of 7 bytes: rejected 300, error_message "no"
		got := hex.EncodeToString(b)
		assert.Check(t, got == "0a0708ac0212026e6f", "%T is %s", m, got)
		p, ok := decodeResponse(b)
		assert.Check(t, ok && p == want, "%T: %+v, %t", m, p, ok)
	}
	for _, c := range []struct {
		hex  string
		want partialSuccess
		ok   bool
	}{
		{"", partialSuccess{}, true},
		{"0a00", partialSuccess{}, true},
		{"0a020801" + "0a020802", partialSuccess{rejected: 2}, true},       // the last one counts
		{"0a0b08ffffffffffffffffff01", partialSuccess{rejected: -1}, true}, // -1 has ten bytes
		{"0810" + "1204" + "61757468", partialSuccess{}, false},            // a Status: 16, "auth"
		{"0a02" + "0a00", partialSuccess{}, true},                          // rejected as bytes: unknown
		{"1001", partialSuccess{}, true},                                   // field 2
		{"0a", partialSuccess{}, false},                                    // no length
		{"0a05" + "0801", partialSuccess{}, false},                         // shorter than it says
		{"0a04" + "0807" + "1205", partialSuccess{rejected: 7}, false},     // what was read stands
		{"0a03" + "1201ff", partialSuccess{message: "?"}, false},           // not UTF-8
		{"00", partialSuccess{}, false},                                    // field 0
		{"0f", partialSuccess{}, false},                                    // wire type 7
		{"1f8b", partialSuccess{}, false},                                  // gzip
		{strings.Repeat("1b", 20_000), partialSuccess{}, false},            // groups without end
		{"0a02" + "0a", partialSuccess{}, false},                           // cut in the middle
		// One line:
		{"0a06" + "1204" + hex.EncodeToString([]byte("a\nb\x7f")), partialSuccess{message: "a?b?"}, true},
	} {
		b, err := hex.DecodeString(c.hex)
		assert.NilError(t, err)
		p, ok := decodeResponse(b)
		assert.Check(t, ok == c.ok && p == c.want, "%.40s: %+v, %t, want %+v, %t", c.hex, p, ok, c.want, c.ok)
	}
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		"text":                                  "text",
		"":                                      "",
		"a\r\nb\x1b[31mc\x00":                   "a??b?[31mc?",
		"\xff":                                  "?",
		"größe":                                 "größe",
		strings.Repeat("x", maxMessage+1):       strings.Repeat("x", maxMessage),
		strings.Repeat("x", maxMessage-1) + "ß": strings.Repeat("x", maxMessage-1),
		strings.Repeat("x", maxMessage-2) + "ßß":   strings.Repeat("x", maxMessage-2) + "ß",
		strings.Repeat("x", maxMessage-3) + "😀":    strings.Repeat("x", maxMessage-3),
		strings.Repeat("\xbf", 2*maxMessage) + "x": strings.Repeat("?", maxMessage),
		"a\u009b31mb\u2028c\u202etxt.exe\u200bd":   "a?31mb?c?txt.exe?d", // CSI, a new line, right to left, nothing
		"\ufffd\ufeff\u00a0日本":                     "???日本",
	} {
		if got := clip(in); got != want {
			t.Errorf("%.20q of %d bytes became %.20q of %d, want %d", in, len(in), got, len(got), len(want))
		}
	}
}

// Details of a status that cannot be decoded are counted, and otherwise as if they were not there.
func TestBrokenDetails(t *testing.T) {
	a := &result{code: codes.ResourceExhausted}
	a.readDetails([]*anypb.Any{
		nil, {}, {TypeUrl: "x", Value: []byte{0xff}},
		{TypeUrl: "type.googleapis.com/google.rpc.RetryInfo", Value: []byte{0xff}},
	})
	assert.Check(t, !a.retryInfo && a.malformed && judge(a, false) == verdictDrop, "%+v", a)
	// A negative delay counts as none: RESOURCE_EXHAUSTED is not retried for it.
	negative, err := anypb.New(&errdetails.RetryInfo{RetryDelay: nil})
	assert.NilError(t, err)
	negative.Value = []byte{0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01} // seconds: -1
	a = &result{code: codes.ResourceExhausted}
	a.readDetails([]*anypb.Any{negative})
	assert.Check(t, !a.retryInfo && a.malformed && judge(a, false) == verdictDrop && judge(a, true) == verdictRetry,
		"%+v", a)
}

// Whatever a receiver answers, what is made of it stays within bounds, and a batch ends in one
// counter.
func FuzzResult(f *testing.F) {
	f.Add(uint32(0), partialResponse(3, "too old"), []byte(nil), "", true)
	f.Add(uint32(8), []byte(nil), []byte{0x0a, 0x02, 0x08, 0x05}, "wait", false)
	f.Fuzz(func(t *testing.T, code uint32, response, retryInfo []byte, message string, final bool) {
		a := &result{code: known(codes.Code(code)), message: clip(message), final: final}
		if a.code == codes.OK {
			p, ok := decodeResponse(response)
			a.partial, a.malformed = p, !ok
		}
		a.readDetails([]*anypb.Any{{TypeUrl: "type.googleapis.com/google.rpc.RetryInfo", Value: retryInfo}})
		for _, s := range []string{a.message, a.partial.message} {
			assert.Check(t, len(s) <= maxMessage && utf8.ValidString(s) && !strings.ContainsAny(s, "\n\r\x00\x1b"),
				"text %q", s)
		}
		assert.Check(t, a.delay >= 0 && a.delay <= maxDelay && (a.delay <= 0 || a.retryInfo), "delay %v", a.delay)
		d := NewDestination("http://x")
		c := newScheduler(1000, []Destination{d}, always(1))
		p := c.destinations[0]
		c.enqueue(NewBatch(Traces, []byte("x"), 5, epoch), epoch)
		e := p.take(epoch)
		checkSums(t, c, []flying{{p, e}})
		p.finish(e, a, epoch)
		checkSums(t, c, nil)
	})
}
