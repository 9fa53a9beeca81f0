package demo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

const otelTraceID, otelSpanID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

func otelRecord(t *testing.T) OTelRecord {
	t.Helper()
	r := OTelRecord{Flags: 1}
	if r.TraceID.UnmarshalText([]byte(otelTraceID)) != nil || r.SpanID.UnmarshalText([]byte(otelSpanID)) != nil {
		t.Fatal("malformed ids")
	}
	r.Attributes = OTelAttribute(r.Attributes, 0, otelSpanID)
	r.Attributes = OTelAttribute(r.Attributes, 1, "/pay/:id")
	return r
}

// otelVector is a record of OTEP 4947, encoded by hand.
const otelVector = otelTraceID + otelSpanID + "01 01 1c00 0010 30306630363761613062613930326237 0108 2f7061792f3a6964"

// Each way to have the variable, and both ways to write a record.
func TestOTelRecords(t *testing.T) {
	testenv.NeedRoot(t)
	for _, test := range []OTelOptions{
		{}, {Dynamic: true}, {InPlace: true}, {Program: OTelLinked, Form: OTelIE}, {Program: OTelPIE},
		{Program: OTelAligned}, {Program: OTelNoPIE, InPlace: true}, {Program: OTelHidden}, {Program: OTelStatic},
		{Program: OTelStaticPIE}, {AArch64: true}, {AArch64: true, Program: OTelStatic},
		{Musl: true}, {Musl: true, Program: OTelLinked}, {Musl: true, Program: OTelStatic},
		{Musl: true, Program: OTelStaticPIE},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			test.Threads = 1
			p := StartOTel(t, test)
			for thread := range 2 {
				if at := p.Threads()[thread]; at.Variable != 0 || at.TID == 0 {
					t.Errorf("at the start: %+v", at)
				}
				want := unhex(t, otelVector)
				at := p.Begin(thread, otelRecord(t))
				got := string(readMemory(t, p.PID, at.Record, len(want)))
				assert.Check(t, got == want, "record % x, not % x", got, want)
				pointer := readWord(t, p.PID, at.Variable)
				assert.Check(t, pointer == at.Record, "the variable holds %#x, not %#x", pointer, at.Record)
				again := p.Begin(thread, otelRecord(t))
				assert.Check(t, (again.Record == at.Record) == test.InPlace,
					"record at %#x, then at %#x", at.Record, again.Record)
				after := p.Clear(thread)
				valid := readMemory(t, p.PID, again.Record+24, 1)[0]
				if test.InPlace && (after.Record != again.Record || valid != 0) || !test.InPlace && after.Record != 0 {
					t.Errorf("cleared: %+v, valid is %d", after, valid)
				}
			}
		})
	}
}

// What no writer does, or few.
func TestOTelOddRecords(t *testing.T) {
	testenv.NeedRoot(t)
	p := StartOTel(t, OTelOptions{})
	assert.Check(t, p.Command(nil, "resize", "0", "1") != nil, "resized without a record")
	record := otelRecord(t)
	invalid := record.Bytes()
	invalid[24] = 2
	at := p.SetRecord(0, invalid)
	valid := readMemory(t, p.PID, at.Record+24, 1)[0]
	assert.Check(t, valid == 2, "valid is %d", valid)
	at = p.Begin(0, record)
	more := OTelAttribute(nil, 7, "more")
	grown := p.Resize(0, uint16(len(record.Attributes)+len(more)), more)
	assert.Check(t, grown.Record == at.Record, "another record: %+v", grown)
	record.Attributes = append(record.Attributes, more...)
	if got := readMemory(t, p.PID, at.Record, len(record.Bytes())); !bytes.Equal(got, record.Bytes()) {
		t.Errorf("% x, not % x", got, record.Bytes())
	}
	p.Resize(0, 0xffff, nil)
	size := readMemory(t, p.PID, at.Record+26, 2)
	assert.Check(t, string(size) == "\xff\xff", "size % x", size)
	odd := p.SetPointer(0, 0xdead0001)
	assert.Check(t, readWord(t, p.PID, odd.Variable) == 0xdead0001, "%+v", odd)
}

// otelPayload is the payload of OTelResource, in Java, and of OTelKeys, encoded by hand: the
// resource with its four attributes, then the schema, then the key map.
const otelPayload = "0aa401" +
	"0a1a 0a0c 736572766963652e6e616d65 120a 0a08 636865636b6f7574" +
	"0a3d 0a13 736572766963652e696e7374616e63652e6964" +
	"1226 0a24 31323364383434342d326337652d343665332d383966362d363231373838306637313233" +
	"0a25 0a1b 6465706c6f796d656e742e656e7669726f6e6d656e742e6e616d65 1206 0a04 70726f64" +
	"0a20 0a16 74656c656d657472792e73646b2e6c616e6775616765 1206 0a04 6a617661" +
	"122e 0a1a 7468726561646c6f63616c2e736368656d615f76657273696f6e 1210 0a0e 746c73646573635f76315f646576" +
	"124f 0a1d 7468726561646c6f63616c2e6174747269627574655f6b65795f6d6170 122e 2a2c" +
	"0a1c 0a1a 64617461646f672e6c6f63616c5f726f6f745f7370616e5f6964 0a0c 0a0a 687474702e726f757465"

// header returns the header of a process context, and the payload.
func (w *OTel) header(t *testing.T, c OTelContext) (header, payload []byte) {
	t.Helper()
	header = readMemory(t, w.PID, c.Header, 32)
	if c.PayloadSize > 0 {
		payload = readMemory(t, w.PID, c.Payload, int(c.PayloadSize))
	}
	return header, payload
}

// The process context is that of OTEP 4719, byte by byte.
func TestOTelProcessContext(t *testing.T) {
	testenv.NeedRoot(t)
	o := OTelOptions{Resource: OTelResource()}
	o.Resource[3].Value = "java"
	for _, same := range []bool{false, true} {
		o.SamePayload = same
		p := StartOTel(t, o)
		published := p.Published()
		header, payload := p.header(t, published)
		assert.Check(t, string(header[:8]) == "OTEL_CTX" && binary.LittleEndian.Uint32(header[8:]) == 2 &&
			binary.LittleEndian.Uint64(header[16:]) == published.PublishedAt,
			"header % x, published %+v", header, published)
		got, want := string(payload), unhex(t, otelPayload)
		assert.Check(t, got == want, "payload\n%x, not\n%x", got, want)
		maps := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/maps", p.PID))
		line := regexp.MustCompile(fmt.Sprintf("(?m)^%x-[0-9a-f]+ rw-p .*OTEL_CTX", published.Header))
		assert.Check(t, line.Match(maps), "no mapping with the name at %#x:\n%s", published.Header, maps)

		p.SetResource("service.name", "cart 2")
		p.SetKeys("a", "b", "c")
		p.SetSchema("tls_v1")
		updated := p.Publish()
		header, payload = p.header(t, updated)
		assert.Check(t, updated.PublishedAt > published.PublishedAt && updated.Header == published.Header,
			"%+v, and then %+v", published, updated)
		at := binary.LittleEndian.Uint64(header[24:])
		assert.Check(t, (updated.Payload == published.Payload) == same && updated.Payload == at,
			"payload at %#x, then at %#x", published.Payload, updated.Payload)
		for _, part := range []string{"\x0a\x06cart 2", "\x0a\x06tls_v1", "\x0a\x03\x0a\x01c"} {
			assert.Check(t, bytes.Contains(payload, []byte(part)), "no %q in %q", part, payload)
		}

		p.SpoilHeader("published_at", 0)
		if header, _ := p.header(t, updated); binary.LittleEndian.Uint64(header[16:]) != 0 {
			t.Errorf("header % x", header)
		}
		p.Withdraw()
		if maps := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/maps", p.PID)); bytes.Contains(maps, []byte("OTEL_CTX")) {
			t.Errorf("withdrawn, and still there:\n%s", maps)
		}
	}
}

// A child has a process context if it publishes one, and so has a program that is executed.
func TestOTelForkAndExec(t *testing.T) {
	testenv.NeedRoot(t)
	p := StartOTel(t, OTelOptions{Threads: 2})
	has := func(pid int) bool {
		return bytes.Contains(testenv.ReadFile(t, fmt.Sprintf("/proc/%d/maps", pid)), []byte("OTEL_CTX"))
	}
	p.Busy(1, true)
	record := p.Begin(1, otelRecord(t)) // of a busy thread
	assert.Check(t, record.Record != 0, "%+v", record)
	main := p.Begin(0, otelRecord(t))
	without, with := p.Fork(false, false), p.Fork(true, true)
	if !has(p.PID) || has(without) || !has(with) {
		t.Errorf("contexts: %v of the process, %v and %v of its children", has(p.PID), has(without), has(with))
	}
	pointer := readWord(t, without, main.Variable)
	assert.Check(t, pointer == main.Record, "the child's variable is %#x, not %#x", pointer, main.Record)
	p.Busy(1, false)
	before := p.Published()
	p.Restart()
	after := p.Published()
	assert.Check(t, after.PublishedAt > before.PublishedAt && has(p.PID), "%+v, and executed again %+v", before, after)
	threads := p.Threads()
	assert.Check(t, len(threads) == 3 && threads[0].Variable == 0, "threads %+v", threads)
	p.Quit()
}
