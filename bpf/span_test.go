package bpf

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// With BySpan, the spans of a transaction are counted separately, each sample with the span that
// the slot had then, which may be none; without, they are counted together. Each sample is counted
// once.
func TestBySpan(t *testing.T) {
	const spans = 3 // the first is no span
	for _, bySpan := range []bool{false, true} {
		t.Run(fmt.Sprint(bySpan), func(t *testing.T) {
			s := openSampler(t, SamplerOptions{BySpan: bySpan})
			p := demo.Start(t, demo.Options{Busy: 1, Manual: true})
			addDemo(t, s, p)
			begun := p.Begin(1)
			var samples uint64
			drain := func() (counts []Count) {
				counts = drainAll(t, s)
				for _, c := range counts {
					samples += uint64(c.Samples)
					assert.Check(t, c.TraceID == begun.TraceID && c.TransactionID == begun.TransactionID,
						"no thread began %+v", c)
				}
				return counts
			}

			for number := range spans {
				var want [8]byte
				if span := p.Span(1, number); bySpan {
					want = span
				}
				drain() // discards earlier counts
				waitForOutcome(t, s, Correlated)
				for _, c := range drain() {
					assert.Check(t, c.SpanID == want, "in span %d, want %x: %+v", number, want, c)
				}
			}

			want := 1
			if bySpan {
				want = spans
			}
			testenv.Poll(t, waiting, "a stack of all spans", func() bool {
				for number := range spans {
					p.Span(1, number)
					waitForOutcome(t, s, Correlated)
				}
				ofStack := make(map[StackKey]map[[8]byte]bool)
				most := 0
				for _, c := range drain() {
					counted := ofStack[c.Stack]
					if counted == nil {
						counted = make(map[[8]byte]bool)
						ofStack[c.Stack] = counted
					}
					assert.Check(t, !counted[c.SpanID], "counted twice: %+v", c)
					counted[c.SpanID] = true
					most = max(most, len(counted))
				}
				assert.Check(t, most <= want, "%d counts of one stack, want %d", most, want)
				return most >= want
			})
			stop(t, s)
			drain()
			counters := readCounters(t, s)
			assert.Check(t, samples == counters[Correlated], "drained %d samples, counters %v", samples, counters)
		})
	}
}
