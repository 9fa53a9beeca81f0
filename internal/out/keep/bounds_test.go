package keep

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gotest.tools/v3/assert"

	"correlator/internal/names/naming"
	"correlator/profile"
)

// Sums never hold more than they may, and give up those with fewest samples, of as many those that came last.
func TestSums(t *testing.T) {
	const most, all, every, many = 8, 100, 25, 1000
	s := newSums[int](most)
	added, dropped := uint64(0), uint64(0)
	for key := range all {
		samples := uint64(1)
		if key%every == 0 {
			samples = many
		}
		added += samples
		s.add(key, samples, func(key int, samples uint64) {
			assert.Check(t, samples == 1 && s.all[key] == sum{}, "%d, which has %d samples", key, samples)
			dropped += samples
		})
		assert.Assert(t, len(s.all) < most, "%d of %d", len(s.all), most)
	}
	left := s.sort()
	for i, of := range left {
		added -= of.samples
		assert.Check(t, i >= all/every || of.key == i*every && of.samples == many, "%d: %+v", i, of)
		assert.Check(t, i == 0 || left[i-1].samples > of.samples || left[i-1].order < of.order, "%+v", left)
	}
	assert.Check(t, added == dropped && len(left) >= most/2, "%d dropped, want %d; %+v", dropped, added, left)
}

// A stack has room as long as the part of an answer for stacks has, whether it is new there or not.
func TestRoomForStacks(t *testing.T) {
	s := NewStore(time.Minute, MinBytes)
	s.Add(newSample(resource("a", 1), 1, begin, stackOf("main")), begin)
	st := s.owners["a"].slices[0].entries[0].stack
	c := newCollector(t.Context(), s, &Answer{})
	const size = stackFrameText + frameText + len("main"+"Shop.java")
	for _, left := range []int{size + 1, 1} { // new, and not
		c.bytes = maxStackBytes - left
		assert.Check(t, !c.addStack(st, 2) && c.bytes == maxStackBytes-left)
		assert.Check(t, c.addStack(st, 1) && c.bytes == maxStackBytes, "%d of %d bytes", c.bytes, maxStackBytes)
	}
	assert.Check(t, len(c.answer.Stacks) == 1)
}

// A text is not longer in an answer than is counted.
func TestTextBytes(t *testing.T) {
	for _, text := range []string{
		"shop", "\n", "<", ">", "&", "\"", `\`, "\x7f", "\xff", "\u2028", "\u2029", "é", "€", "🐘",
	} {
		encoded, err := json.Marshal(text)
		assert.Check(t, err == nil && textBytes(text) >= len(encoded)-2, "%s: %d", encoded, textBytes(text))
	}
}

// Of moments, an answer has those that there is room for, and no more than of its samples.
func TestRoomForMoments(t *testing.T) {
	c := newCollector(t.Context(), NewStore(time.Minute, MinBytes), &Answer{})
	some := []rankedMoment{{moment: moment{count: 2}}, {moment: moment{count: 3}}}
	for _, test := range []struct {
		room  int
		count uint64
		want  int
	}{{2, 5, 2}, {2, 4, 1}, {1, 5, 1}, {0, 5, 0}} {
		c.bytes = answerBytes - test.room*momentText
		made := c.moments(some, test.count)
		assert.Check(t, len(made) == test.want && c.bytes == answerBytes-(test.room-test.want)*momentText, "%+v", test)
	}
}

// What is added as late as may be is found, whatever others of the owner have at other times.
func TestLateSamples(t *testing.T) {
	s := NewStore(10*time.Minute, MinBytes)
	r := resource("a", 1)
	for i := range 6 {
		at := begin.Add(time.Duration(i) * 3 * maxDelay / 2)
		s.Add(newSample(r, i, at, stackOf("main")), at.Add(maxDelay))
	}
	for _, tx := range answer(t, s, Query{}, begin.Add(9*maxDelay)).Transactions {
		assert.Check(t, tx.Samples == 1, "%+v", tx)
	}
}

// Each number is counted under its name, and its reason.
func TestCollect(t *testing.T) {
	s := NewStore(time.Minute, MinBytes)
	s.stats = Stats{Samples: 1, Added: 2, Evicted: 3, Expired: 4, Lost: [numLost]uint64{5, 6},
		Waits: WaitStats{7, 8, 9, 10, [numLost]uint64{11, 12}}, Accounts: 13,
		AccountsForgotten: [numReasons]uint64{goneExpired: 14, goneEvicted: 15},
		Spans:             SpanStats{16, 17, 18, 19}, Slow: SlowStats{20, 21, 22}, Untimed: 23, Transactions: 24}
	var none *naming.Namer
	registry := prometheus.NewRegistry()
	registry.MustRegister(&Keep{store: s, names: none.NewConsumer(s.Named)})
	families, err := registry.Gather()
	assert.NilError(t, err)
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			name := strings.TrimPrefix(f.GetName(), "correlator_keep_")
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			if n := m.Counter.GetValue() + m.Gauge.GetValue(); f.GetName() != "correlator_keep_samples_unnamed_total" {
				got[name] = n
			}
		}
	}
	assert.DeepEqual(t, got, map[string]float64{"samples": 1, "samples_total": 2, "samples_evicted_total": 3,
		"samples_expired_total": 4, "samples_lost_total no_stack": 5, "samples_lost_total too_large": 6, "waits": 7,
		"waits_total": 8, "waits_evicted_total": 9, "waits_expired_total": 10, "waits_lost_total no_stack": 11,
		"waits_lost_total too_large": 12, "accounts": 13, "accounts_forgotten_total expired": 14,
		"accounts_forgotten_total evicted": 15, "spans_total": 16, "spans_lost_total evicted": 17,
		"spans_lost_total invalid": 18, "spans_lost_total repeated": 19, "slow_transactions": 20,
		"slow_transactions_forgotten_total": 21, "untimed_total": 23, "transactions": 24,
		"bytes": float64(s.gone.bytes())})
}

// That samples of a transaction were kept once is what is said of it, whatever could not be kept of it later.
func TestTombstones(t *testing.T) {
	gone := newTombstones(MinBytes)
	for i, why := range []reason{goneExpired, goneEvicted, goneNoStack} {
		id := transactionID{trace: [16]byte{byte(i)}, transaction: [8]byte{byte(i) + 1}}
		gone.add(id, why, int64(time.Hour))
		gone.add(id, goneTooLarge, 2*int64(time.Hour))
		want, at := why, time.Hour
		if why == goneNoStack {
			want, at = goneTooLarge, 2*time.Hour
		}
		for _, id := range [][]byte{id.trace[:], id.transaction[:]} {
			got, ns := gone.find(id)
			assert.Check(t, got == want && ns == int64(at), "%v since %d, want %v", got, ns, want)
		}
	}
}

// The store is locked for a step at a time, whatever it has most of, and all adds up in between.
func TestPauses(t *testing.T) {
	s := NewStore(time.Minute, 4*MinBytes)
	n := 0
	s.paused = func() {
		if n++; n%(step/2) == 1 {
			addUp(t, s)
		}
	}
	paused := func(what string, least int, do func()) {
		n = 0
		do()
		assert.Check(t, n >= least && n <= 3*least, "%d pauses for %s, want %d", n, what, least)
	}
	for i := range 3 * step {
		s.AddAccount(newAccount(newSample(resource("a", 1), i, begin, nil), profile.Net, begin, time.Second), begin)
		if i < 2*step {
			s.Add(newSample(resource(fmt.Sprint(i), i), 1, begin, stackOf("main")), begin)
		}
	}
	paused("owners", 2, func() { s.Stats() })
	paused("owners, as nothing is too old", 2, func() { s.Expire(begin) })
	paused("accounts", 3, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expireAccounts(s.owners["a"], math.MaxInt64, begin)
	})
	s.Expire(begin.Add(2 * s.period)) // ends slices
	paused("their slices", 2*step, func() { s.Expire(begin.Add(4 * s.period)) })
}
