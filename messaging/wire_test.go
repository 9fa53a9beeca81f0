package messaging

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// unhex decodes hex with blanks, in which the tests give the messages of the protocol.
var unhex = testenv.Unhex

var testKey = Key{
	TraceID:       [16]byte([]byte("\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36")),
	TransactionID: [8]byte{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7},
	StackTraceID:  [16]byte([]byte("\x60\xb4\x20\xbb\x38\x51\xd9\xd4\x7a\xcb\x93\x3d\xbe\x70\x39\x9b")),
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
		assert.NilError(t, err)
		return b
	case correlation:
		return appendCorrelation(b, m)
	default:
		t.Fatalf("not a message: %T", m)
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
			assert.Check(t, err == nil && got == test.message, "decoded %+v (%v)\nwant    %+v", got, err, test.message)
		})
	}
}

func TestLongestRegistration(t *testing.T) {
	longest := encode(t, nil, Registration{HostID: strings.Repeat("x", MaxHostIDBytes)})
	assert.Check(t, len(longest) == 1024,
		"the longest registration has %d bytes, want the 1024 that agents read", len(longest))
}

func TestAppendRegistrationErrors(t *testing.T) {
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
		assert.Check(t, errors.Is(err, test.want) && string(b) == "kept",
			"%s: %q, %v; want %v", name, b, err, test.want)
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
		got := hex.EncodeToString(b[4:8])
		assert.Check(t, got == millis, "%v is %s on the wire, want %s", delay, got, millis)
	}
}
