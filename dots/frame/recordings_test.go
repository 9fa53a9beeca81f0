package frame_test

import (
	"bytes"
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/dots/internal/recordings"
)

// internal reports whether a type that occurs in the recordings has the flag internal.
func internal(name []byte) bool {
	return bytes.HasPrefix(name, []byte("Dots")) || bytes.HasSuffix(name, []byte("DescriptorData"))
}

// TestRecordings decodes every frame that was recorded, and encodes it again.
func TestRecordings(t *testing.T) {
	for _, r := range recordings.All(t) {
		if r.WebSocket {
			continue
		}
		for _, f := range r.Frames {
			var h frame.Header
			instance, n, err := frame.Next(r.Format, f.Data, frame.DefaultLimit, &h)
			if r.Name[:2] == "34" && f.Data[0] == 0xa1 { // sent to provoke an error
				assert.Check(t, errors.Is(err, frame.ErrPrefix), "%s:%d: error %v", r.Name, f.Line, err)
				continue
			}
			if err != nil || n != len(f.Data) {
				t.Errorf("%s:%d: %d of %d bytes, error %v", r.Name, f.Line, n, len(f.Data), err)
				continue
			}
			if r.Name[:2] == "20" && f.Line == 28 {
				continue // a script wrote the members of this header in an order of its own
			}
			got, err := frame.Append(nil, r.Format, &h, internal(h.TypeName), 0, instance)
			assert.Check(t, err == nil && bytes.Equal(got, f.Data),
				"%s:%d: %s: error %v\n got %x\nwant %x", r.Name, f.Line, h.TypeName, err, got, f.Data)
			for cut := range f.Data { // whatever the end of the data is, the rest is waited for
				_, n, err := frame.Next(r.Format, f.Data[:cut], frame.DefaultLimit, &h)
				assert.Check(t, n == 0 && err == nil, "%s:%d: cut to %d bytes: %d, %v", r.Name, f.Line, cut, n, err)
			}
		}
	}
}
