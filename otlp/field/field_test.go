package field

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
)

// Literal bytes by protobuf's documentation of its encoding.
func TestAppend(t *testing.T) {
	for _, test := range []struct {
		want string
		got  []byte
	}{
		{"0a 01 41", Append(nil, 1, "A")},
		{"0a 00", Append(nil, 1, []byte(nil))},
		{"8201 01 41", Append(nil, 16, "A")},
		{"", AppendVarint(nil, 6, 0)},
		{"30 ac02", AppendVarint(nil, 6, 300)},
		{"39 0000000000000000", AppendFixed64(nil, 7, 0)},
		{"39 0807060504030201", AppendFixed64(nil, 7, 0x0102030405060708)},
		{"12 03 0a 01 41", AppendTextValue(nil, 2, "A")},
		{"12 02 18 00", AppendIntValue(nil, 2, 0)},
		{"12 0b 18 ffffffffffffffffff01", AppendIntValue(nil, 2, 1<<64-1)},
		{"4a 08 0a 01 6b 12 03 0a 01 76", AppendTextAttribute(nil, 9, "k", "v")},
		{"4a 08 0a 01 6b 12 03 18 ac02", AppendIntAttribute(nil, 9, "k", 300)},
	} {
		want, _ := hex.DecodeString(strings.ReplaceAll(test.want, " ", ""))
		assert.Check(t, bytes.Equal(test.got, want), "% x, want %s", test.got, test.want)
	}
}

func TestSize(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1 << 21} {
		if got := Append(nil, 1, make([]byte, n)); len(got) != Size(n) {
			t.Errorf("%d: %d, Size says %d", n, len(got), Size(n))
		}
		if got := AppendVarint(nil, 1, uint64(n)); len(got) != VarintSize(uint64(n)) {
			t.Errorf("%d: %d, VarintSize says %d", n, len(got), VarintSize(uint64(n)))
		}
	}
	got := AppendFixed64(nil, 1, 0)
	assert.Check(t, len(got) == Fixed64Size, len(got))
}

// Attributes are those of the official messages.
func TestAttributes(t *testing.T) {
	list := AppendTextAttribute(nil, 1, "text", "ü")
	list = AppendIntAttribute(list, 1, "int", uint64(1<<64-5))
	var got common.KeyValueList
	if err := proto.Unmarshal(list, &got); err != nil || len(got.Values) != 2 ||
		got.Values[0].Key != "text" || got.Values[0].Value.GetStringValue() != "ü" ||
		got.Values[1].Key != "int" || got.Values[1].Value.GetIntValue() != -5 {
		t.Errorf("%v, %v", &got, err)
	}
}

// Begin and End give what Append gives, behind what was there, also nested.
func TestBeginEnd(t *testing.T) {
	for _, n := range []int{0, 1, 126, 127, 128, 1<<14 - 1, 1 << 14, 1 << 21} {
		for _, number := range []protowire.Number{1, 16} {
			content := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
			want := Append([]byte("before"), number, Append(nil, 2, content))
			got, outer := Begin([]byte("before"), number)
			got, inner := Begin(got, 2)
			got = End(End(append(got, content...), inner), outer)
			assert.Check(t, bytes.Equal(got, want), "%d bytes of field %d: %.20x, want %.20x", n, number, got, want)
		}
	}
}
