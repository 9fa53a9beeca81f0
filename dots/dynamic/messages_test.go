package dynamic_test

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"correlator/dots/dynamic"
	"correlator/dots/frame"
)

// TestMessages compares frames of all kinds of messages with what is in them, in both directions.
func TestMessages(t *testing.T) {
	text, err := os.ReadFile("testdata/messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	reg := registry(t, demoTypes,
		"RoundtripData 1!:uint32:id 2:string:someString 3:float32:someFloat",
		"DemoThing 1!:uint32:id 2:string:name")
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	if len(lines) != 2*37 {
		t.Fatalf("%d lines", len(lines))
	}
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
		got, err := dynamic.AppendMessage(nil, &h, s, instance, math.MaxInt)
		if err != nil || string(got) != message {
			t.Errorf("message\n%s, want\n%s, error %v", got, message, err)
		}
		h = frame.Header{}
		instance, s, err = dynamic.ParseMessage([]byte(message), &h, reg.StructBytes)
		if err != nil {
			t.Errorf("%s: %v", message, err)
			continue
		}
		back, err := frame.Append(nil, format, &h, s.Flags.Internal, 0, instance)
		if err != nil || !bytes.Equal(back, data) {
			t.Errorf("%s:\n got %x\nwant %x\nerror %v", message, back, data, err)
		}
	}
}
