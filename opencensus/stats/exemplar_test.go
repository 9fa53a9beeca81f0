package stats

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/opencensus/wire"
)

// withAttachments records values of the measure "m".
func (u *Update) withAttachments(all []wire.Measurement, tags []wire.KeyValue, attachments ...string) {
	u.Record(&wire.Record{Measurements: all, Tags: tags, Attachments: pairs(attachments...)}, time.Time{})
}

// The latest of each bucket, and of a count or sum; none of gauges; none twice.
func TestExemplars(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("count", wire.Count), viewOf("sum", wire.Sum), distribution("d", 1, 2),
			viewOf("last", wire.LastValue)})
		for i, value := range []float64{0.5, 5, 1, 6} {
			u.withAttachments(floats("m", value), nil, "n", fmt.Sprint(i))
		}
		u.test(floats("m", 7)) // without attachments: no exemplar
	})
	assert.Check(t, s.Status().Memory != New(Options{}).Status().Memory, "exemplars take no memory")
	expect(t, s, 0, `count sum "1" {} 5 <6.0   {n=3}>`, `sum sum "" {} 19.5 <6.0   {n=3}>`,
		`d histogram "" {} 5 19.5 0.5..7 [1 2] [2 0 3] <1.0   {n=2}> <6.0   {n=3}>`, `last gauge "" {} 7.0`)
	before := s.Status().Memory
	expect(t, s, 0, `count sum "1" {} 5`, `sum sum "" {} 19.5`, `d histogram "" {} 5 19.5 0.5..7 [1 2] [2 0 3]`,
		`last gauge "" {} 7.0`)
	update(s, 0, func(u *Update) { u.withAttachments(floats("m", 1), nil, "n", "1") })
	update(s, 0, func(u *Update) { u.withAttachments(floats("m", 1), nil, "n", "longer than it was") })
	s.Encode(moment)
	after := s.Status().Memory
	assert.Check(t, after == before, "%d bytes of exemplars are still taken", after-before)
	expectLost(t, s, nil)
}

// Which attachments are ids, and what becomes of the others.
func TestAttachments(t *testing.T) {
	const id = "0123456789abcdef0123456789ABCDEF"
	lower, zeros, noDigits := strings.ToLower(id), strings.Repeat("0", 32), strings.Repeat("g", 32)
	for _, test := range []struct {
		attachments []string
		want        string
	}{
		{[]string{"trace_id", id, "span_id", "00f067aa0ba902b7"}, lower + ` 00f067aa0ba902b7 {}`},
		{[]string{"traceId", id, "spanId", "f"}, lower + ` 000000000000000f {}`},
		{[]string{"TRACEID", id, "SPANID", "ABC"}, lower + ` 0000000000000abc {}`},
		{[]string{"Trace_Id", id}, lower + `  {}`},
		{[]string{"span_id", "1"}, ` 0000000000000001 {}`},
		{[]string{"trace_id", id[1:], "span_id", "00000000000000001"},
			`  {trace_id=` + id[1:] + ` span_id=00000000000000001}`},
		{[]string{"trace_id", zeros, "span_id", "0"}, `  {trace_id=` + zeros + ` span_id=0}`},
		{[]string{"trace_id", noDigits, "span_id", ""}, `  {trace_id=` + noDigits + ` span_id=}`},
		{[]string{"trace-id", id, "", "empty", "b\xff", "\xfe"}, "  {trace-id=" + id + " b\ufffd=\ufffd}"},
		{[]string{"traceid", id, "trace_id", "second"}, lower + `  {trace_id=second}`},
		{[]string{"trace_id", id, "traceid", zeros[1:] + "2", "span_id", "1", "spanid", "2"},
			lower + ` 0000000000000001 {traceid=` + zeros[1:] + `2 spanid=2}`},
		{[]string{"used", "from the attachment", "unused", "likewise"}, `  {unused=likewise}`},
	} {
		s := New(Options{})
		update(s, 0, func(u *Update) {
			u.registerView(viewOf("v", wire.Count, "used"))
			u.withAttachments(ints("m", 9), pairs("used", "1"), test.attachments...)
		})
		expect(t, s, 0, `v sum "1" {used=1} 1 <9 `+test.want+`>`)
	}
}

// Exemplars have no attribute without a key, nor one that their point has, whichever view it is.
func TestExemplarKeys(t *testing.T) {
	s := New(Options{})
	update(s, 0, func(u *Update) {
		u.RegisterViews([]wire.View{viewOf("none", wire.Count), viewOf("one", wire.Count, "b"),
			viewOf("two", wire.Count, "a", "c")})
		u.withAttachments(ints("m", 9), pairs("", "tag", "b", "tag", "d", "tag"), "", "x", "a", "1", "b", "2", "c", "3")
	})
	expect(t, s, 0, `none sum "1" {} 1 <9   {a=1 b=2 c=3 d=tag}>`, `one sum "1" {b=tag} 1 <9   {a=1 c=3 d=tag}>`,
		`two sum "1" {} 1 <9   {b=2 d=tag}>`)
	// The two without a key, the tag b, and 1 and 2 of views.
	expectLost(t, s, map[Loss]uint64{ExemplarAttribute: 6})
}

// Keys are unique, and an exemplar is not large.
func TestExemplarBounds(t *testing.T) {
	s := New(Options{})
	long := strings.Repeat("x", maxText+1)
	update(s, 0, func(u *Update) {
		u.registerView(viewOf("v", wire.Count, "used"))
		u.withAttachments(ints("m", 9), pairs("a", "tag", "t", "tag", "t", "again", "used", "1"),
			"a", "1", "a", "2", strings.Repeat("k", maxName+1), "", "b", long, "c", long)
	})
	expect(t, s, 0, `v sum "1" {used=1} 1 <9   {a=1 b=`+long[1:]+` t=tag}>`)
	// Not taken: a twice, t again; b is cut, c is cut and too large.
	expectLost(t, s, map[Loss]uint64{ExemplarAttribute: 4, TagName: 1, ValueCut: 2})

	s = New(Options{})
	var many []string
	for i := range maxTags + 3 {
		many = append(many, fmt.Sprint("k", i), strings.Repeat("v", 30))
	}
	var tags []wire.KeyValue
	for i := range maxTags {
		tags = append(tags, pairs(fmt.Sprint("t", i), strings.Repeat("v", 30))...)
	}
	update(s, 0, func(u *Update) {
		u.registerView(viewOf("v", wire.Count))
		u.withAttachments(ints("m", 9), tags, many...)
		for _, e := range s.views["v"].series[0].exemplars {
			n := len(e.encoded)
			assert.Check(t, n <= maxExemplar && n >= maxExemplar-100, "%d bytes", n)
		}
	})
	c := s.Counts()
	assert.Check(t, c.Lost[TagsTooMany] == 3 && c.Lost[ExemplarAttribute] != 0, c.Lost)
	export(t, s, 0)
}

// The time is the sender's, if its clock is right.
func TestExemplarTime(t *testing.T) {
	for _, test := range []struct{ sent, want time.Duration }{
		{0, 0}, {-time.Millisecond, -time.Millisecond}, {5 * time.Minute, 5 * time.Minute},
		{-5 * time.Minute, -5 * time.Minute},
		{5*time.Minute + 1, 0}, {-5*time.Minute - 1, 0}, {1 << 62, 0}, {-1 << 62, 0},
	} {
		s := New(Options{})
		update(s, 0, func(u *Update) {
			u.registerView(viewOf("v", wire.Count))
			u.Record(&wire.Record{Measurements: ints("m", 1), Attachments: pairs("a", "b")}, moment.Add(test.sent))
		})
		got := export(t, s, 0)[0].GetSum().DataPoints[0].Exemplars[0].TimeUnixNano
		want := uint64(moment.Add(test.want).UnixNano())
		assert.Check(t, got == want, "sent %v later: %d, want %d", test.sent, got, want)
	}
}

// Exemplars that do not fit into a request with their point are left out of it, not the point.
func TestExemplarTooLarge(t *testing.T) {
	s := New(Options{MaxBytes: 4096})
	update(s, 0, func(u *Update) {
		u.registerView(distribution("d", 1, 2, 3, 4))
		for i := range 5 {
			u.withAttachments(floats("m", float64(i)+0.5), nil, "a", strings.Repeat("x", 1000))
		}
	})
	requests := s.Encode(moment)
	assert.Assert(t, len(requests) == 1 && bytes.Contains(requests[0].Body, []byte("xxx")),
		"%d requests", len(requests))
	decode(t, requests[0], 4096)
	expectLost(t, s, map[Loss]uint64{ExemplarTooLarge: 2})
}
