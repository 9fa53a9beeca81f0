package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"
)

// interval is a time in nanoseconds since 1970.
type interval struct{ from, to int64 }

var always = interval{0, math.MaxInt64}

// has reports whether all of a transaction was in the interval.
func (i interval) has(t truth) bool { return i.from <= t.BeganNs && t.EndedNs <= i.to }

// deviations is how many standard deviations of as many independent samples the number of samples may
// be off. The samples of a CPU come at even intervals, so that 5 are never exceeded by chance.
const deviations = 5

// leastSamples is how many must be expected for their number to tell something.
const leastSamples = 40

// showContexts prints the transactions that a process has served while samples were taken, beside what
// it says of them, and the methods of one. It is an error when a transaction, samples or methods are
// missing, or when they are not what the process says.
func showContexts(w io.Writer, transactions map[string]*transaction, events string, rate int, during interval) error {
	served, err := readTruth(events)
	if err != nil {
		return err
	}
	for trace := range transactions {
		if _, known := served[trace]; !known {
			return fmt.Errorf("the process has served no trace %s", trace)
		}
	}
	whole := slices.SortedFunc(maps.Values(served), func(a, b truth) int { return cmp.Compare(a.BeganNs, b.BeganNs) })
	whole = slices.DeleteFunc(whole, func(t truth) bool { return !during.has(t) })
	var cpu time.Duration
	var samples uint64
	complete := make(map[string]*transaction)
	fmt.Fprintf(w, "  %-32s  %-16s  %-14s  %7s  %8s  %7s\n", "TRACE", "SPAN", "http.route", "CPU ms", "EXPECTED",
		"SAMPLES")
	for _, said := range whole {
		t := transactions[said.TraceID]
		if t == nil {
			if expected(time.Duration(said.CPUNs), rate) >= leastSamples {
				return fmt.Errorf("trace %s has no sample", said.TraceID)
			}
			continue
		}
		if want := (context{said.SpanID, said.Route}); len(t.contexts) != 1 || t.contexts[want] == 0 {
			return fmt.Errorf("samples of trace %s say %+v, the process says %+v", said.TraceID, t.contexts, want)
		}
		complete[said.TraceID] = t
		cpu, samples = cpu+time.Duration(said.CPUNs), samples+t.samples()
		fmt.Fprintf(w, "  %-32s  %-16s  %-14s  %7.1f  %8.1f  %7d\n", said.TraceID, said.SpanID, said.Route,
			float64(said.CPUNs)/1e6, expected(time.Duration(said.CPUNs), rate), t.samples())
	}
	want := expected(cpu, rate)
	fmt.Fprintf(w, "  in all: %.2f s of CPU x %d Hz = %.1f; recorded %d\n\n", cpu.Seconds(), rate, want, samples)
	if want < leastSamples {
		return fmt.Errorf("%.1f samples expected: too few to tell anything", want)
	}
	if math.Abs(float64(samples)-want) > deviations*math.Sqrt(want) {
		return fmt.Errorf("%d samples, %.1f expected", samples, want)
	}
	t := mostNamed(complete)
	fmt.Fprintf(w, "  Trace %s:\n\n", t.trace)
	return showTree(w, t, served[t.trace].Methods)
}

// methods returns the transaction with its methods alone: native code that a runtime interprets them
// with is most of their stacks.
func (t *transaction) methods() *transaction {
	of := *t
	of.stacks = nil
	for _, s := range t.stacks {
		frames := slices.DeleteFunc(slices.Clone(s.frames), func(f frame) bool { return !f.method })
		of.stacks = append(of.stacks, stack{frames, s.samples})
	}
	return &of
}

// mostNamed returns the methods of the transaction of which most samples have any: of the first, some
// may be from before the stacks of the process were unwound.
func mostNamed(all map[string]*transaction) *transaction {
	methods, named := make(map[string]*transaction), make(map[string]*transaction)
	for trace, t := range all {
		of := t.methods()
		only := *of
		only.stacks = slices.DeleteFunc(slices.Clone(of.stacks), func(s stack) bool { return len(s.frames) == 0 })
		methods[trace], named[trace] = of, &only
	}
	return methods[hottest(named).trace]
}

func expected(cpu time.Duration, rate int) float64 { return cpu.Seconds() * float64(rate) }
