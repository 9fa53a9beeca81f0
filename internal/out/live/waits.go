package live

import (
	"cmp"
	"math"
	"slices"
	"time"

	"correlator/dots/value"
	"correlator/internal/out/live/types"
	"correlator/internal/out/waits"
	"correlator/profile"
)

// This file is what the threads of those transactions did whose stacks are collected.

const (
	// maxPlaces is how many places a transaction has at most, of which those with most time are published, by state.
	maxPlaces, maxShownPlaces = 128, 5

	// A place has one text of that size at most, here and in the cache, and wakers, of which each has a name that the
	// kernel has cut, and the name of a service.
	maxPlaceText, maxWakerText = 512, 128
	placeBytes                 = 8 << 10
)

// activity is what the threads of a transaction did.
type activity struct {
	states     profile.Times
	places     map[placeID]*waits.Total
	wholeTrace bool
}

type placeID struct {
	state profile.ThreadState
	text  string
}

// Accounted takes account of what a thread did in a transaction. Nothing is done while nobody wants to know it.
func (t *Tracker) Accounted(a *profile.Account) {
	if want(t.wanted.Load())&wantWaits == 0 || a.Resource == nil || a.TraceID == [16]byte{} {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if want(t.wanted.Load())&wantWaits == 0 {
		return
	}
	if a.Context == profile.OTelContext && a.TransactionID == [8]byte{} { // that of all of the trace in the process
		for id, tx := range t.stacks.collecting {
			if id.trace == a.TraceID && tx.pid == a.Resource.PID && tx.owner == a.Resource.Owner {
				tx.did.states.Add(&a.Times)
				tx.did.wholeTrace = true
			}
		}
		return
	}
	tx := t.transactions[transactionID{a.TraceID, a.TransactionID}]
	if tx == nil || tx.did == nil || tx.owner != a.Resource.Owner {
		return // most are of no transaction that somebody looks at
	}
	last := earlier(a.Last, time.Now()) // what is ahead of the clock would never be forgotten
	t.ran(tx, threadID{a.Resource.PID, a.TID}, earlier(a.First, last), last)
	if tx.service == "" {
		tx.service = a.Resource.Name
	}
	tx.did.states.Add(&a.Times)
}

// Waited reports whether the places of waits in a transaction are wanted.
func (t *Tracker) Waited(sample *profile.Sample) bool {
	if want(t.wanted.Load())&wantWaits == 0 || sample.Resource == nil || !sample.HasTrace() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tx := t.transactions[transactionID{sample.TraceID, sample.TransactionID}]
	return tx != nil && tx.did != nil && tx.owner == sample.Resource.Owner
}

// NamedWait takes account of waits that Waited wants, with the frames of their stack, which have the names that they
// will have.
func (t *Tracker) NamedWait(sample *profile.Sample, frames []profile.Frame) {
	w := sample.Wait
	kind := w.Kind(sample.Resource.PID, frames)
	place := waits.Place(frames)
	id := placeID{w.State, shorten(clean(waits.Text(w, kind, place)), maxPlaceText)}
	waker := shorten(clean(waits.Waker(&w.Waker, place)), maxWakerText)
	t.mu.Lock()
	defer t.mu.Unlock()
	tx := t.transactions[transactionID{sample.TraceID, sample.TransactionID}]
	if tx == nil || tx.did == nil || tx.owner != sample.Resource.Owner {
		return // it is forgotten, or another's
	}
	of := tx.did.places[id]
	if of == nil {
		if len(tx.did.places) == maxPlaces || !t.stacks.bytes.Take(tx.owner, placeBytes) {
			t.unwaited += sample.Count
			return
		}
		if tx.did.places == nil {
			tx.did.places = make(map[placeID]*waits.Total)
		}
		of = new(waits.Total)
		tx.did.places[id] = of
	}
	of.Add(profile.StateTimes{Sum: w.Sum, Longest: w.Longest, Count: sample.Count}, waker)
}

// noStack is the place of what was walked at no place that is shown.
const noStack = "[no stack]"

// waitObjects returns what the threads of some transactions did. A stack stands for the time of shorter waits of the
// thread, too, of which some may have been before, or are not accounted yet: so the places of a state are shares of
// it.
func (o *objectsOf) waitObjects(collecting []shownTransaction) (objects []types.CorrelatorTransactionWait) {
	for _, tx := range collecting {
		if tx.did == nil {
			continue
		}
		places := make(map[profile.ThreadState][]placeID)
		for id := range tx.did.places {
			places[id.state] = append(places[id.state], id)
		}
		for state, all := range tx.did.states {
			if state := profile.ThreadState(state); all.Count > 0 {
				objects = append(objects, o.waitObject(tx, placeID{state: state}, all, ""))
				objects = append(objects, o.placeObjects(tx, all, places[state])...)
			}
		}
	}
	return objects
}

// placeObjects returns the places of a state.
func (o *objectsOf) placeObjects(tx shownTransaction, all profile.StateTimes, places []placeID,
) (objects []types.CorrelatorTransactionWait) {
	of := tx.did.places
	var sum time.Duration
	for _, id := range places {
		sum += of[id].Sum
	}
	scale := min(1, float64(all.Sum)/float64(max(sum, 1)))
	slices.SortFunc(places, func(a, b placeID) int {
		return cmp.Or(cmp.Compare(of[b].Sum, of[a].Sum), cmp.Compare(a.text, b.text))
	})
	rest := all
	for _, id := range places[:min(len(places), maxShownPlaces)] {
		times := of[id].StateTimes
		times.Sum = time.Duration(float64(times.Sum) * scale)
		times.Longest = min(times.Longest, times.Sum)
		rest.Sum -= times.Sum
		rest.Count -= min(rest.Count, times.Count)
		objects = append(objects, o.waitObject(tx, id, times, of[id].EndedBy()))
	}
	if rest.Longest = 0; len(places) > 0 && rest.Sum >= time.Microsecond {
		objects = append(objects, o.waitObject(tx, placeID{places[0].state, noStack}, rest, ""))
	}
	return objects
}

func (o *objectsOf) waitObject(tx shownTransaction, id placeID, times profile.StateTimes, endedBy string,
) types.CorrelatorTransactionWait {
	x := types.CorrelatorTransactionWait{
		Host: value.Some(o.host), TraceID: hexadecimal(tx.id.trace[:]),
		TransactionID: hexadecimal(tx.id.transaction[:]),
		State:         value.Some(id.state.String()), Place: value.Some(id.text), Text: text(cmp.Or(id.text,
			waits.State(id.state))),
		Time: value.Some(value.DurationOf(times.Sum)), Times: value.Some(uint32(min(times.Count, math.MaxUint32))),
		EndedBy: text(endedBy), WholeTrace: value.Some(tx.did.wholeTrace),
	}
	if times.Longest > 0 {
		x.Longest = value.Some(value.DurationOf(times.Longest))
	}
	return x
}
