package dynamic_test

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
)

// TestMessages compares frames of all kinds of messages with what is in them, in both directions.
func TestMessages(t *testing.T) {
	text, err := os.ReadFile("testdata/messages.txt")
	assert.NilError(t, err)
	reg := registry(t, demoTypes)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	assert.Assert(t, len(lines) == 2*37, "%d lines", len(lines))
	for i := 0; i < len(lines); i += 2 {
		data, message := unhex(t, lines[i]), lines[i+1]
		format := frame.V2
		if data[0] != 0x1a {
			format = frame.V1
		}
		var h frame.Header
		instance, n, err := frame.Next(format, data, frame.DefaultLimit, &h)
		if err != nil || n != len(data) {
			t.Errorf("%s: %d bytes, error %v", message, n, err)
			continue
		}
		s := reg.StructBytes(h.TypeName)
		got, _, err := dynamic.AppendMessage(nil, &h, s, instance, math.MaxInt, dynamic.BareNumbers)
		assert.Check(t, err == nil && string(got) == message, "message\n%s, want\n%s, error %v", got, message, err)
		h = frame.Header{}
		instance, s, err = dynamic.ParseMessage([]byte(message), &h, reg.StructBytes)
		if err != nil {
			t.Errorf("%s: %v", message, err)
			continue
		}
		back, err := frame.Append(nil, format, &h, s.Flags.Internal, 0, instance)
		assert.Check(t, err == nil && bytes.Equal(back, data),
			"%s:\n got %x\nwant %x\nerror %v", message, back, data, err)
	}
}
