package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/flamegraph"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/internal/out/waits"
	"correlator/profile"
)

// maxTimeline is how long a timeline is at most: what is further away from the transaction was not measured here.
const maxTimeline = 24 * time.Hour

// laneID tells lanes apart: a thread has one in each transaction.
type laneID struct {
	transaction, tid int
}

// lane is a lane whose events have their times since 1970.
type lane struct {
	laneID
	flamegraph.Lane
	name string
	from []wakerID // of the events
}

// wakerID is who ended a wait: a thread that worked on a trace. The zero value is none.
type wakerID struct {
	pid, tid int
	trace    string
	id       string // of the transaction; empty: of the first in the trace
}

// timeline is what a timeline is made of.
type timeline struct {
	answer *keep.Answer
	lanes  map[laneID]*lane
	groups map[int]int // of transactions
	// What it is not known of when it was.
	samples, waits uint64
	first, last    time.Duration // since 1970
}

// newTimeline returns when threads did what in the transactions, as far as times are kept; nil: none are. The
// answer has been checked.
func newTimeline(a *keep.Answer, r *record.Recording, e *Explanation, shown report.Shown) *flamegraph.Timeline {
	t := timeline{answer: a, lanes: make(map[laneID]*lane), groups: make(map[int]int)}
	for i := range a.Samples {
		s := &a.Samples[i]
		key, err := keyOf(r, a, s)
		if err != nil || s.Several || s.Stack == keep.LeftOutStack {
			t.samples += s.Count
			continue
		}
		group, frames := shown(&record.WaitKey{Key: key}, false)
		l := t.lane(s.Transaction, s.TID, s.Thread, group)
		event := flamegraph.Event{Kind: flamegraph.CPU, Frames: frames}
		known := uint64(0)
		for _, m := range s.Moments {
			if m.Count <= s.Count-known && t.add(l, &m, wakerID{}, event) {
				known += m.Count
			}
		}
		t.leave(l, flamegraph.CPU, s.Count-known, 0)
		t.samples += s.Count - known
	}
	for i, share := range newShares(a).sums {
		t.addWaits(r, &a.Waits[i], share, shown)
	}
	if len(t.lanes) == 0 || t.last == 0 {
		return nil
	}
	return t.made(r, e)
}

// addWaits adds waits that have this share of their account.
func (t *timeline) addWaits(r *record.Recording, w *keep.Wait, share time.Duration, shown report.Shown) {
	key, err := waitKeyOf(r, t.answer, w)
	if err != nil {
		t.waits += w.Count
		return
	}
	group, frames := shown(&key, true)
	l := t.lane(w.Transaction, w.TID, w.Thread, group)
	wait := key.Wait()
	stack := r.Stacks[key.Stack]
	event := flamegraph.Event{Kind: string(wait.Kind(key.Process.PID, stack)), Frames: frames,
		Cause: terminal.Escape(wait.Cause()), EndedBy: terminal.Escape(waits.Waker(&key.Waker, waits.Place(stack)))}
	var waker wakerID
	switch {
	case key.Waker.Kind != profile.ThreadWaker:
	case !w.State.Blocks():
		event.EndedBy += ", which left the CPU"
	case t.answer.Transactions[w.Transaction].Trace == "": // lanes are threads
		waker = wakerID{pid: w.Waker.PID, tid: w.Waker.TID}
	default:
		waker = wakerID{w.Waker.PID, w.Waker.TID, w.Waker.Trace, w.Waker.ID}
	}
	known, drawn := uint64(0), time.Duration(0)
	for _, m := range w.Moments {
		if m.Count <= w.Count-known && t.add(l, &m, waker, event) {
			known += m.Count
			drawn += time.Duration(m.Last - m.First)
		}
	}
	t.leave(l, event.Kind, w.Count-known, max(share-drawn, 0))
	t.waits += w.Count - known
}

// lane returns the lane of a thread in a transaction.
func (t *timeline) lane(transaction, tid int, name string, group int) *lane {
	id := laneID{transaction, tid}
	l := t.lanes[id]
	if l == nil {
		l = &lane{laneID: id, Lane: flamegraph.Lane{Group: group, Rest: make(map[string]flamegraph.Total)}}
		t.lanes[id] = l
		t.groups[transaction] = group
	}
	if name != "" {
		l.name = name
	}
	return l
}

// leave adds to the sums of a lane what has no times.
func (t *timeline) leave(l *lane, kind string, count uint64, sum time.Duration) {
	if of := l.Rest[kind]; count > 0 || sum > 0 {
		l.Rest[kind] = flamegraph.Total{Count: of.Count + count, Sum: of.Sum + sum}
	}
}

// add adds an event, unless its time makes no sense.
func (t *timeline) add(l *lane, m *keep.Moment, from wakerID, event flamegraph.Event) bool {
	event.First, event.Last, event.Count, event.Sum = time.Duration(m.First), time.Duration(m.Last), m.Count,
		time.Duration(m.Sum)
	tx := &t.answer.Transactions[l.transaction]
	begin, end := time.Duration(tx.First.UnixNano()), time.Duration(tx.Last.UnixNano())
	if m.Last < m.First || m.Sum < 0 || event.First < begin-maxTimeline || event.Last > end+maxTimeline {
		return false
	}
	t.extend(event.First, event.Last)
	l.Events = append(l.Events, event)
	l.from = append(l.from, from)
	return true
}

// extend has the timeline show a time.
func (t *timeline) extend(first, last time.Duration) {
	if t.last == 0 {
		t.first, t.last = first, last
	}
	t.first, t.last = min(t.first, first), max(t.last, last)
}

// made returns the timeline, with lanes in the order of transactions, and those of each as they began.
func (t *timeline) made(r *record.Recording, e *Explanation) *flamegraph.Timeline {
	var lanes []*lane
	for _, l := range t.lanes {
		if len(l.Events) > 0 {
			lanes = append(lanes, l)
		}
	}
	begin := func(l *lane) time.Duration {
		return slices.MinFunc(l.Events, func(a, b flamegraph.Event) int { return cmp.Compare(a.First, b.First) }).First
	}
	slices.SortFunc(lanes, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.transaction, b.transaction), cmp.Compare(begin(a), begin(b)),
			cmp.Compare(a.tid, b.tid))
	})
	made := &flamegraph.Timeline{Notes: t.notes(e.PerSample)}
	t.addBrackets(made, e)
	made.Start, made.End = time.Unix(0, int64(t.first)), time.Unix(0, int64(t.last))
	places := make(map[wakerID]int)
	process := func(l *lane) int { return t.answer.Transactions[l.transaction].Process }
	several := slices.ContainsFunc(lanes, func(l *lane) bool { return process(l) != process(lanes[0]) })
	for i, l := range lanes {
		tx := &t.answer.Transactions[l.transaction]
		p := r.Processes[tx.Process]
		l.Name = strings.TrimSpace(terminal.Escape(l.name) + " " + strconv.Itoa(l.tid))
		if several {
			l.Name += ", " + terminal.Escape(processText(p))
		}
		for _, id := range []wakerID{{p.PID, l.tid, tx.Trace, ""}, {p.PID, l.tid, tx.Trace, tx.ID}} {
			if _, known := places[id]; !known {
				places[id] = i
			}
		}
	}
	for _, l := range lanes {
		for i := range l.Events {
			event := &l.Events[i]
			event.First, event.Last, event.Waker = event.First-t.first, event.Last-t.first, -1
			place, known := places[l.from[i]]
			if known && l.from[i].trace == t.answer.Transactions[l.transaction].Trace { // not of another one
				event.Waker = place
			}
		}
		made.Lanes = append(made.Lanes, l.Lane)
	}
	if tx := &t.answer.Transactions[0]; len(t.answer.Transactions) == 1 && t.samples+t.waits+tx.Earlier == 0 {
		t.addUnseen(made, max(leastUnseen+2*e.PerSample, (t.last-t.first)/50)) // what can be told from the rest
	}
	return made
}

// leastUnseen is longer than a thread may wait, a little each time, until a stack stands for that: for a CPU 100 ms,
// and for others 10 ms.
const leastUnseen = 150 * time.Millisecond

// addUnseen adds a lane of when nothing was seen of a transaction for this long at least. A thread that ran would have
// had a sample.
func (t *timeline) addUnseen(made *flamegraph.Timeline, least time.Duration) {
	events := []*flamegraph.Event{{First: t.last - t.first}}
	for _, lane := range made.Lanes {
		for i := range lane.Events {
			events = append(events, &lane.Events[i])
		}
	}
	slices.SortFunc(events, func(a, b *flamegraph.Event) int { return cmp.Compare(a.First, b.First) })
	lane, seen := flamegraph.Lane{Group: t.groups[0], Name: "all threads"}, time.Duration(0)
	for _, e := range events {
		if gap := e.First - seen; gap >= least {
			lane.Events = append(lane.Events, flamegraph.Event{Kind: flamegraph.Unseen, First: seen, Last: seen + gap,
				Count: 1, Sum: gap, Cause: "on no thread, or in waits without a stack", Waker: -1})
		}
		seen = max(seen, e.Last)
	}
	if len(lane.Events) > 0 {
		made.Lanes = append(made.Lanes, lane)
	}
}

// addBrackets adds transactions, where more is known than when they had samples, and spans that something was seen in.
func (t *timeline) addBrackets(made *flamegraph.Timeline, e *Explanation) {
	add := func(transaction int, name string, of *keep.Interval) {
		first, last := time.Duration(of.Start.UnixNano()), time.Duration(of.End.UnixNano())
		group, known := t.groups[transaction]
		if !known || last < first || last-first > maxTimeline || first > t.last || last < t.first {
			return
		}
		made.Brackets = append(made.Brackets,
			flamegraph.Bracket{Group: group, Name: name, First: first, Last: last})
	}
	for i := range e.Transactions {
		tx := &e.Transactions[i]
		of := keep.Interval{Start: tx.first, End: tx.first.Add(tx.Wall)}
		name := cmp.Or(tx.Service, "process") + " " + tx.name()
		switch tx.WallSource {
		case "span":
			add(i, terminal.Escape(name), &of)
		case "switches":
			add(i, terminal.Escape(name)+", "+wallTexts[tx.WallSource], &of)
		}
	}
	for i := range t.answer.Spans {
		s := &t.answer.Spans[i]
		add(s.Transaction, "span "+terminal.Escape(s.ID), &s.Interval)
	}
	for _, b := range made.Brackets {
		t.extend(b.First, b.Last)
	}
	for i := range made.Brackets {
		made.Brackets[i].First -= t.first
		made.Brackets[i].Last -= t.first
	}
}

// notes says what the blocks are, and what is not drawn.
func (t *timeline) notes(period time.Duration) []string {
	notes := []string{fmt.Sprintf("a tick is one CPU sample, for %s of CPU time around it", waits.Exactly(period)),
		"a wait is drawn as long as it was; a corner is cut off where it stands for shorter ones, too, which have no times",
		"no times are kept of runs on a CPU"}
	if t.samples > 0 {
		notes = append(notes, fmt.Sprintf("%d samples are not drawn: their times are not known", t.samples))
	}
	if t.waits > 0 {
		notes = append(notes, fmt.Sprintf("%d waits are not drawn: their times are not known", t.waits))
	}
	return notes
}
