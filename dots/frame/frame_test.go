package frame_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/internal/lab/testenv"
)

var unhex = testenv.Unhex

// TestFrames has frames as other implementations sent them, and what is in them.
func TestFrames(t *testing.T) {
	for _, test := range []struct {
		name     string
		format   frame.Format
		internal bool
		data     string
		header   frame.Header
		instance string
	}{
		{
			name: "hello of C++", internal: true,
			data: "1a00000027a4016c446f74734d736748656c6c6f02fb41dac021e68ed94f030604f4" +
				"a20165646f7473640200",
			header: frame.Header{
				TypeName: []byte("DotsMsgHello"), SentTime: 1795196826.2320135, Attributes: 6, Set: 0x1e,
			},
			instance: "a20165646f7473640200",
		},
		{
			name: "forwarded by C++",
			data: "1a0000003da7016d526f756e64747269704461746102fb41dac021e68ee9f807fb41dac021e68eeac4" +
				"030e050204f406f4a301000266666f6f62617203fa40490e56",
			header: frame.Header{
				TypeName: []byte("RoundtripData"), SentTime: 1795196826.2330303,
				ServerSentTime: 1795196826.233079, Attributes: 0xe, Sender: 2, Set: 0xfe,
			},
			instance: "a301000266666f6f62617203fa40490e56",
		},
		{
			name: "remove by C++, from a cache", internal: true,
			data: "1a0000002ba7016944656d6f5468696e6702fb41dac021eff84dc107fb41dac021eff84dc1" +
				"0302050104f506f5a10101",
			header: frame.Header{
				TypeName: []byte("DemoThing"), SentTime: 1795196863.8797457, ServerSentTime: 1795196863.8797457,
				Attributes: 2, Sender: 1, RemoveObj: true, IsFromMyself: true, Set: 0xfe,
			},
			instance: "a10101",
		},
		{
			name: "filtered, by Rust",
			data: "1a0000002aa6016944656d6f5468696e6702fb41dac021f2e24df407fb41dac021f2e2541e" +
				"030205050907a1011832",
			header: frame.Header{
				TypeName: []byte("DemoThing"), Attributes: 2, Sender: 5, SubscriptionID: 7, Set: 0x2ae,
			},
			instance: "a1011832",
		},
		{
			name: "hello in v1", format: frame.V1, internal: true,
			data: "3600a40163535953026c446f74734d736748656c6c6f03a5016c446f74734d736748656c6c6f" +
				"02fb41dac021e6c3a51b0306050104f4040aa20165646f7473640200",
			header: frame.Header{
				TypeName: []byte("DotsMsgHello"), Attributes: 6, Sender: 1, Set: 0x3e,
			},
			instance: "a20165646f7473640200",
		},
		{
			name: "forwarded in v1", format: frame.V1,
			data: "3f00a3026d526f756e64747269704461746103a7016d526f756e64747269704461746102fb41dac021e6c3b814" +
				"07fb41dac021e6c3b8e3030e050204f406f40411a301000266666f6f62617203fa40490e56",
			header: frame.Header{
				TypeName: []byte("RoundtripData"), Attributes: 0xe, Sender: 2, Set: 0xfe,
			},
			instance: "a301000266666f6f62617203fa40490e56",
		},
	} {
		data := unhex(t, test.data)
		var h frame.Header
		instance, n, err := frame.Next(test.format, append(data, 0xff), frame.DefaultLimit, &h)
		assert.Check(t, err == nil && n == len(data) && hex.EncodeToString(instance) == test.instance,
			"%s: %d of %d bytes, instance %x, error %v", test.name, n, len(data), instance, err)
		got, err := frame.Append([]byte{1}, test.format, &h, test.internal, 0, instance)
		if err != nil || !bytes.Equal(got[1:], data) {
			t.Errorf("%s: encoded %x, want %x, error %v", test.name, got[1:], data, err)
		}
		if test.header.SentTime == 0 { // the times are compared by the bytes
			h.SentTime, h.ServerSentTime = 0, 0
		}
		assert.Check(t, reflect.DeepEqual(h, test.header), "%s: header %+v, want %+v", test.name, h, test.header)
	}
}

// TestAppendV1 checks what guests of v1 rely on.
func TestAppendV1(t *testing.T) {
	long := bytes.Repeat([]byte{0xab}, 300)
	for _, test := range []struct {
		name     string
		typeName string
		internal bool
		instance []byte
		want     string
	}{
		{"internal", "DotsEcho", true, []byte{0xa0},
			"2a00 a4 01 63535953 02 68446f74734563686f 03 a3 01 68446f74734563686f" +
				"02 fb41d954fc40100000 05 01 04 01 a0"},
		{"DotsClient", "DotsClient", true, []byte{0xa0},
			"2900 a3 02 6a446f7473436c69656e74 03 a3 01 6a446f7473436c69656e74" +
				"02 fb41d954fc40100000 05 01 04 01 a0"},
		{"DotsDescriptorRequest", "DotsDescriptorRequest", true, []byte{0xa0},
			"3f00 a3 02 75446f747344657363726970746f7252657175657374" +
				"03 a3 01 75446f747344657363726970746f7252657175657374 02 fb41d954fc40100000 05 01 04 01 a0"},
		{"user's", "T", false, []byte{0xa0},
			"1700 a3 02 6154 03 a3 01 6154 02 fb41d954fc40100000 05 01 04 01 a0"},
		{"long instance", "T", false, long,
			"1900 a3 02 6154 03 a3 01 6154 02 fb41d954fc40100000 05 01 04 19012c " + hex.EncodeToString(long)},
	} {
		h := frame.Header{TypeName: []byte(test.typeName), Set: frame.TypeName}
		got, err := frame.Append(nil, frame.V1, &h, test.internal, 1700000000.25, test.instance)
		assert.Check(t, err == nil && bytes.Equal(got, unhex(t, test.want)),
			"%s:\n got %x\nwant %s\nerror %v", test.name, got, test.want, err)
		instance, n, err := frame.Next(frame.V1, got, frame.DefaultLimit, &h)
		assert.Check(t, err == nil && n == len(got) && bytes.Equal(instance, test.instance) && h.Sender == 1,
			"%s: decoded %x, %+v, error %v", test.name, instance, h, err)
	}
	h := frame.Header{TypeName: bytes.Repeat([]byte{'T'}, 40000), Set: frame.TypeName}
	got, err := frame.Append([]byte{1}, frame.V1, &h, false, 0, nil)
	assert.Check(t, errors.Is(err, frame.ErrTooLarge) && len(got) == 1,
		"header of 80,000 bytes: %d bytes, error %v", len(got), err)
}

func TestNextRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		format frame.Format
		data   string
		want   error
	}{
		{"other prefix", frame.V2, "1b", frame.ErrPrefix},
		{"short form of the size", frame.V2, "04 a1016154 a0", frame.ErrPrefix},
		{"too large", frame.V2, "1a 00000100", frame.ErrTooLarge},
		{"enormous", frame.V2, "1a ffffffff", frame.ErrTooLarge},
		{"empty", frame.V2, "1a 00000000", cbor.ErrShort},
		{"header is no map", frame.V2, "1a 00000002 80a0", cbor.ErrType},
		{"header is longer", frame.V2, "1a 00000003 a10161", cbor.ErrShort},
		{"header ends beyond the frame", frame.V2, "1a 00000003 a10162 6161 a0", cbor.ErrShort},
		{"large count", frame.V2, "1a 00000005 ba ffffffff", cbor.ErrShort},
		{"type name is no text", frame.V2, "1a 00000004 a1 01 01 a0", cbor.ErrType},
		{"sender of 64 bits", frame.V2, "1a 0000000e a2 01 6154 05 1b0000000100000000", cbor.ErrRange},
		{"time is an integer", frame.V2, "1a 00000007 a2 01 6154 02 01 a0", cbor.ErrType},
		{"null", frame.V2, "1a 00000007 a2 01 6154 04 f6 a0", cbor.ErrType},
		{"no type name", frame.V2, "1a 00000004 a1 03 01 a0", frame.ErrNoTypeName},
		{"v1, empty", frame.V1, "0000", cbor.ErrShort},
		{"v1, excess", frame.V1, "0900 a2 03 a1 01 6154 04 01 00 a0", frame.ErrSize},
		{"v1, no payload size", frame.V1, "0600 a1 03 a1 01 6154 a0", frame.ErrMissing},
		{"v1, no header", frame.V1, "0300 a1 04 01 a0", frame.ErrMissing},
		{"v1, header cut", frame.V1, "0500 a2 03 a1 01 61 54 04 01 a0", cbor.ErrShort},
		{"v1, too large", frame.V1, "0900 a2 03 a1 01 6154 04 18ff", frame.ErrTooLarge},
		{"v1, header too large", frame.V1, "ffff", frame.ErrTooLarge},
		{"v1, enormous", frame.V1, "0c00 a2 03 a1 01 6154 04 1affffffff", frame.ErrTooLarge},
		{"v1, payload size of 64 bits", frame.V1, "1000 a2 03 a1 01 6154 04 1b0000000100000000", cbor.ErrRange},
	} {
		var h frame.Header
		_, n, err := frame.Next(test.format, unhex(t, test.data), 200, &h)
		assert.Check(t, n == 0 && errors.Is(err, test.want), "%s: %d, error %v, want %v", test.name, n, err, test.want)
	}
}

// TestDecodeLenient has headers that no implementation sends, but that receivers must take.
func TestDecodeLenient(t *testing.T) {
	for _, text := range []string{
		"a3 03 02 05 07 01 6154",                    // any order
		"a4 05 01 01 6154 03 02 05 07",              // the last one counts
		"b803 1801 7801 54 1803 1802 05 1a00000007", // longer forms
		"a4 01 6154 03 02 1818 82 01 a0 05 07",      // unknown members
		"a4 01 6154 03 02 05 07 1b ffffffffffffffff 00",
	} {
		var h frame.Header
		n, err := h.Decode(unhex(t, text+"a0"))
		if err != nil || n != len(unhex(t, text)) || string(h.TypeName) != "T" || h.Attributes != 2 || h.Sender != 7 {
			t.Errorf("%s: %d, %+v, %v", text, n, h, err)
		}
	}
}

const forwarded = "1a0000003da7016d526f756e64747269704461746102fb41dac021e68ee9f807fb41dac021e68eeac4" +
	"030e050204f406f4a301000266666f6f62617203fa40490e56"

func TestNextAllocates(t *testing.T) {
	data, dst := unhex(t, forwarded), make([]byte, 0, 256)
	var h frame.Header
	var failed error
	if n := testing.AllocsPerRun(100, func() {
		instance, _, err := frame.Next(frame.V2, data, frame.DefaultLimit, &h)
		failed = errors.Join(failed, err)
		for _, f := range []frame.Format{frame.V1, frame.V2} {
			_, err = frame.Append(dst, f, &h, false, 0, instance)
			failed = errors.Join(failed, err)
		}
	}); n != 0 || failed != nil {
		t.Errorf("%v allocations, error %v", n, failed)
	}
}
