package profiles

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// waitOf returns a wait of a process.
func waitOf(r *profile.Resource, w profile.Wait) profile.Sample {
	s := sampleOf(r, profile.NewJVMFrame(profile.NewFunction("Shop.sort", ""), 1))
	s.TraceID, s.SpanID, s.Wait = [16]byte{1}, [8]byte{2}, &w
	return s
}

// Waits are a profile of their own of the same process: their time is the value, with the span that waited, what for,
// and who ended it. The profile of samples is as it is without them.
func TestWaits(t *testing.T) {
	byHolder := profile.Wait{State: profile.Futex, Sum: time.Second, Path: "/data/\xff", Waker: profile.Waker{
		Kind: profile.ThreadWaker, PID: 7, TID: 70, Thread: "java-7", Service: "cart", TraceID: [16]byte{0xab},
		TransactionID: [8]byte{0xcd}}}
	network := profile.Wait{State: profile.Net, Sum: 5, Peer: "[2001:db8::1]:443",
		Waker: profile.Waker{Kind: profile.NetworkWaker, PID: 9, Thread: "swapper"}}
	sample, first, second := sampleOf(shop, profile.Frame{Address: 1}), waitOf(shop, byHolder), waitOf(shop, network)
	published := []profile.Attribute{{Key: "wait.file.name", Value: "forged"}, {Key: "http.route", Value: "/"}}
	sample.Attributes = profile.NewAttributes(published)
	first.Attributes = sample.Attributes
	again := first
	again.Start, again.End = first.Start.Add(time.Second), first.End.Add(time.Second)
	request := one(t, testOptions(&counter{}), sample, first, again, second)
	d := request.Dictionary
	assert.Assert(t, len(request.ResourceProfiles) == 2, "%d resources", len(request.ResourceProfiles))
	cpu, off := request.ResourceProfiles[0], request.ResourceProfiles[1]
	assert.DeepEqual(t, resourceOf(cpu), resourceOf(off))
	p := off.ScopeProfiles[0].Profiles[0]
	text := func(i int32) string { return d.StringTable[i] }
	assert.Check(t, text(p.SampleType.TypeStrindex) == "off_cpu" && text(p.SampleType.UnitStrindex) == "nanoseconds" &&
		text(p.PeriodType.TypeStrindex) == "context_switch" && text(p.PeriodType.UnitStrindex) == "count" &&
		p.Period == 0, p)
	assert.Assert(t, len(p.Samples) == 2, p.Samples)
	latest := uint64(again.Start.UnixNano()) + 5e8
	for i, want := range []struct {
		value  int64
		number map[string]int64
		texts  map[string]string
	}{
		{2e9, map[string]int64{"wait.waker.thread.id": 70, "wait.waker.process.pid": 7}, map[string]string{
			"wait.kind": "lock", "wait.file.name": "/data/\ufffd", "wait.waker": "thread",
			"wait.waker.thread.name":  "java-7",
			"wait.waker.service.name": "cart", "wait.waker.trace_id": "ab" + strings.Repeat("0", 30),
			"wait.waker.transaction.id": "cd00000000000000", "http.route": "/"}},
		{5, map[string]int64{"network.peer.port": 443}, map[string]string{"wait.kind": "net", "wait.waker": "network",
			"network.peer.address": "2001:db8::1"}},
	} {
		s := p.Samples[i]
		assert.Check(t, slices.Equal(s.Values, []int64{want.value}) && len(s.TimestampsUnixNano) == 1 &&
			[8]byte(d.LinkTable[s.LinkIndex].SpanId) == first.SpanID, "%v", s)
		if i == 0 {
			assert.Check(t, s.TimestampsUnixNano[0] == latest, s)
		}
		got := attributes(d, s.AttributeIndices)
		for key, number := range want.number {
			assert.Check(t, got[key].GetIntValue() == number, "%s of %v", key, got)
		}
		for key, text := range want.texts {
			assert.Check(t, got[key].GetStringValue() == text, "%s of %v", key, got)
		}
		const ofSample = 3 // thread.id, thread.name, transaction.id
		assert.Check(t, len(got) == len(want.number)+len(want.texts)+ofSample && len(got) == len(s.AttributeIndices),
			"%v", got)
	}
	alone := one(t, testOptions(&counter{}), sample)
	assert.Check(t, len(alone.Dictionary.StringTable) < len(d.StringTable) &&
		!slices.Contains(alone.Dictionary.StringTable, "off_cpu"), alone.Dictionary.StringTable)
	got := attributes(alone.Dictionary,
		alone.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples[0].AttributeIndices)
	// A sample's own attribute of that name has no other meaning.
	assert.Check(t, got["wait.file.name"].GetStringValue() == "forged", "%v", got)
}

// A wait that does not fit into a request, or lasts no time, leaves nothing of it there.
func TestWaitsUndone(t *testing.T) {
	wait := waitOf(shop, profile.Wait{State: profile.Futex, Sum: 1})
	for _, sum := range []time.Duration{0, -1} {
		b, _ := collect(testOptions(&counter{}))
		wait.Wait.Sum = sum
		assert.Check(t, errors.Is(b.Add(&wait), ErrInvalid), "%v", sum)
	}
	wait.Wait.Sum = time.Second
	options := testOptions(&counter{})
	options.MaxBytes = 700
	b, requests := collect(options)
	sample := sampleOf(shop, profile.Frame{Address: 1})
	assert.NilError(t, b.Add(&sample))
	wait.Wait.Path = strings.Repeat("p", 900)
	assert.Check(t, errors.Is(b.Add(&wait), ErrTooLarge))
	sample.TID++
	assert.NilError(t, b.Add(&sample))
	b.Flush()
	for _, r := range *requests {
		decoded := decode(t, r.Body)
		assert.Check(t, len(decoded.ResourceProfiles) == 1 && !slices.Contains(decoded.Dictionary.StringTable,
			"off_cpu"),
			decoded.Dictionary.StringTable)
	}
	assert.Check(t, len(*requests) == 2, "%d requests", len(*requests))
}

// However many different waits there are, requests stay within their limit, and no time is lost.
func TestManyWaits(t *testing.T) {
	options := testOptions(&counter{})
	options.MaxBytes = 20_000
	b, requests := collect(options)
	for i := range 1000 {
		wait := waitOf(shop, profile.Wait{State: profile.Disk, Sum: 1 << 40, Path: strings.Repeat("x", i%300)})
		wait.TID = i
		assert.NilError(t, b.Add(&wait))
		sample := sampleOf(shop, profile.Frame{Address: uint64(i + 1)})
		assert.NilError(t, b.Add(&sample))
	}
	b.Flush()
	sum, count := int64(0), uint64(0)
	for _, r := range *requests {
		assert.Check(t, len(r.Body) <= options.MaxBytes, "%d bytes", len(r.Body))
		count += r.Count
		for _, of := range decode(t, r.Body).ResourceProfiles {
			for _, s := range of.ScopeProfiles[0].Profiles[0].Samples {
				for _, value := range s.Values {
					sum += value
				}
			}
		}
	}
	assert.Check(t, sum == 1000<<40 && count == 2000, "%d ns, %d samples", sum, count)
}
