package feed

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

var unhex = testenv.Unhex

var (
	stackID       = [16]byte([]byte("\x60\xb4\x20\xbb\x38\x51\xd9\xd4\x7a\xcb\x93\x3d\xbe\x70\x39\x9b"))
	traceID       = [16]byte([]byte("\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36"))
	transactionID = [8]byte{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}

	withContext = Record{
		PID: 4711, TID: 4712, TimeNs: 0x0102030405060708, StackTraceID: stackID, Count: 3,
		HasContext: true, TraceID: traceID, TransactionID: transactionID,
	}
	withoutContext = Record{PID: 1, TID: math.MaxUint32, StackTraceID: stackID, Count: math.MaxUint16}
)

const (
	withContextHex = `67120000 68120000 0807060504030201 60b420bb3851d9d47acb933dbe70399b
		0300 0100 00000000 4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7`
	withoutContextHex = `01000000 ffffffff 0000000000000000 60b420bb3851d9d47acb933dbe70399b
		ffff 0000 00000000 00000000000000000000000000000000 0000000000000000`
)

// The bytes are those of a little-endian machine: the format is native-endian, and both
// architectures that we build for are little-endian.
var golden = []struct {
	records []Record
	hex     string
}{
	{[]Record{withContext}, `43464431 0100 0000` + withContextHex},
	{[]Record{withoutContext}, `43464431 0100 0000` + withoutContextHex},
	{[]Record{withContext, withoutContext}, `43464431 0200 0000` + withContextHex + withoutContextHex},
}

func TestGolden(t *testing.T) {
	for _, test := range golden {
		want := unhex(t, test.hex)
		got, err := AppendDatagram([]byte("kept"), test.records)
		assert.Check(t, err == nil && bytes.Equal(got, append([]byte("kept"), want...)),
			"encoded  %x (%v)\nwant kept%x", got, err, want)
		decoded, err := decode(want, []Record{withoutContext})
		assert.Check(t, err == nil && slices.Equal(decoded, append([]Record{withoutContext}, test.records...)),
			"decoded %+v (%v)\nwant %+v", decoded, err, test.records)
	}
}

func TestLargestDatagram(t *testing.T) {
	records := slices.Repeat([]Record{withContext}, maxRecords)
	b, err := AppendDatagram(nil, records)
	assert.Assert(t, err == nil && len(b) == maxDatagramBytes && len(b) <= 64<<10, "%d bytes, %v", len(b), err)
	got, err := decode(b, nil)
	assert.Check(t, err == nil && slices.Equal(got, records), "%d records, %v", len(got), err)
	for _, records := range [][]Record{nil, append(records, withContext), {withContext, {PID: 1, TID: 1}}} {
		b, err := AppendDatagram([]byte("kept"), records)
		assert.Check(t, errors.Is(err, errCount) && string(b) == "kept", "%d records: %x, %v", len(records), b, err)
	}
}

// The fields of a context that is not included are neither sent nor read.
func TestContextOnlyWhenIncluded(t *testing.T) {
	record := withContext
	record.HasContext = false
	b, err := AppendDatagram(nil, []Record{record})
	if err != nil || !bytes.Equal(b[48:72], make([]byte, 24)) {
		t.Errorf("sent %x, %v", b[48:], err)
	}
	copy(b[48:], "left from another record")
	record.TraceID, record.TransactionID = [16]byte{}, [8]byte{}
	got, err := decode(b, nil)
	assert.Check(t, err == nil && got[0] == record, "read %+v, %v", got, err)
}

func TestDecodeErrors(t *testing.T) {
	const ids = `60b420bb3851d9d47acb933dbe70399b`
	const context = `4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7`
	tooMany := append(unhex(t, `43464431 0004 0000`), bytes.Repeat(unhex(t, withContextHex), 1024)...)
	for name, test := range map[string]struct {
		datagram []byte
		want     error
	}{
		"nothing":         {nil, errMagic},
		"short header":    {unhex(t, `43464431 0100 00`), errMagic},
		"other magic":     {unhex(t, `43464432 0100 0000`+withContextHex), errMagic},
		"no records":      {unhex(t, `43464431 0000 0000`), errCount},
		"no records, but": {unhex(t, `43464431 0000 0000`+withContextHex), errLength},
		"one too many":    {unhex(t, `43464431 0100 0000`+withContextHex+withContextHex), errLength},
		"one too few":     {unhex(t, `43464431 0200 0000`+withContextHex), errLength},
		"a byte too few":  {unhex(t, `43464431 0100 0000`+withContextHex)[:71], errLength},
		"a byte too many": {unhex(t, `43464431 0100 0000`+withContextHex+`00`), errLength},
		"count of 65535":  {unhex(t, `43464431 ffff 0000`+withContextHex), errLength},
		"1024 records":    {tooMany, errCount},
		"header reserved": {unhex(t, `43464431 0100 0100`+withContextHex), errReserved},
		"record reserved": {unhex(t,
			`43464431 0100 0000 67120000 68120000 0000000000000000`+ids+`0300 0100 00000001`+context), errReserved},
		"unknown flag": {unhex(t,
			`43464431 0100 0000 67120000 68120000 0000000000000000`+ids+`0300 0300 00000000`+context), errFlags},
		"highest flag": {unhex(t,
			`43464431 0100 0000 67120000 68120000 0000000000000000`+ids+`0300 0080 00000000`+context), errFlags},
		"no samples": {unhex(t,
			`43464431 0100 0000 67120000 68120000 0000000000000000`+ids+`0000 0100 00000000`+context), errCount},
		"fault in second": {unhex(t,
			`43464431 0200 0000`+withContextHex+`67120000 68120000 0000000000000000`+ids+`0300 0200 00000000`+context),
			errFlags},
	} {
		got, err := decode(test.datagram, []Record{withContext})
		assert.Check(t, errors.Is(err, test.want) && slices.Equal(got, []Record{withContext}),
			"%s: %v (%d records), want %v", name, err, len(got), test.want)
		r := refusalReason(err)
		assert.Check(t, errors.Is(err, refusalReasons[r].err), "%s: counted as %v", name, r)
	}
}

func TestSampledAt(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const nowNs = uint64(2 * time.Hour)
	for timeNs, age := range map[uint64]time.Duration{
		0:                      0,
		nowNs:                  0,
		nowNs + 1:              0,
		math.MaxUint64:         0,
		nowNs - 1:              1,
		nowNs - uint64(maxAge): maxAge,
		1:                      maxAge,
	} {
		r := Record{TimeNs: timeNs}
		got := now.Sub(r.SampledAt(now, nowNs))
		assert.Check(t, got == age, "%d at %d is %v old, want %v", timeNs, nowNs, got, age)
	}
	r := Record{TimeNs: 1}
	got := now.Sub(r.SampledAt(now, math.MaxUint64))
	assert.Check(t, got == maxAge, "%v old, want %v", got, maxAge)
}

func FuzzDecode(f *testing.F) {
	for _, test := range golden {
		f.Add(unhex(f, test.hex))
	}
	f.Add(unhex(f, `43464431 ffff 0000`))
	f.Add(unhex(f, `43464431 0000 0000`))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := decode(b, nil)
		if err != nil {
			if r := refusalReason(err); !errors.Is(err, refusalReasons[r].err) || records != nil {
				t.Fatalf("%v, %d records", err, len(records))
			}
			return
		}
		again, err := AppendDatagram(nil, records)
		assert.NilError(t, err)
		for i := range records {
			if !records[i].HasContext { // these fields are not read
				at := headerBytes + i*recordBytes + 40
				copy(b[at:at+24], again[at:])
			}
		}
		assert.Assert(t, bytes.Equal(again, b), "%x\nis encoded as %x", b, again)
	})
}
