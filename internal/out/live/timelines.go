package live

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"correlator/dots/value"
	"correlator/internal/host/textcut"
	"correlator/internal/out/keep"
	"correlator/internal/out/live/types"
)

// This file is when the threads of those transactions did what whose timelines somebody has joined.

const (
	// maxTimelines is how many timelines there are at a time. Where more are wanted, each has its turn: guests keep
	// those that are removed.
	maxTimelines = 4

	// maxTimelineTime is for how long they are made at a time, all but the last one. They take one part of
	// timelineParts of a CPU at most.
	maxTimelineTime, timelineParts = 50 * time.Millisecond, 20

	// maxSearchTime is how long what is kept may be looked through for one of them.
	maxSearchTime = time.Second

	// unread is the text of one that could not be made yet.
	unread = `{"none":"what is kept could not be looked through now"}`

	// maxPartBytes is less than a frame of the bus may have, with all that belongs to a part.
	maxPartBytes = 48 << 10
)

// Timeline returns a transaction's timeline for the page. An error says that it could not be made now.
type Timeline func(ctx context.Context, of keep.Only) ([]byte, error)

// timelines belong to one goroutine.
type timelines struct {
	make    Timeline         // nil: there are none
	failed  *atomic.Uint64   // how often one could not be made
	clock   func() time.Time // of how long that takes
	made    map[transactionID]timeline
	version uint32
	next    time.Time // none are made before
}

type timeline struct {
	at      time.Time // when it was made last
	text    string    // empty: there was none, or others have had their turn since
	version uint32
}

// update makes timelines of transactions, those first that were made last or never, and returns those that there are.
func (t *timelines) update(wanted []shownTransaction, now time.Time) map[transactionID]timeline {
	kept := make(map[transactionID]timeline)
	for _, tx := range wanted {
		if of, known := t.made[tx.id]; known {
			kept[tx.id] = of
		}
	}
	t.made = kept
	if t.make == nil || now.Before(t.next) {
		return kept
	}
	wanted = slices.Clone(wanted)
	slices.SortStableFunc(wanted, func(a, b shownTransaction) int { return kept[a.id].at.Compare(kept[b.id].at) })
	begun := t.clock()
	for _, tx := range wanted[:min(len(wanted), maxTimelines)] {
		kept[tx.id] = t.remake(tx, now)
		if t.clock().Sub(begun) > maxTimelineTime {
			break
		}
	}
	t.next = now.Add(timelineParts * t.clock().Sub(begun))
	newest := slices.SortedFunc(maps.Keys(kept), func(a, b transactionID) int {
		return cmp.Or(kept[b].at.Compare(kept[a].at), cmp.Compare(kept[b].version, kept[a].version))
	})
	for _, id := range newest[min(len(newest), maxTimelines):] {
		kept[id] = timeline{at: kept[id].at}
	}
	return kept
}

func (t *timelines) remake(tx shownTransaction, now time.Time) timeline {
	ctx, cancel := context.WithTimeout(context.Background(), maxSearchTime)
	defer cancel()
	of := t.made[tx.id]
	of.at = now
	content, err := t.make(ctx, keep.Only{Owner: tx.owner, Trace: tx.id.trace, Transaction: tx.id.transaction})
	if err != nil {
		t.failed.Add(1)
		content = []byte(cmp.Or(of.text, unread))
	}
	if string(content) == of.text {
		return of
	}
	t.version++
	of.text, of.version = string(content), t.version
	return of
}

func (o *objectsOf) timelineObjects(all map[transactionID]timeline) (
	objects []types.CorrelatorTransactionTimeline,
) {
	for id, of := range all {
		var parts []string
		for rest := of.text; rest != ""; rest = rest[len(parts[len(parts)-1]):] {
			parts = append(parts, textcut.At(rest, maxPartBytes))
		}
		for i, part := range parts {
			x := o.timelineOf(id)
			x.Part, x.Parts = value.Some(uint32(i)), value.Some(uint32(len(parts)))
			x.Version, x.Text = value.Some(of.version), value.Some(part)
			objects = append(objects, x)
		}
	}
	return objects
}

// timelineOf returns a part of a timeline of which only that is known whose it is.
func (o *objectsOf) timelineOf(id transactionID) types.CorrelatorTransactionTimeline {
	return types.CorrelatorTransactionTimeline{Host: value.Some(o.host), TraceID: hexadecimal(id.trace[:]),
		TransactionID: hexadecimal(id.transaction[:])}
}
