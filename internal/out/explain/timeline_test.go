package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/flamegraph"
	"correlator/internal/out/keep"
	"correlator/internal/out/report"
	"correlator/profile"
)

// timed is an answer whose waits have their times: all that the account has.
func timed() *keep.Answer {
	a := waited()
	moment := func(first, last, sum time.Duration) keep.Moment {
		return keep.Moment{First: at.Add(first).UnixNano(), Last: at.Add(last).UnixNano(), Count: 1, Sum: int64(sum)}
	}
	set := func(wait int, moments ...keep.Moment) {
		w := &a.Waits[wait]
		w.StateTimes = profile.StateTimes{}
		for _, m := range moments {
			w.Add(profile.StateTimes{Sum: time.Duration(m.Sum), Longest: time.Duration(m.Last - m.First), Count: 1})
		}
		w.Moments = moments
	}
	set(0, moment(100*ms, 190*ms, 90*ms))
	set(1, moment(200*ms, 205*ms, 5*ms))
	set(2, moment(300*ms, 345*ms, 45*ms), moment(600*ms, 610*ms, 10*ms))
	set(3, moment(400*ms, 480*ms, 100*ms))
	a.Waits[3].Count = 3 // of two, it is not known when they were
	a.Samples[0].Moments = []keep.Moment{{First: at.UnixNano(), Last: at.Add(150 * ms).UnixNano(), Count: 3},
		moment(210*ms, 210*ms, 0)}
	a.Transactions[0].Span = &keep.Interval{Start: at.Add(-50 * ms), End: at.Add(950 * ms)}
	a.Spans = []keep.Span{{ID: "00f067aa0ba902b7", Interval: keep.Interval{Start: at, End: at.Add(220 * ms)}}}
	return a
}

// timelineOf returns the timeline of an answer, in group 0.
func timelineOf(t *testing.T, a *keep.Answer) *flamegraph.Timeline {
	t.Helper()
	r, err := recording(a)
	assert.NilError(t, err)
	var made *flamegraph.Timeline
	about := report.About{Timeline: func(shown report.Shown) *flamegraph.Timeline {
		made = newTimeline(a, r, explain(a, r), shown)
		return made
	}}
	_, err = report.Encode(report.HTML, r, about)
	assert.NilError(t, err)
	return made
}

// A thread's blocks are when its samples were taken and its waits were: those of a kind add up to the account.
func TestTimeline(t *testing.T) {
	a := timed()
	made := timelineOf(t, a)
	assert.Assert(t, len(made.Lanes) == 1 && made.Lanes[0].Name == "http-1 21" && made.Lanes[0].Group == 0, "%+v",
		made)
	assert.Check(t, made.Start.Equal(at.Add(-50*ms)) && made.End.Equal(at.Add(950*ms)), "%v, %v", made.Start, made.End)
	sums := make(map[string]time.Duration)
	var got []string
	for _, e := range made.Lanes[0].Events {
		sums[e.Kind] += e.Last - e.First
		got = append(got, fmt.Sprintln(e.Kind, e.First-50*ms, e.Last-50*ms, e.Count, e.Sum, e.Cause, e.EndedBy, e.Waker,
			e.Frames[len(e.Frames)-1]))
	}
	const want = `CPU 0s 150ms 3 0s   -1 Shop.price
CPU 210ms 210ms 1 0s   -1 Shop.price
lock 100ms 190ms 1 90ms  java-7\x1b[2J in transaction 9d1f0000 of cart -1 [lock]
lock 200ms 205ms 1 5ms  timer -1 [lock]
sleep 300ms 345ms 1 45ms   -1 [sleep]
sleep 600ms 610ms 1 10ms   -1 [sleep]
net 400ms 480ms 1 100ms 10.0.0.7:5432 network -1 [net 10.0.0.7:5432]
`
	assert.Check(t, strings.Join(got, "") == want, "%s\nwant\n%s", strings.Join(got, ""), want)
	account := a.Transactions[0].Account.Times
	assert.Check(t, sums["lock"]+sums["sleep"] == account[profile.Futex].Sum, "%v, %v", sums, account)
	assert.DeepEqual(t, made.Lanes[0].Rest, map[string]flamegraph.Total{flamegraph.CPU: {Count: 3},
		"net": {Count: 2, Sum: 20 * ms}, "runnable": {Count: 1, Sum: 20 * ms}}) // what sums have besides
	assert.DeepEqual(t, made.Brackets, []flamegraph.Bracket{{Name: `shop\x1b[31m 7ad51cbe3a4f0c12`, Last: 1000 * ms},
		{Name: "span 00f067aa0ba902b7", First: 50 * ms, Last: 270 * ms}})
	account[profile.Net] = profile.StateTimes{Sum: 85 * ms, Count: 3} // less than stacks stand for
	assert.DeepEqual(t, timelineOf(t, a).Lanes[0].Rest["net"], flamegraph.Total{Count: 2, Sum: 5 * ms})
	a.Transactions[0].Span = nil
	assert.DeepEqual(t, timelineOf(t, a).Brackets[0], flamegraph.Bracket{
		Name: `shop\x1b[31m 7ad51cbe3a4f0c12, from the first switch to the last`, First: 0, Last: 1000 * ms})
	notes := strings.Join(made.Notes, "; ")
	for _, want := range []string{"3 samples are not drawn", "3 waits are not drawn",
		"one CPU sample, for 50.0 ms of CPU time"} {
		assert.Check(t, strings.Contains(notes, want), notes)
	}
}

// A lane says when nothing was seen of a transaction, if all that was seen has its times.
func TestTimelineUnseen(t *testing.T) {
	a := timed()
	moment := func(first, last time.Duration) keep.Moment {
		return keep.Moment{First: at.Add(first).UnixNano(), Last: at.Add(last).UnixNano(), Count: 1,
			Sum: int64(last - first)}
	}
	a.Samples, a.Waits, a.Spans = a.Samples[:1], a.Waits[:1], nil
	a.Transactions[0].Span = &keep.Interval{Start: at, End: at.Add(1040 * ms)}
	a.Samples[0].Count, a.Samples[0].Moments = 1, []keep.Moment{moment(300*ms, 300*ms)}
	a.Waits[0].Count, a.Waits[0].Moments = 1, []keep.Moment{moment(549*ms, 790*ms)}
	made := timelineOf(t, a)
	lane := made.Lanes[len(made.Lanes)-1]
	var got []string
	for _, e := range lane.Events {
		got = append(got, fmt.Sprint(e.Kind, " ", e.First, " ", e.Last))
	}
	// From the sample to the wait it is less than two periods of 50 ms, and 150 ms.
	assert.DeepEqual(t, got, []string{"unseen 0s 300ms", "unseen 790ms 1.04s"})
	a.Samples[0].Count = 2 // one has no time
	made = timelineOf(t, a)
	assert.Check(t, made.Lanes[len(made.Lanes)-1].Name != lane.Name, "%+v", made.Lanes)
}

// A wait leads to the lane of the thread that ended it in the same trace, and to none of another trace, or of a thread
// that has none.
func TestTimelineWakers(t *testing.T) {
	a := timed()
	holder := *a.Waits[0].Waker
	a.Transactions = append(a.Transactions, keep.Transaction{Trace: holder.Trace, ID: holder.ID, Process: 1, First: at,
		Last: at.Add(time.Second)})
	a.Waits = append(a.Waits, keep.Wait{Transaction: 1, Stack: 1, TID: 120, Thread: "java-7", State: profile.Net,
		StateTimes: profile.StateTimes{Sum: 5, Longest: 5, Count: 1},
		Moments:    []keep.Moment{{First: at.UnixNano(), Last: at.UnixNano() + 5, Count: 1, Sum: 5}}})
	wakers := func() string {
		made := timelineOf(t, a)
		assert.Assert(t, len(made.Lanes) == 2 && made.Lanes[1].Name == "java-7 120, process (12)", "%+v", made.Lanes)
		return fmt.Sprint(made.Lanes[0].Events[2].Waker, made.Lanes[0].Events[3].Waker, made.Lanes[1].Events[0].Waker)
	}
	assert.Check(t, wakers() == "1 -1 -1", wakers())
	a.Waits[0].Waker.Trace = "d1000000000000000000000000000000"
	assert.Check(t, wakers() == "-1 -1 -1", wakers())
	a.Waits[0].Waker.Trace, a.Waits[0].State = holder.Trace, profile.Runnable // who left the CPU woke nobody
	assert.Check(t, wakers() == "-1 -1 -1", wakers())
	a.Waits[0].State = profile.Futex
	a.Waits[0].Waker = &keep.Waker{Source: profile.ThreadWaker, PID: 12, TID: 121, Trace: holder.Trace}
	assert.Check(t, wakers() == "-1 -1 -1", wakers())
}

// Times that make no sense are those of nothing, and the page is without a timeline where no times are kept.
func TestTimelineOfNonsense(t *testing.T) {
	a := timed()
	for i := range a.Waits {
		for j := range a.Waits[i].Moments {
			m := &a.Waits[i].Moments[j]
			switch i {
			case 0:
				m.Last = m.First - 1
			case 1:
				m.First = 0
			case 2:
				m.Count = 1 << 63
			default:
				m.Sum = -1
			}
		}
	}
	a.Samples[0].Moments[0].Last += int64(48 * time.Hour)
	made := timelineOf(t, a)
	assert.Assert(t, len(made.Lanes) == 1 && len(made.Lanes[0].Events) == 1, "%+v", made.Lanes)
	a.Samples[0].Moments = nil
	assert.Check(t, timelineOf(t, a) == nil)
	assert.Check(t, timelineOf(t, waited()) == nil)
	out, _, err := run(t, timed(), Options{Format: report.HTML})
	assert.Check(t, err == nil && strings.Contains(out, `"timeline":{"start"`), "%v", err)
}

// What the live view's page reads of an answer is the timeline with its stacks, or why there is none.
func TestLiveTimeline(t *testing.T) {
	type read struct {
		None      string
		Period    time.Duration
		Names     []string
		Nodes     [][2]int
		Timeline  struct{ Events [][]int }
		All, Self any // of the flame graph
	}
	untimed := timed()
	for i := range untimed.Waits {
		untimed.Waits[i].Moments = nil
	}
	for i := range untimed.Samples {
		untimed.Samples[i].Moments = nil
	}
	for _, c := range []struct {
		answer *keep.Answer
		want   string
	}{
		{timed(), ""}, {untimed, "no times are kept of what it did"},
		{&keep.Answer{}, "no sample or wait of it is kept yet"},
		{&keep.Answer{Gone: "evicted"}, "its samples are not kept: there was no room for them (--keep-bytes)"},
	} {
		content, err := liveTimeline(c.answer)
		assert.NilError(t, err)
		var got read
		assert.NilError(t, json.Unmarshal(content, &got))
		assert.Check(t, got.None == c.want && got.All == nil && got.Self == nil, "%s", content)
		if c.want == "" {
			assert.Check(t, got.Period == 50*ms && len(got.Timeline.Events) == 7 && len(got.Nodes) > 0 &&
				slices.Contains(got.Names, "Shop.price"), "%s", content)
		}
	}
	_, err := liveTimeline(&keep.Answer{Transactions: make([]keep.Transaction, 1)})
	assert.Check(t, errors.Is(err, errAnswer), err)
}
