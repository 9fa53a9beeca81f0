package feed

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestParseRecord(t *testing.T) {
	stack := [16]byte{0x60, 0xb4, 0x20, 0xbb, 0x38, 0x51, 0xd9, 0xd4, 0x7a, 0xcb, 0x93, 0x3d, 0xbe, 0x70, 0x39, 0x9b}
	for line, want := range map[string]Record{
		"4711 4712 60b420bb3851d9d47acb933dbe70399b":      {PID: 4711, TID: 4712, StackTraceID: stack, Count: 1},
		"4711 4712 YLQguzhR2dR6y5M9vnA5mw\n":              {PID: 4711, TID: 4712, StackTraceID: stack, Count: 1},
		"  1\t1 60B420BB3851D9D47ACB933DBE70399B  65535 ": {PID: 1, TID: 1, StackTraceID: stack, Count: 65535},
		"1 2 YLQguzhR2dR6y5M9vnA5mw 3 000102030405060708090a0b0c0d0e0f 1011121314151617": {
			PID: 1, TID: 2, StackTraceID: stack, Count: 3, HasContext: true,
			TraceID:       [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
			TransactionID: [8]byte{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17},
		},
	} {
		got, err := parseRecord(line)
		assert.Check(t, err == nil && got == want, "%q: %+v, %v, want %+v", line, got, err, want)
	}
	const id = "60b420bb3851d9d47acb933dbe70399b"
	for line, want := range map[string]string{
		"":                               "0 fields",
		"1 2":                            "2 fields",
		"1 2 " + id + " 1 " + id:         "5 fields",
		"0 2 " + id:                      `pid "0" is not a number from 1 to 2147483647`,
		"1 -2 " + id:                     `tid "-2"`,
		"1 2147483648 " + id:             `tid "2147483648"`,
		"1 2 " + id + " 0":               `count "0" is not a number from 1 to 65535`,
		"1 2 " + id + " 65536":           `count "65536"`,
		"1 2 " + id[1:]:                  "stack-trace-id",
		"1 2 YLQguzhR2dR6y5M9vnA5mw*":    "stack-trace-id",
		"1 2 " + id + " 1 xyz " + id:     `trace-id "xyz" is not 16 bytes in hex or base64-url`,
		"1 2 " + id + " 1 " + id + " 00": `transaction-id "00" is not 8 bytes`,
	} {
		_, err := parseRecord(line)
		assert.Check(t, err != nil && strings.Contains(err.Error(), want), "%q: %v, want %q", line, err, want)
	}
}
