package messaging

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

// unhex reads hex with blanks, as the tables of the protocol are written down in the tests.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func id16(t testing.TB, text string) (id [16]byte) {
	t.Helper()
	if copy(id[:], unhex(t, text)) != len(id) {
		t.Fatalf("%q is no id of 16 bytes", text)
	}
	return id
}

var testKey = Key{
	TraceID:       [16]byte{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36},
	TransactionID: [8]byte{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7},
	StackTraceID:  [16]byte{0x60, 0xb4, 0x20, 0xbb, 0x38, 0x51, 0xd9, 0xd4, 0x7a, 0xcb, 0x93, 0x3d, 0xbe, 0x70, 0x39, 0x9b},
}

const testKeyHex = `4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7 60b420bb3851d9d47acb933dbe70399b`

// The bytes are those of a little-endian machine: the protocol is native-endian, and both
// architectures that we build for are little-endian.
var goldenMessages = []struct {
	name    string
	message Message
	hex     string
}{
	{
		"registration",
		Registration{SamplesDelay: 300 * time.Millisecond, HostID: "host-7"},
		`0200 0100 2c010000 06000000 68 6f 73 74 2d 37`,
	},
	{
		"registration without host-id",
		Registration{SamplesDelay: time.Second},
		`0200 0100 e8030000 00000000`,
	},
	{
		"registration with the longest delay",
		Registration{SamplesDelay: math.MaxUint32 * time.Millisecond, HostID: "ü"},
		`0200 0100 ffffffff 02000000 c3bc`,
	},
	{
		"correlation",
		correlation{Key: testKey, Count: 1},
		`0100 0100 ` + testKeyHex + ` 0100`,
	},
	{
		"correlation with the largest count",
		correlation{Key: testKey, Count: maxCount},
		`0100 0100 ` + testKeyHex + ` ff7f`,
	},
}

func encode(t testing.TB, b []byte, m Message) []byte {
	t.Helper()
	switch m := m.(type) {
	case Registration:
		b, err := appendRegistration(b, m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	case correlation:
		return appendCorrelation(b, m)
	default:
		t.Fatalf("no message: %T", m)
		return nil
	}
}

func TestGoldenMessages(t *testing.T) {
	for _, test := range goldenMessages {
		t.Run(test.name, func(t *testing.T) {
			want := unhex(t, test.hex)
			prefix := []byte("kept")
			if got := encode(t, prefix, test.message); !bytes.Equal(got, append(prefix, want...)) {
				t.Errorf("encoded  %x\nwant kept%x", got, want)
			}
			got, err := decode(want)
			if err != nil || got != test.message {
				t.Errorf("decoded %+v (%v)\nwant    %+v", got, err, test.message)
			}
		})
	}
}

func TestMessageSizes(t *testing.T) {
	longest := encode(t, nil, Registration{HostID: strings.Repeat("x", MaxHostIDBytes)})
	if len(longest) != 1024 {
		t.Errorf("the longest registration has %d bytes, want the 1024 that agents read", len(longest))
	}
	if got := len(appendCorrelation(nil, correlation{})); got != 46 {
		t.Errorf("a correlation has %d bytes, want 46", got)
	}
}

func TestAppendRegistrationRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		r    Registration
		want error
	}{
		"host-id too long":  {Registration{HostID: strings.Repeat("x", MaxHostIDBytes+1)}, errHostID},
		"host-id not UTF-8": {Registration{HostID: "a\xff"}, errHostID},
		"delay negative":    {Registration{SamplesDelay: -time.Millisecond}, errSamplesDelay},
		"delay too long":    {Registration{SamplesDelay: (math.MaxUint32 + 1) * time.Millisecond}, errSamplesDelay},
		"delay rounded up":  {Registration{SamplesDelay: math.MaxUint32*time.Millisecond + 1}, errSamplesDelay},
	} {
		b, err := appendRegistration([]byte("kept"), test.r)
		if !errors.Is(err, test.want) || string(b) != "kept" {
			t.Errorf("%s: %q, %v; want %v", name, b, err, test.want)
		}
	}
}

// The delay is a promise, so a fraction of a millisecond must not make it shorter.
func TestSamplesDelayIsRoundedUp(t *testing.T) {
	for delay, millis := range map[time.Duration]string{
		1:                             "01000000",
		time.Millisecond:              "01000000",
		time.Millisecond + 1:          "02000000",
		299*time.Millisecond + 999999: "2c010000",
	} {
		b := encode(t, nil, Registration{SamplesDelay: delay})
		if got := hex.EncodeToString(b[4:8]); got != millis {
			t.Errorf("%v is %s on the wire, want %s", delay, got, millis)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                     ``,
		"half a header":               `0100 01`,
		"header only, correlation":    `0100 0100`,
		"header only, registration":   `0200 0100`,
		"type 0":                      `0000 0100`,
		"type 3":                      `0300 0100 ` + testKeyHex + ` 0100`,
		"minor version 0":             `0100 0000 ` + testKeyHex + ` 0100`,
		"correlation short by one":    `0100 0100 ` + testKeyHex + ` 01`,
		"correlation long by one":     `0100 0100 ` + testKeyHex + ` 0100 00`,
		"host-id short by one":        `0200 0100 2c010000 02000000 68`,
		"host-id long by one":         `0200 0100 2c010000 02000000 68 68 68`,
		"host-id of 4 GB":             `0200 0100 2c010000 ffffffff 68`,
		"host-id not UTF-8":           `0200 0100 2c010000 01000000 ff`,
		"registration without length": `0200 0100 2c010000 000000`,
	} {
		if m, err := decode(unhex(t, text)); !errors.Is(err, errMessage) || m != nil {
			t.Errorf("%s: %+v, %v; want errMessage", name, m, err)
		}
	}
}

func TestDecodeLaterMinorVersion(t *testing.T) {
	for text, want := range map[string]Message{
		`0100 0200 ` + testKeyHex + ` 0500`:       correlation{Key: testKey, Count: 5},
		`0100 0200 ` + testKeyHex + ` 0500 ffff`:  correlation{Key: testKey, Count: 5},
		`0200 ffff 2c010000 01000000 68 01020304`: Registration{SamplesDelay: 300 * time.Millisecond, HostID: "h"},
	} {
		if got, err := decode(unhex(t, text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// The worked example of the protocol: what an agent makes of three messages.
func TestWorkedExample(t *testing.T) {
	first, second := id16(t, "60b420bb3851d9d47acb933dbe70399b"), id16(t, "4c9326bb9805fa8f85882c12eae724ce")
	attribute := make(map[string]uint16)
	for _, m := range []correlation{
		{Key: Key{StackTraceID: first}, Count: 2},
		{Key: Key{StackTraceID: second}, Count: 1},
		{Key: Key{StackTraceID: first}, Count: 1},
	} {
		got, err := decode(appendCorrelation(nil, m))
		if err != nil {
			t.Fatal(err)
		}
		c := got.(correlation)
		attribute[base64.RawURLEncoding.EncodeToString(c.StackTraceID[:])] += c.Count
	}
	want := map[string]uint16{"YLQguzhR2dR6y5M9vnA5mw": 3, "TJMmu5gF-o-FiCwS6uckzg": 1}
	if !maps.Equal(attribute, want) {
		t.Errorf("elastic.profiler_stack_trace_ids is %v, want %v", attribute, want)
	}
}

func FuzzDecode(f *testing.F) {
	for _, test := range goldenMessages {
		f.Add(unhex(f, test.hex))
	}
	f.Add(unhex(f, `0100 0200 `+testKeyHex+` 0500 ffff`))
	f.Add(unhex(f, `0200 0100 2c010000 ffffffff 68`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			if !errors.Is(err, errMessage) || m != nil {
				t.Fatalf("%+v, %v", m, err)
			}
			return
		}
		if r, ok := m.(Registration); ok && len(r.HostID) > MaxHostIDBytes {
			return // a receiver is not bound by what we send
		}
		again := encode(t, nil, m)
		if !bytes.Equal(again[4:], b[4:len(again)]) || !bytes.Equal(again[:2], b[:2]) {
			t.Fatalf("%x\nis read as %+v\nwritten as %x", b, m, again)
		}
	})
}

func BenchmarkAppendCorrelation(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, 0, correlationBytes)
	c := correlation{Key: testKey, Count: 1}
	for b.Loop() {
		buf = appendCorrelation(buf[:0], c)
	}
}
