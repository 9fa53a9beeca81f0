package spans

import (
	"runtime"
	"strings"
	"testing"
)

// hostile returns payloads of about a size that are made to cost much, by name.
func hostile(size int) map[string][]byte {
	fill := func(before, again, after string) []byte {
		return []byte(before + strings.Repeat(again, size/len(again)) + after)
	}
	span := `[{"traceId":"1","spanId":"2",`
	nowhere := at("2024-01-01 00:00:00", "3", "Nowhere")
	nested := strings.Repeat(`{"":[`, 30) + strings.Repeat(`]}`, 30)
	return map[string][]byte{
		"spans":            fill("[", `{"traceId":"1","spanId":"2"},`, "0]"),
		"no spans":         fill("[", `{},`, "0]"),
		"members":          fill(span+`"k":0`, `,"name":""`, "}]"),
		"escaped members":  fill(span+`"k":0`, `,"\u006bame":0`, "}]"),
		"attributes":       fill(span+`"attributes":{"k":0`, `,"k":0`, "}}]"),
		"attribute lists":  fill(span+`"attributes":[`, "1,", "1]}]"),
		"floats":           fill(span+`"attributes":[[`, "1e1,", "1]]}]"),
		"nulls":            fill(span+`"attributes":{"k":[`, "null,", "1]}}]"),
		"nested":           fill(span+`"attributes":[0`, ","+nested, "]}]"),
		"nested too deep":  fill(span+`"attributes":[0`, ","+strings.Repeat("[", 400)+strings.Repeat("]", 400), "]}]"),
		"nested deepest":   fill(span+`"k":[0`, ","+strings.Repeat("[", 9900)+strings.Repeat("]", 9900), "]}]"),
		"deep and invalid": fill(strings.Repeat(`{"`+strings.Repeat("k", size/9000)+`":`, 9000), "x", ""),
		"duplicates":       fill(span+`"attributes":{"k":{"k":0`, `},"k":{"k":0`, "}}}]"),
		"digits":           fill(span+`"attributes":[1`, "23456789", "]}]"),
		"fractions":        fill(span+`"attributes":[[0.`, "23456789", "]]}]"),
		"invalid UTF-8":    fill(span+`"name":"`, "\xff", `"}]`),
		"broken runs":      fill(span+`"name":"`, "\xffa", `"}]`),
		"surrogates":       fill(span+`"name":"`, `\ud83d`, `"}]`),
		"frames":           fill(span+`"stackTrace":[{}`, `,{"function":"f"}`, "]}]"),
		"no frames":        fill(span+`"stackTrace":[{}`, `,{}`, "]}]"),
		"events":           fill(span+`"timeEvents":[{}`, `,{"id":1}`, "]}]"),
		"links":            fill(span+`"links":[{}`, `,{"traceId":1,"spanId":1}`, "]}]"),
		"zones":            fill(span+`"timeEvents":[{}`, `,{"id":1,"time":`+nowhere+`}`, "]}]"),
		"space":            fill(span+`"k":`, " ", `1}]`),
		"unterminated":     fill(span+`"name":"`, `\"`, ``),
		"half-way numbers": fill(span+`"attributes":[[1`, ",9007199254740993.00000000000000000000000000001e-250", "]]}]"),
	}
}

// Hostile exports take memory in proportion to their size, and their output is valid.
func TestHostile(t *testing.T) {
	for name, payload := range hostile(1 << 16) {
		e := NewEncoder(testOptions())
		x := export(string(payload))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, r, err := e.Append(nil, x)
		runtime.ReadMemStats(&after)
		if (err != nil) != (name == "unterminated" || name == "deep and invalid") {
			t.Errorf("%s: %v", name, err)
		}
		// The output grows by a quarter of its size, so all that it was is five times as much.
		if taken := after.TotalAlloc - before.TotalAlloc; len(out) > 5*len(payload) || taken > 32*uint64(len(payload)) {
			t.Errorf("%s: %d bytes of output, %d of memory, for %d", name, len(out), taken, len(payload))
		}
		if err == nil {
			decode(t, out, r)
		}
	}
}
