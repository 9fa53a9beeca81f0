package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// A large profile becomes several requests that share nothing, and nothing is lost between them.
func TestSplit(t *testing.T) {
	b, requests := collect(testOptions(&counter{}))
	want, got := make(map[observation]uint64), make(map[observation]uint64)
	const stacks = 2400
	for i := range 2 * stacks {
		frames := make([]profile.Frame, 5)
		for j := range frames {
			frames[j] = profile.Frame{File: library, Address: uint64(i%stacks*4+j) + 1}
		}
		sample := sampleOf(shop, frames...)
		sample.SpanID[7], sample.SpanID[6] = byte(i), byte(i>>8)
		sample.Thread = fmt.Sprintf("%0300d", i)
		assert.NilError(t, b.Add(&sample))
		observe(&sample, want)
	}
	left := b.Samples()
	assert.Check(t, left != 0 && left != 2*stacks, "%d samples left", left)
	b.Flush()
	if b.Flush(); b.Samples() != 0 || len(*requests) < 2 {
		t.Fatalf("%d requests, %d samples left", len(*requests), b.Samples())
	}
	samples, count := 0, uint64(0)
	for i, r := range *requests {
		n := len(r.Body)
		assert.Check(t, n <= requestBytes && (i >= len(*requests)-1 || n >= requestBytes*3/4), "request of %d bytes", n)
		samples, count = samples+r.Samples, count+r.Count
		observations(t, decode(t, r.Body), got)
	}
	assert.Check(t, samples == 2*stacks && count == 2*stacks && maps.Equal(got, want),
		"%d samples, %d counted, %d of %d arrived", samples, count, len(got), len(want))
}

// wide is a stack with so many files, each with as much text as is taken.
func wide(files int) (stack []profile.Frame) {
	for i := range files {
		text := fmt.Sprintf("%0*d", maxTextBytes, i)
		file := &profile.File{ID: profile.FileID{byte(i), byte(i >> 8), 1}, Kind: profile.NativeFrame, Path: text,
			BuildID: text}
		stack = append(stack, profile.Frame{File: file, Address: 1})
	}
	return stack
}

// deep is a stack with so many different frames.
func deep(frames int) (stack []profile.Frame) {
	for i := range frames {
		stack = append(stack, profile.Frame{Address: 0x7f0000000000 + uint64(i)})
	}
	return stack
}

func TestTooLarge(t *testing.T) {
	b, requests := collect(testOptions(&counter{}))
	small, large := sampleOf(shop, deep(1)...), sampleOf(shop, deep(75_000)...)
	huge := sampleOf(shop, wide(MaxRequestBytes/maxTextBytes)...)
	for i, c := range []struct {
		sample *profile.Sample
		err    error
	}{{&small, nil}, {&large, nil}, {&small, nil}, {&huge, ErrTooLarge}, {&small, nil}} {
		err := b.Add(c.sample)
		assert.Assert(t, errors.Is(err, c.err), "sample %d: %v", i, err)
	}
	b.Flush()
	var sizes []int
	for _, r := range *requests {
		decode(t, r.Body)
		sizes = append(sizes, len(r.Body))
		assert.Check(t, r.Samples == 1 && r.Profiles == 1, "%d samples, %d profiles", r.Samples, r.Profiles)
	}
	assert.Check(t, len(sizes) == 4 && sizes[1] > requestBytes && sizes[1] <= MaxRequestBytes &&
		sizes[0] == sizes[2] && sizes[2] == sizes[3],
		"requests of %d bytes", sizes)
}

// The bytes decide, and not what they were thought to be at most: a request is full with the last
// byte, and a single sample is too large by one.
func TestExactLimit(t *testing.T) {
	add := func(limit int, samples ...profile.Sample) (requests []Request, err error) {
		options := testOptions(&counter{})
		options.MaxBytes = limit
		b := NewBuilder(options, func(r Request) { requests = append(requests, r) })
		for i := range samples {
			err = errors.Join(err, b.Add(&samples[i]))
		}
		b.Flush()
		return requests, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var samples []profile.Sample
		processes := []*profile.Resource{shop, {PID: 1 << 30},
			{Service: profile.Service{Name: strings.Repeat("s", 200)}}}
		for range 1 + random.IntN(60) {
			s := sampleOf(processes[random.IntN(3)], deep(1+random.IntN(3))...)
			s.TID, s.Count = random.IntN(300), 1<<random.IntN(6) // not more than maxTimestamps in all
			if random.IntN(3) > 0 {
				s.Attributes = profile.NewAttributes([]profile.Attribute{
					{Key: "http.route", Value: fmt.Sprint(random.IntN(200))}, {Key: strings.Repeat("k", random.IntN(200)), Value: "value"}}[:random.IntN(3)])
			}
			s.Start = moment.Add(time.Duration(random.IntN(5)) * time.Second)
			s.End = s.Start.Add(1 << random.IntN(38))
			samples = append(samples, s)
		}
		all, err := add(0, samples...)
		assert.Assert(t, err == nil && len(all) == 1, "%d requests, %v", len(all), err)
		size := len(all[0].Body)
		fits, err := add(size, samples...)
		assert.Check(t, err == nil && len(fits) == 1, "%d requests at a limit of %d, %v", len(fits), size, err)
		less, err := add(size-1, samples...)
		assert.Check(t, len(samples) == 1 == errors.Is(err, ErrTooLarge) && (len(samples) <= 1 || len(less) >= 2),
			"%d requests of %d samples at a limit of %d - 1, %v", len(less), len(samples), size, err)
		for _, r := range less {
			decode(t, r.Body)
			assert.Check(t, len(r.Body) < size, "request of %d bytes, limit %d - 1", len(r.Body), size)
		}
	}
}

// A sample that does not fit leaves no trace, not even its time.
func TestNotTaken(t *testing.T) {
	first, second := sampleOf(shop, deep(1)...), sampleOf(&profile.Resource{PID: 43}, deep(9)...)
	second.Start, second.End = moment.Add(-time.Second), moment.Add(5*time.Second)
	alone, requests := collect(testOptions(&counter{}))
	assert.NilError(t, alone.Add(&first))
	alone.Flush()
	want := (*requests)[0].Body

	options := testOptions(&counter{})
	options.MaxBytes = len(want) + 200
	b, requests := collect(options)
	assert.NilError(t, errors.Join(b.Add(&first), b.Add(&second)))
	if len(*requests) != 1 || !bytes.Equal((*requests)[0].Body, want) {
		t.Errorf("%d requests, %x, want %x", len(*requests), (*requests)[0].Body, want)
	}
}

// Whatever a process calls itself, its samples are sent.
func TestHugeText(t *testing.T) {
	for _, unit := range []string{"x", "é", "€", "\U0001f600", "\xff", "\x80", "a\xe2\x82"} {
		text := "-" + strings.Repeat(unit, MaxRequestBytes/len(unit))
		file := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, BuildID: text, Path: text}
		sample := sampleOf(&profile.Resource{
			Service: profile.Service{Name: text, Environment: text, Namespace: text, Version: text, InstanceID: text,
				SDKName: text, SDKLanguage: text, SDKVersion: text},
			ContainerID: text, ExecutableName: text, ExecutablePath: text,
		}, profile.Frame{File: file, Address: 1})
		sample.Thread = text
		request := one(t, testOptions(&counter{}), sample)
		got := resourceOf(request.ResourceProfiles[0])["service.name"]
		if n := utf8.RuneCountInString(got); len(got) > 3*maxTextBytes || n < 2 || !strings.HasPrefix(got, "-") {
			t.Errorf("%q: %d bytes", unit, len(got))
		}
		assert.Check(t, !utf8.ValidString(unit) ||
			!strings.Contains(got, "\ufffd") && len(got) > maxTextBytes-len(unit) && len(got) <= maxTextBytes,
			"%q was cut to %d bytes within a letter", unit, len(got))
	}
}

// An interval that was no time, or ended before it began, is one of a sample with its exact time.
func TestExactTime(t *testing.T) {
	at := func(start, end time.Duration) profile.Sample {
		s := sampleOf(shop, profile.Frame{Address: 1})
		s.Start, s.End = moment.Add(start), moment.Add(end)
		return s
	}
	p := one(t, testOptions(&counter{}), at(0, 0), at(70, -5*time.Hour), at(100, 101), at(100, 102), at(70, 70)).
		ResourceProfiles[0].ScopeProfiles[0].Profiles[0]
	base := uint64(moment.UnixNano())
	s := p.Samples[0]
	assert.Assert(t, p.TimeUnixNano == base && p.DurationNano == 102 && len(s.TimestampsUnixNano) == 5, p)
	for i, after := range []uint64{0, 70, 70, 100, 101} {
		assert.Check(t, s.TimestampsUnixNano[i] == base+after, "at %d, want %d", s.TimestampsUnixNano[i]-base, after)
	}
}

// Samples have the times at which they were taken, also where they were fetched much later, or before the interval that
// they were counted in has ended, or began: those between the first and the last evenly spread.
func TestTimesAreThoseOfSamples(t *testing.T) {
	taken := func(at, last time.Duration, count uint64) profile.Sample {
		s := sampleOf(shop, profile.Frame{Address: 1})
		s.End = moment.Add(5 * time.Second) // when a CPU was to be had
		s.At, s.Last, s.Count = moment.Add(at), moment.Add(last), count
		return s
	}
	const ms = time.Millisecond
	for _, test := range []struct {
		samples      []profile.Sample
		times        []time.Duration
		begin, lasts time.Duration
	}{
		{[]profile.Sample{taken(10*ms, 10*ms, 1)}, []time.Duration{10 * ms}, 0, 5000 * ms},
		{[]profile.Sample{taken(10*ms, 50*ms, 3), taken(20*ms, 40*ms, 2), taken(10*ms, 10*ms, 1)},
			[]time.Duration{10 * ms, 10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms}, 0, 5000 * ms},
		{[]profile.Sample{taken(-10*ms, 6000*ms, 2)}, []time.Duration{-10 * ms, 6000 * ms}, -10 * ms, 6010*ms + 1},
		{[]profile.Sample{taken(10*ms, 0, 2)}, []time.Duration{10 * ms, 10 * ms}, 0, 5000 * ms},
		{[]profile.Sample{taken(0, 100*ms, maxTimestamps), taken(0, 50*ms, 1)}, []time.Duration{100 * ms}, 0,
			5000 * ms}, // too many for each to have its own
	} {
		p := one(t, testOptions(&counter{}), test.samples...).ResourceProfiles[0].ScopeProfiles[0].Profiles[0]
		var times []time.Duration
		for _, at := range p.Samples[0].TimestampsUnixNano {
			times = append(times, time.Unix(0, int64(at)).Sub(moment))
		}
		begin := time.Unix(0, int64(p.TimeUnixNano)).Sub(moment)
		assert.Check(t, slices.Equal(times, test.times) && begin == test.begin &&
			time.Duration(p.DurationNano) == test.lasts, "%v, want %+v", p, test)
	}
}

// Drained intervals of several CPUs, processes and goroutines overlap and come in any order; those
// of one sample are told in that of time, each once.
func TestAnyOrder(t *testing.T) {
	b, requests := collect(testOptions(&counter{}))
	want := make(map[observation]uint64)
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(600) {
		s := sampleOf(shop, profile.Frame{Address: uint64(1 + i%3)})
		s.Start = moment.Add(time.Duration(i/12) * 100 * time.Millisecond)
		s.End, s.Count = s.Start.Add(100*time.Millisecond), uint64(1+i%7)
		assert.NilError(t, b.Add(&s))
		observe(&s, want)
	}
	b.Flush()
	got := make(map[observation]uint64)
	request := decode(t, (*requests)[0].Body)
	observations(t, request, got)
	assert.Check(t, len(*requests) == 1 && maps.Equal(got, want), "%v, want %v", got, want)
	for _, s := range request.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples {
		for i, at := range s.TimestampsUnixNano[1:] {
			assert.Assert(t, at >= s.TimestampsUnixNano[i], s.TimestampsUnixNano)
		}
	}
}

// No profile lasts from one time to another that the clock was set to.
func TestClockSet(t *testing.T) {
	for name, step := range map[string]time.Duration{"back": -time.Hour, "forward": time.Hour,
		"corrected": -200 * time.Millisecond} {
		b, requests := collect(testOptions(&counter{}))
		for i := range 10 {
			s := sampleOf(shop, profile.Frame{Address: 1})
			s.Start = moment.Add(time.Duration(i) * 100 * time.Millisecond)
			if i >= 5 {
				s.Start = s.Start.Add(step)
			}
			s.End = s.Start.Add(100 * time.Millisecond)
			if i == 4 && step > 0 { // the interval in which it was set
				s.End = s.End.Add(step)
			}
			assert.NilError(t, b.Add(&s))
		}
		b.Flush()
		want := 2
		if name == "corrected" {
			want = 1
		}
		assert.Assert(t, len(*requests) == want, "%s: %d requests", name, len(*requests))
		count := uint64(0)
		for i, r := range *requests {
			p := decode(t, r.Body).ResourceProfiles[0].ScopeProfiles[0].Profiles[0]
			lasts := time.Duration(p.DurationNano)
			assert.Check(t, lasts <= time.Second || step > 0 && i == 0, "%s: profile %d lasts %v", name, i, lasts)
			count += r.Count
		}
		assert.Check(t, count == 10, "%s: %d samples", name, count)
	}
}

// A sample that was seen so often that its timestamps would take too much has its count, and the
// latest of the times.
func TestManyTimes(t *testing.T) {
	seen := func(n int, count uint64) profile.Sample {
		s := sampleOf(shop, profile.Frame{Address: 1})
		s.Start, s.Count = s.Start.Add(time.Duration(n)*time.Second), count
		s.End = s.Start.Add(100 * time.Millisecond)
		return s
	}
	middle := func(s profile.Sample) uint64 { return uint64(s.Start.UnixNano()) + 5e7 }
	for _, c := range []struct {
		samples []profile.Sample
		values  []int64
		latest  profile.Sample
	}{
		{[]profile.Sample{seen(0, maxTimestamps-1), seen(1, 1)}, nil, seen(1, 1)},
		{[]profile.Sample{seen(1, 1), seen(0, maxTimestamps)}, []int64{maxTimestamps + 1}, seen(1, 1)},
		{[]profile.Sample{seen(1, 1), seen(0, maxTimestamps), seen(2, 1)}, []int64{maxTimestamps + 2}, seen(2, 1)},
		{[]profile.Sample{seen(0, maxTimestamps+1), seen(2, 1), seen(1, 1)}, []int64{maxTimestamps + 3}, seen(2, 1)},
	} {
		s := one(t, testOptions(&counter{}), c.samples...).ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples[0]
		want := maxTimestamps
		if c.values != nil {
			want = 1
		}
		if !slices.Equal(s.Values, c.values) || len(s.TimestampsUnixNano) != want ||
			s.TimestampsUnixNano[want-1] != middle(c.latest) {
			t.Errorf("values %d, %d timestamps, the last %d, want %d, %d, %d", s.Values, len(s.TimestampsUnixNano),
				s.TimestampsUnixNano[len(s.TimestampsUnixNano)-1], c.values, want, middle(c.latest))
		}
	}
}

// Requests become smaller, too, when a sample has a value instead of its timestamps. None is larger
// than its limit, and nothing is lost.
func TestLimitWithValues(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		options := testOptions(&counter{})
		options.MaxBytes = 20_000 + random.IntN(100_000)
		b, requests := collect(options)
		var added, sent uint64
		for i := range 500 {
			s := sampleOf(shop, profile.Frame{Address: 1})
			s.TID, s.Count = 1+random.IntN(10), 1<<random.IntN(14)
			s.Start = moment.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			s.End = s.Start
			assert.NilError(t, b.Add(&s))
			added += s.Count
			if i%7 == 0 {
				size, body := b.size(), len(b.encode())
				assert.Assert(t, size == body, "%d bytes, expected %d", body, size)
			}
		}
		b.Flush()
		values := 0
		for _, r := range *requests {
			observed := make(map[observation]uint64)
			request := decode(t, r.Body)
			observations(t, request, observed)
			for _, n := range observed {
				sent += n
			}
			for _, s := range request.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples {
				values += len(s.Values)
			}
			assert.Check(t, len(r.Body) <= options.MaxBytes, "%d bytes, of at most %d", len(r.Body), options.MaxBytes)
		}
		assert.Check(t, added == sent && values != 0, "%d times sent of %d, %d with a value", sent, added, values)
	}
}

// Where requests must be small, a sample of many times is one of them as well.
func TestManyTimesOfSmallRequest(t *testing.T) {
	options := testOptions(&counter{})
	options.MaxBytes = 4 << 10
	s := sampleOf(shop, profile.Frame{Address: 1})
	for _, s.Count = range []uint64{1, 256, 257, maxTimestamps, math.MaxInt64} {
		b, requests := collect(options)
		if err := b.Add(&s); err != nil {
			t.Fatalf("%d times: %v", s.Count, err)
		}
		b.Flush()
		if r := (*requests)[0]; len(r.Body) > options.MaxBytes || r.Count != s.Count {
			t.Errorf("%d bytes, %d of %d times", len(r.Body), r.Count, s.Count)
		}
	}
}

// What is kept for a request is bounded where samples were seen too often for their times to be told.
func TestManyIntervals(t *testing.T) {
	b, requests := collect(testOptions(&counter{}))
	const intervals = maxTimestamps + 1
	for i := range 2*maxPoints/intervals + 1 {
		for j := range intervals {
			s := sampleOf(shop, profile.Frame{Address: 1})
			s.TID, s.Count = 1+i, 1
			s.Start = moment.Add(time.Duration(j))
			s.End = s.Start
			if err := b.Add(&s); err != nil {
				t.Fatal(err)
			}
		}
		assert.Assert(t, len(b.points) <= maxPoints, "%d intervals of a request", len(b.points))
	}
	b.Flush()
	var count uint64
	for _, r := range *requests {
		count += r.Count
	}
	if want := uint64(2*maxPoints/intervals+1) * intervals; len(*requests) < 2 || count != want {
		t.Errorf("%d samples in %d requests, want %d", count, len(*requests), want)
	}
}

// Counts can be large, and times be the first there are.
func TestExtremes(t *testing.T) {
	s := sampleOf(shop, profile.Frame{Address: 1})
	s.Count, s.Start, s.End = math.MaxUint64, time.Unix(0, 1), time.Unix(0, math.MaxInt64)
	again := s
	again.Count = 7
	p := one(t, testOptions(&counter{}), s, again).ResourceProfiles[0].ScopeProfiles[0].Profiles[0]
	assert.Check(t, p.Samples[0].Values[0] == math.MaxInt64 && p.TimeUnixNano == 1 && p.DurationNano == math.MaxInt64-1,
		p)
}

// heapBytes is what is in use.
func heapBytes() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A burst is paid back, and what remains does not depend on which samples were the frequent ones.
func TestMemory(t *testing.T) {
	full := 0
	before := heapBytes()
	b := NewBuilder(testOptions(&counter{}), func(r Request) { full = max(full, len(r.Body)) })
	// Each round others are the samples that fill the request: 1 MB more each time if that stayed with
	// them.
	for round := range 5 {
		s := sampleOf(shop, profile.Frame{Address: 1})
		add := func() {
			assert.NilError(t, b.Add(&s))
		}
		for i := range 12_000 {
			s.TID = 1 + i
			add()
		}
		for i := range 60_000 {
			s.TID = 1 + round*100 + i/4000
			s.Start = moment.Add(time.Duration(i))
			s.End = s.Start
			add()
		}
		b.Flush()
	}
	burst := heapBytes() - before
	assert.Check(t, full >= requestBytes*8/10 && burst <= 6<<20, "%d bytes in use after requests of %d", burst, full)
	for range shrinkAfter {
		s := sampleOf(shop, profile.Frame{Address: 1})
		assert.NilError(t, b.Add(&s))
		b.Flush()
	}
	rest := heapBytes() - before
	assert.Check(t, rest <= 256<<10, "%d bytes in use after small requests, %d after large ones", rest, burst)
	runtime.KeepAlive(b)
}

// Once a request has had samples like it, another one costs no allocation.
func TestAllocations(t *testing.T) {
	samples := realistic()
	for i := range samples { // cut by the kernel, within a letter
		samples[i].Thread = "pool-läu-ä\xc3"
	}
	b := NewBuilder(testOptions(&counter{}), func(Request) {})
	add := func() {
		for i := range samples {
			if err := b.Add(&samples[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	add()
	b.Flush()
	add()
	n := testing.AllocsPerRun(10, add)
	assert.Check(t, n == 0, "%v allocations for %d samples that the request has", n, len(samples))
	whole := testing.AllocsPerRun(10, func() {
		add()
		b.Flush()
	})
	assert.Check(t, whole <= 20, "%v allocations for a request of %d samples", whole, len(samples))
}
