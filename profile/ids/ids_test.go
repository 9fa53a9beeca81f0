package ids

import (
	"encoding/hex"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Ids are found as people and other tools have them.
func TestIDs(t *testing.T) {
	const (
		trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		short = "000000000000000053ce929d0e0e4735" // 64 bits
		zeros = "000000000000000000f067aa0ba902b7"
		span  = "00f067aa0ba902b7"
	)
	for _, c := range []struct{ text, id string }{
		{trace, trace}, {strings.ToUpper(trace), trace}, {" " + trace + "\n", trace}, {"0x" + trace, trace},
		{"4bf92f35-77b3-4da6-a3ce-929d0e0e4736", trace}, {"4bf92f3577b34da6-a3ce929d0e0e4736", trace},
		{"00-" + trace + "-" + span + "-01", trace}, {"01-" + trace + "-" + span + "-01-more", trace},
		{"1-4bf92f35-77b34da6a3ce929d0e0e4736", trace},
		{"Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent=" + span + ";Sampled=1", trace},
		{"Self=1-12345678-123456789012345678901234;Root=1-4bf92f35-77b34da6a3ce929d0e0e4736", trace},
		{trace + "-" + span + "-1", trace}, {trace + "-" + span, trace}, {"53ce929d0e0e4735-" + span + "-d-" + span,
			short},
		{trace + ":" + span + ":0:1", trace}, {"53ce929d0e0e4735:f067aa0ba902b7:0:1", short},
		{"100985939111033328018442752961257817910", trace},           // decimal
		{"a3ce929d0e0e4736", trace}, {"11803532876627986230", trace}, // the lower half
		{"-6643211197081565386", trace}, {"-65536", "ffffffffffff0000"}, // signed
		{short, short}, {"53ce929d0e0e4735", short}, {"0x53CE929D0E0E4735", short}, {"6038925353593751349", short},
		{span, span}, {"f067aa0ba902b7", span}, {"0xf067aa0ba902b7", span}, {"67667974448284343", span},
		{"f067aa0ba902b7", zeros}, {"67667974448284343", zeros}, {"0000f067aa0ba902b7", zeros},
		{"4bf9", trace}, {"4bf92", trace}, {"00f0", span},
	} {
		digits, err := Parse(c.text, TraceDigits)
		assert.NilError(t, err, c.text)
		id, err := hex.DecodeString(c.id)
		assert.NilError(t, err)
		p := NewPattern(digits)
		assert.Check(t, p.Matches(id) && p.Is(id) == (len(c.text) > 5), "%q is %q, %s: %v, %v", c.text, digits, c.id,
			p.Matches(id), p.Is(id))
		for _, other := range []string{trace, short, zeros, span} {
			if b, _ := hex.DecodeString(other); other[len(other)-16:] != c.id[len(c.id)-16:] && c.text != "00f0" {
				assert.Check(t, !p.Matches(b), "%q matches %s", c.text, other)
			}
		}
		known := false
		for _, full := range p.InFull() {
			known = known || hex.EncodeToString(full) == c.id
		}
		assert.Check(t, known == p.Is(id) || strings.TrimLeft(digits, "0") != strings.TrimLeft(c.id, "0"), "%q", c.text)
	}
	for text, want := range map[string]string{
		"":          "it has 0 digits, not 4 to 32",
		"0x":        "it has 0 digits",
		"abc":       "it has 3 digits",
		trace + "0": "it has 33 digits",
		"340282366920938463463374607431768211456": "it has 39 digits", // 2^128
		strings.Repeat("1", 1000):                 "it has 1000 digits",
		"S/kvNXezTaajzpKdDg5HNg==":                "hexadecimal digits, a decimal number, a traceparent or an X-Ray id",
		"trace_id=" + trace:                       "hexadecimal digits",
		"-1":                                      "it has 1 digits",
		"00-" + trace + "-" + span + "-x":         "hexadecimal digits",
	} {
		_, err := Parse(text, TraceDigits)
		assert.ErrorContains(t, err, want, text)
	}
	_, err := Parse("18446744073709551615", SpanDigits)
	assert.NilError(t, err)
	_, err = Parse("18446744073709551616", SpanDigits)
	assert.ErrorContains(t, err, "it has 20 digits, not 4 to 16")
}

// The upper half of a trace's id is not known to everybody: to who asks, or to who wrote the context.
func TestHalfIDs(t *testing.T) {
	const whole, lower = "4bf92f3577b34da6a3ce929d0e0e4736", "0000000000000000a3ce929d0e0e4736"
	for _, c := range []struct {
		asked, stored string
		is            bool
	}{
		{whole, lower, true}, {"100985939111033328018442752961257817910", lower, true}, {lower, lower, true},
		{lower, whole, false}, {"a3ce929d0e0e4736", whole, true}, {"a3ce929d0e0e4736", lower, true},
		{whole, "0000000000000000a3ce929d0e0e4737", false}, {whole, "4bf92f3577b34da7a3ce929d0e0e4736", false},
		{whole, "a3ce929d0e0e4736", false}, // a span
	} {
		id, err := hex.DecodeString(c.stored)
		assert.NilError(t, err)
		p := NewPattern(c.asked)
		assert.Check(t, p.Is(id) == c.is && p.Matches(id) == c.is, "%s asked, %s stored", c.asked, c.stored)
	}
}

// How an id begins may end within a byte; what is no id begins none.
func TestIDBeginnings(t *testing.T) {
	id := []byte{0xab, 0xcd, 0xef}
	for text, want := range map[string]bool{"": true, "a": true, "ab": true, "abc": true, "abcd": true, "abd": false,
		"b": false, "abcdef": true, "abcdef0": false, "xyz": false, "0": false, "0000": false} {
		p := NewPattern(text)
		assert.Check(t, p.Matches(id) == want, "%q: %v", text, !want)
		assert.Check(t, p.Is(id) == (text == "abcdef"), text)
		assert.Check(t, !p.Is(make([]byte, 8)), "%q is nothing", text)
	}
}
