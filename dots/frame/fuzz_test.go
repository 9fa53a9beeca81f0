package frame_test

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/recordings"
)

// FuzzFrame checks that what is decoded is encoded to a frame that is decoded to the same, and that
// nothing beyond the first frame is looked at.
func FuzzFrame(f *testing.F) {
	for _, r := range recordings.All(f) {
		for _, frm := range r.Frames {
			if !r.WebSocket {
				f.Add(r.Format == frame.V1, frm.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, v1 bool, data []byte) {
		format := frame.V2
		if v1 {
			format = frame.V1
		}
		const limit = 1 << 20
		var h frame.Header
		instance, n, err := frame.Next(format, data, limit, &h)
		assert.Assert(t, n >= 0 && n <= len(data) && (err == nil || n == 0),
			"%d of %d bytes, error %v", n, len(data), err)
		if n == 0 {
			return
		}
		encoded, err := frame.Append(nil, format, &h, true, 0, instance)
		if err != nil {
			if v1 && n > 30000 { // a name that is there twice in what is encoded
				return
			}
			t.Fatal(err)
		}
		var again frame.Header
		got, n, err := frame.Next(format, append(encoded, data...), 2*limit, &again)
		assert.Assert(t, err == nil && n == len(encoded) && bytes.Equal(got, instance),
			"%d of %d bytes, instance %x, want %x, error %v", n, len(encoded), got, instance, err)
		assert.Assert(t, bytes.Equal(again.Append(nil), encodedHeader(&h, v1)), "header %+v, want %+v", again, h)
	})
}

// encodedHeader returns a header as it should be after it was sent.
func encodedHeader(h *frame.Header, v1 bool) []byte {
	sent := *h
	if v1 && sent.Set&frame.Sender == 0 {
		sent.Sender = 1
	}
	if v1 && sent.Set&frame.SentTime == 0 {
		sent.SentTime = 0
	}
	if v1 {
		sent.Set |= frame.Sender | frame.SentTime
	}
	return sent.Append(nil)
}
