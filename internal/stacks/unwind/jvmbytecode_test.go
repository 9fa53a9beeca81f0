package unwind

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Of a method's byte code it is known which of it may run again in the same call, and where others are called; of
// what is not understood, that either may be anywhere.
func TestByteCode(t *testing.T) {
	repeat := strings.Repeat
	for name, c := range map[string]struct {
		code    string
		known   bool
		repeats string // an x for each byte that does
		calls   string
	}{
		"straight":         {"03 3b b80001 b1", true, "......", "..x..."},
		"loop":             {"03 1a 9a0006 a7fffc b1", true, ".xxxxx...", "........."}, // goto 1 at 5
		"loop with a call": {"1a b60001 9afffc b1", true, "xxxxx...", ".x......"},
		"far jump back":    {"00 c8ffffffff b1", true, "xx.....", "......."},
		"switch": {"1a aa0000 00000013 00000000 00000000 00000013 00 00 b1", true, repeat(".", 23),
			repeat(".", 23)},
		"switch back": {"1a ab0000 fffffffe 00000000 00 b1", false, repeat("x", 14), repeat("x", 14)},
		"switch back to an opcode": {"00 ab0000 ffffffff 00000001 00000007 00000013 b1", true, "xx" + repeat(".", 19),
			repeat(".", 21)},
		"the JVM's own codes":       {"e3000100 cb0001 dc e40001 e60001 b1", false, repeat("x", 15), repeat("x", 15)},
		"fields and calls, its own": {"cb0001 dc e000 e30001 e9 0001 ec b1", true, repeat(".", 14), "......x..x...."},
		"wide":                      {"c4840001 0001 c4 15 0001 b1", true, repeat(".", 11), repeat(".", 11)},
		"into an instruction":       {"b80001 a7fffe b1", false, "xxxxxxx", "xxxxxxx"},
		"subroutine":                {"a80003 b1", false, "xxxx", "xxxx"},
		"cut off":                   {"00 b800", false, "xxx", "xxx"},
		"switch, cut off":           {"aa0000 00 00000000", false, "xxxxxxxx", "xxxxxxxx"},
		"switch of too much": {"aa0000 00 0000000c 00000000 7fffffff 00", false, repeat("x", 17),
			repeat("x", 17)},
		"unknown": {"ff b1", false, "xx", "xx"},
		"nothing": {"", true, "", ""},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
		assert.NilError(t, err)
		b := readByteCode(code)
		var repeats, calls strings.Builder
		mark := func(to *strings.Builder, is bool) {
			to.WriteByte(map[bool]byte{true: 'x', false: '.'}[is])
		}
		for bci := range int32(len(code)) {
			mark(&repeats, b.repeats(bci))
			mark(&calls, b.callsIn(bci, bci))
		}
		assert.Check(t, b.known == c.known && repeats.String() == c.repeats && calls.String() == c.calls,
			"%s: %+v, %s, %s", name, b, &repeats, &calls)
	}
	nested := byteCode{known: true, back: [][2]int32{{30, 0}, {20, 10}, {16, 10}, {9, 4}}}
	outer, inner := byteCodeLoop{0, 30, 1}, byteCodeLoop{10, 20, 2}
	for _, c := range []struct {
		from, to int32
		want     []byteCodeLoop
	}{
		{12, 15, []byteCodeLoop{outer, inner}}, {12, 18, []byteCodeLoop{outer, inner}},
		{10, 20, []byteCodeLoop{outer, inner}}, {5, 12, []byteCodeLoop{outer}}, {5, 31, nil},
	} {
		loops := nested.loopsAround(c.from, c.to)
		assert.Check(t, slices.Equal(loops, c.want), "%d to %d: %v", c.from, c.to, loops)
	}
	assert.Check(t, len(lengths) == jsrW+1 && lengths[invokedynamic] == '5' && lengths[iinc] == '3' &&
		lengths[ret] == '2')
}

// Whatever is taken for byte code is understood or not.
func FuzzByteCode(f *testing.F) {
	f.Add([]byte("\x1a\xaa\x00\x00\x00\x00\x00\x13"))
	f.Fuzz(func(t *testing.T, code []byte) {
		b := readByteCode(code)
		for _, back := range b.back {
			assert.Check(t, !b.known || back[0] < int32(len(code)) && back[1] >= 0 && back[1] <= back[0], "%+v", b)
		}
	})
}
