package wire

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

var unhex = testenv.Unhex

// start is a StartTime, 1795196498.065889.
const start = " 41 da c0 21 94 84 37 86 "

func TestHeader(t *testing.T) {
	sent := time.UnixMicro(1795196498065889).UTC()
	most := uint64(1<<64 - 1)
	for name, test := range map[string]struct {
		bytes  string
		header Header
	}{
		"request init": {
			"00000000 03 01 97c301 00" + start + "0f",
			Header{Type: RequestInit, Sequence: 1, PID: 24983, Sent: sent, Length: 15},
		},
		"of a 32-bit platform": {
			"00000000 29 03 d5c501 00  0000 4ed6010d 0000  08",
			Header{
				Type: ReportingPeriod, Sequence: 3, PID: 25301, Sent: time.Unix(1795196544, 0).UTC(), Padded: true,
				Length: 8,
			},
		},
		"period of 4 bytes, padded": {
			"00000000 29 01 01 00 00004ed6010d0000 04",
			Header{
				Type: ReportingPeriod, Sequence: 1, PID: 1, Sent: time.Unix(1795196544, 0).UTC(), Padded: true,
				Length: 4,
			},
		},
		"smallest": {
			"00000000 04 01 01 00" + start + "00",
			Header{Type: RequestShutdown, Sequence: 1, PID: 1, Sent: sent},
		},
		"largest values": {
			"00000000 14 ffffffffffffffffff01 ffffffff0f ffffffffffffffffff01" + start + "80808020",
			Header{
				Type: TraceExport, Sequence: most, PID: 1<<32 - 1, ThreadID: most, Sent: sent, Length: 64 << 20,
			},
		},
		"earliest": {
			"00000000 04 01 01 00 41cdcd6500000000 00",
			Header{Type: RequestShutdown, Sequence: 1, PID: 1, Sent: time.Unix(1e9, 0).UTC()},
		},
		"whole seconds": {
			"00000000 04 01 01 00 41da000000000000 00",
			Header{Type: RequestShutdown, Sequence: 1, PID: 1, Sent: time.Unix(0x68000000, 0).UTC()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := unhex(t, test.bytes)
			for n := range b {
				var h Header
				if _, verdict := h.parse(b[:n], false); verdict != partial {
					t.Errorf("%d bytes: verdict %d", n, verdict)
				}
			}
			var h Header
			if n, verdict := h.parse(append(b, 0x7f), false); verdict != valid || n != len(b) || h != test.header {
				t.Errorf("%+v, %d bytes, verdict %d", h, n, verdict)
			}
			assert.Check(t, len(b) <= maxHeaderBytes, "%d bytes", len(b))
		})
	}
}

func TestInvalidHeaders(t *testing.T) {
	const end = " 00 7f"
	for name, text := range map[string]string{
		"nothing of a start":           "01",
		"three zeros":                  "00000004",
		"type 0":                       "00000000 00",
		"unknown type":                 "00000000 05 01 01 00" + start + end,
		"type beyond the known":        "00000000 2d 01 01 00" + start + end,
		"type 255":                     "00000000 ff 01 01 00" + start + end,
		"sequence 0":                   "00000000 04 00 01 00" + start + end,
		"sequence not minimal":         "00000000 04 8100 01 00" + start + end,
		"sequence beyond 64 bits":      "00000000 04 ffffffffffffffffff02 01 00" + start + end,
		"sequence of 11 bytes":         "00000000 04 8080808080808080808001 01 00" + start + end,
		"pid 0":                        "00000000 04 01 00 00" + start + end,
		"pid 2^32":                     "00000000 04 01 8080808010 00" + start + end,
		"thread id not minimal":        "00000000 04 01 01 8000" + start + end,
		"thread id of 11 bytes":        "00000000 04 01 01 8080808080808080808001" + start + end,
		"before 2001":                  "00000000 04 01 01 00 41cdcd64ffffffff" + end,
		"2106":                         "00000000 04 01 01 00 41f0000000000000" + end,
		"NaN":                          "00000000 04 01 01 00 7ff8000000000001" + end,
		"epoch":                        "00000000 04 01 01 00 0000000000000000" + end,
		"negative":                     "00000000 04 01 01 00 c1dac02194843786" + end,
		"binary32 before 2001":         "00000000 04 01 01 00 00004e6e6b270000" + end,
		"binary32 2106":                "00000000 04 01 01 00 00004f8000000000" + end,
		"binary32 NaN":                 "00000000 04 01 01 00 00007fc000000000" + end,
		"length not minimal":           "00000000 04 01 01 00" + start + "8000",
		"length of 10 bytes too large": "00000000 14 01 01 00" + start + "ffffffffffffffffff02",
		"length of 11 bytes":           "00000000 14 01 01 00" + start + "8080808080808080808001",
		"length 2^31":                  "00000000 14 01 01 00" + start + "8080808008",
		"length 2^32":                  "00000000 14 01 01 00" + start + "8080808010",
		"length 2^62":                  "00000000 14 01 01 00" + start + "808080808080808040",
		"length 2^64-1":                "00000000 14 01 01 00" + start + "ffffffffffffffffff01",
		"trace export above 64 MiB":    "00000000 14 01 01 00" + start + "81808020",
		"record above 1 MiB":           "00000000 2c 01 01 00" + start + "818040",
		"views above 1 MiB":            "00000000 2a 01 01 00" + start + "818040",
		"names above 1 MiB":            "00000000 2b 01 01 00" + start + "818040",
		"measure above 64 KiB":         "00000000 28 01 01 00" + start + "818004",
		"init above 4 KiB":             "00000000 03 01 01 00" + start + "8120",
		"process init above 4 KiB":     "00000000 01 01 01 00" + start + "8120",
		"period of 9 bytes":            "00000000 29 01 01 00" + start + "09",
		"period of 4 bytes":            "00000000 29 01 01 00" + start + "04",
		"padded period of 5 bytes":     "00000000 29 01 01 00 00004ed6010d0000 05",
		"period of 0 bytes":            "00000000 29 01 01 00" + start + "00",
		"period of 7 bytes":            "00000000 29 01 01 00" + start + "07",
		"shutdown with a payload":      "00000000 04 01 01 00" + start + "01",
		"process end with a payload":   "00000000 02 01 01 00" + start + "01",
	} {
		t.Run(name, func(t *testing.T) {
			var h Header
			if n, verdict := h.parse(unhex(t, text), false); verdict != invalid {
				t.Errorf("%+v, %d bytes, verdict %d", h, n, verdict)
			}
		})
	}
}

// Where a header is expected, the type may be unknown, but not 0, and the payload not above 1 MiB.
func TestHeaderOfUnknownType(t *testing.T) {
	for text, expected := range map[string]verdict{
		"00000000 05 01 01 00" + start + "808040": valid,
		"00000000 ff 01 01 00" + start + "00":     valid,
		"00000000 05 01 01 00" + start + "818040": invalid,
		"00000000 05 00 01 00" + start + "00":     invalid,
		"00000000 00 01 01 00" + start + "00":     invalid,
	} {
		var h Header
		_, verdict := h.parse(unhex(t, text), true)
		assert.Check(t, verdict == expected, "%s: verdict %d", text, verdict)
	}
}

func TestUvarint(t *testing.T) {
	for text, expected := range map[string]struct {
		value uint64
		size  int
	}{
		"00":                       {0, 1},
		"01":                       {1, 1},
		"7f":                       {127, 1},
		"8001":                     {128, 2},
		"ac02ff":                   {300, 2},
		"808001":                   {16384, 3},
		"b0c801":                   {25648, 3},
		"ffffffffffffffff7f":       {1<<63 - 1, 9},
		"ffffffffffffffffff01":     {1<<64 - 1, 10},
		"":                         {0, 0},
		"80":                       {0, 0},
		"ffffffffffffffffff":       {0, 0},
		"8000":                     {0, -1},
		"ff00":                     {0, -1},
		"80808080808080808000":     {0, -1},
		"ffffffffffffffffff02":     {0, -1},
		"ffffffffffffffffff81":     {0, -1},
		"8080808080808080808001":   {0, -1},
		"ffffffffffffffffffffff01": {0, -1},
	} {
		value, size := uvarint(unhex(t, text))
		assert.Check(t, value == expected.value && size == expected.size, "%s: %d, %d bytes", text, value, size)
	}
}

func TestTypes(t *testing.T) {
	seen := 0
	for i := range 256 {
		if index := Type(i).Index(); index > 0 {
			seen++
			if TypeAt(index) != Type(i) {
				t.Errorf("type %d has the index of %d", i, TypeAt(index))
			}
		}
	}
	assert.Check(t, seen == Types-1 && TypeAt(0) == 0 && TypeAt(Types) == 0, "%d types", seen)
	if StatsRecord.String() != "stats_record" || Type(7).String() != "type 7" || Type(200).String() != "type 200" {
		t.Error(StatsRecord, Type(7), Type(200))
	}
}
