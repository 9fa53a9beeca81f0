package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/out/keep"
	"correlator/internal/out/live/types"
)

// timelineTest is a publisher of 10 transactions, of which a test makes timelines.
type timelineTest struct {
	*publisher
	guest *fakeConsumer
	now   time.Time
	took  time.Duration
	asked []byte // of which transactions since the last publication
	text  func(ctx context.Context, transaction byte) (string, error)
}

func newTimelineTest() *timelineTest {
	w := &timelineTest{now: time.Now().Add(-time.Minute)}
	w.publisher, w.guest = newPublisher(newSource(1))
	w.timelines.failed = new(atomic.Uint64)
	w.timelines.clock = func() time.Time { return w.now.Add(w.took) }
	w.timelines.make = func(ctx context.Context, of keep.Only) ([]byte, error) {
		w.asked = append(w.asked, of.Transaction[7])
		text, err := w.text(ctx, of.Transaction[7])
		return []byte(text), err
	}
	w.text = func(_ context.Context, transaction byte) (string, error) { return fmt.Sprint(transaction), nil }
	return w
}

// published returns the transactions whose timelines are published after a while, with those that were asked for.
func (w *timelineTest) published(after time.Duration) (transactions []string) {
	w.now = w.now.Add(after)
	w.asked = nil
	w.publish(w.now)
	for tid := range byte(10) {
		w.tracker.Sampled(newSample(1000, int(tid)+1, tid+1, 1, w.now))
	}
	for _, part := range w.guest.last.timelines {
		transactions = append(transactions, strings.TrimLeft(part.TransactionID.Value(), "0"))
	}
	slices.Sort(transactions)
	return transactions
}

// Timelines are made of what somebody has chosen, a few at a time and each in its turn, and for a part of the time.
// Nobody who wants something else has any made, and no broker elsewhere gets them.
func TestTimelinesAreMadeInTurn(t *testing.T) {
	w := newTimelineTest()
	w.guest.want = wantStacks
	w.published(0)
	w.published(time.Second)
	assert.Check(t, w.asked == nil && w.guest.last.timelines == nil, "asked for %v", w.asked)

	w.guest.want = wantTimelines
	seen := make(map[string]int)
	for range 10 {
		w.guest.asked = 0
		got := w.published(time.Second)
		assert.Check(t, w.guest.asked == 10, "asked the guest %d times of 10 transactions", w.guest.asked)
		assert.Check(t, len(got) == maxTimelines && len(w.asked) == maxTimelines, "%q, asked for %v", got, w.asked)
		for _, id := range got {
			seen[id]++
		}
	}
	for id, times := range seen {
		assert.Check(t, len(seen) == 10 && times >= 3, "%s was published %d times of 10", id, times)
	}

	w.timelines.next = w.now.Add(time.Second)
	before := w.published(time.Second - 1)
	assert.Check(t, w.asked == nil && len(before) == maxTimelines, "asked for %v", w.asked)
	w.text = func(ctx context.Context, _ byte) (string, error) {
		_, limited := ctx.Deadline()
		assert.Check(t, limited)
		w.took = maxTimelineTime + 1
		return "", nil
	}
	w.published(time.Second)
	pause := w.timelines.next.Sub(w.now)
	assert.Check(t, len(w.asked) == 1 && pause == timelineParts*w.took, "asked for %v, next in %v", w.asked, pause)

	w.guest.want = 0
	w.published(linger)
	assert.Check(t, w.guest.last.timelines == nil && w.timelines.made == nil, "they are kept")
	r := &remote{output: output{bus: blockingBus{}}}
	assert.Check(t, r.wanted() == want(1)<<numWants-1-wantTimelines, "wanted elsewhere: %b", r.wanted())
	assert.Check(t, !r.selects(&types.CorrelatorTransactionTimeline{}) &&
		r.selects(&types.CorrelatorTransactionStack{}))
}

// A timeline is published in parts that a message has room for, without a part of a character, under a version that
// changes when it does. One that cannot be made now stays;
// where there is none yet, that is told. Each is counted.
func TestTimelineInParts(t *testing.T) {
	w := newTimelineTest()
	w.guest.want = wantTimelines
	long := strings.Repeat("ü", maxPartBytes) + "."
	w.text = func(_ context.Context, transaction byte) (string, error) {
		if transaction != 1 {
			return "", nil
		}
		return long, nil
	}
	w.tracker.Want(wantTimelines)
	w.tracker.Sampled(newSample(1000, 1, 1, 1, w.now))
	check := func(want string, version uint32) {
		t.Helper()
		w.now = w.now.Add(time.Second)
		w.tracker.Sampled(newSample(1000, 1, 1, 1, w.now))
		w.publish(w.now)
		got := ""
		all := w.guest.last.timelines
		for i, part := range all {
			text := part.Text.Value()
			assert.Check(t, part.Part.Value() == uint32(i) && part.Parts.Value() == uint32(len(all)) &&
				part.Version.Value() == version && len(text) > 0 && len(text) <= maxPartBytes,
				"%d: part %d of version %d", i, part.Part.Value(), part.Version.Value())
			got += text
		}
		assert.Check(t, got == want, "%d bytes, not %d", len(got), len(want))
	}
	made := w.text
	busy := func(context.Context, byte) (string, error) { return "", errors.New("busy") }
	w.text = busy
	check(unread, 1)
	check(unread, 1)
	w.text = made
	check(long, 2)
	check(long, 2)
	long += "."
	check(long, 3)
	w.text = busy
	check(long, 3)
	assert.Check(t, w.timelines.failed.Load() == 3, "%d have failed", w.timelines.failed.Load())
	w.text = func(context.Context, byte) (string, error) { return "", nil }
	check("", 4)
}
