package receiver

import (
	"context"
	"runtime/debug"
	"time"

	"correlator/opencensus/stats"
	"correlator/opencensus/wire"
	"correlator/otlp"
)

// statsWorker applies what concerns measures and views, for each user in the order of arrival, until
// the queue is closed and empty.
func (r *Receiver) statsWorker() {
	w := statsWorker{Receiver: r}
	queue := r.queues[statsQueue]
	for b := queue.take(); b != nil; b = queue.take() {
		w.apply(b)
		queue.giveBack(b)
	}
}

// statsWorker is what the worker keeps from one batch to the next.
type statsWorker struct {
	*Receiver
	record    wire.Record
	processed [wire.Types]uint64 // of a batch
	dropped   [NumDrops][wire.Types]uint64
}

// apply applies the messages of a batch.
func (w *statsWorker) apply(b *batch) {
	w.processed, w.dropped = [wire.Types]uint64{}, [NumDrops][wire.Types]uint64{}
	for i := range b.entries {
		e := &b.entries[i]
		if err := w.applySafely(e, b.payload(e)); err != nil {
			w.dropped[Malformed][e.kind.Index()]++
		}
	}
	w.counters.addStats(&w.processed, &w.dropped)
}

// applySafely applies one message. A panic, which is a defect, costs that message alone.
func (w *statsWorker) applySafely(e *entry, payload []byte) (err error) {
	kind := e.kind.Index()
	defer func() {
		switch v := recover(); {
		case v != nil:
			w.panicIn("stats worker", v, debug.Stack())
			w.dropped[Panic][kind]++
			err = nil
		case err == nil:
			w.processed[kind]++
		}
	}()
	switch e.kind {
	case wire.MeasureCreate:
		var m wire.Measure
		if m, err = wire.DecodeMeasure(payload); err == nil {
			w.update(e, func(u *stats.Update) { u.CreateMeasure(m) })
		}
	case wire.ReportingPeriod:
		var seconds float64
		if seconds, err = wire.DecodePeriod(payload, e.padded); err == nil {
			w.update(e, func(u *stats.Update) { u.SetReportingPeriod(seconds) })
		}
	case wire.ViewRegister:
		var views []wire.View
		var more int
		if views, more, err = wire.DecodeViews(payload); err == nil {
			w.update(e, func(u *stats.Update) {
				u.RegisterViews(views)
				u.LeftOut(more, 0)
			})
		}
	case wire.ViewUnregister:
		var names []string
		var more int
		if names, more, err = wire.DecodeNames(payload); err == nil {
			w.update(e, func(u *stats.Update) {
				u.UnregisterViews(names)
				u.LeftOut(0, more)
			})
		}
	case wire.StatsRecord:
		if err = w.record.Decode(payload); err == nil {
			w.update(e, func(u *stats.Update) { u.Record(&w.record, e.sent()) })
		}
	}
	return err
}

// update applies a message that has been decoded before: exports and scrapes do not wait for that.
func (w *statsWorker) update(e *entry, f func(*stats.Update)) {
	now, uid := e.received(), e.from.account.uid
	conflicts := w.Receiver.stats.Update(now, func(u *stats.Update) {
		u.SetUser(uid)
		f(u)
	})
	for _, c := range conflicts {
		w.events.emit(Event{Kind: Conflict, UID: c.UID, Conflict: c}, now)
	}
}

// exportMetrics exports the views every period, until ctx is done. A period that changes counts
// from the last export: clients may change it all the time, and none of that delays an export.
func (r *Receiver) exportMetrics(ctx context.Context) {
	last := time.Now()
	timer := time.NewTimer(r.stats.Period())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			last = time.Now()
			period := r.stats.Period()
			timer.Reset(period)
			r.exportOnce(ctx, period)
		case <-r.stats.PeriodChanged():
			timer.Reset(time.Until(last.Add(r.stats.Period())))
		case <-ctx.Done():
			return
		}
	}
}

// exportOnce exports the views. It waits for room no longer than a period: the next export has what is
// in this one, as later values or in r.unsent.
func (r *Receiver) exportOnce(ctx context.Context, period time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	r.sendMetrics(ctx)
}

// maxUnsentBytes limits the last states of dropped views that wait for room in the queue.
const maxUnsentBytes = 4 << 20

// sendMetrics encodes the views and passes them to the queue, which may wait for room until ctx is
// done. Last states of views that find none are kept for the next time. Calls must not overlap.
func (r *Receiver) sendMetrics(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			r.panicIn("metrics export", v, debug.Stack())
		}
	}()
	now := time.Now()
	requests := append(r.unsent, r.stats.Encode(now)...)
	r.unsent = nil
	kept := 0
	for _, request := range requests {
		err := r.enqueue(ctx, otlp.NewBatch(otlp.Metrics, request.Body, request.Points, now))
		if request.Last && err != nil && refusal(err) == Overload && kept+len(request.Body) <= maxUnsentBytes {
			r.unsent = append(r.unsent, request)
			kept += len(request.Body)
			continue
		}
		r.counters.countPoints(request.Points, err)
	}
}

// dropUnsent counts what was kept for an export that does not come.
func (r *Receiver) dropUnsent() {
	for _, request := range r.unsent {
		r.counters.countPoints(request.Points, otlp.ErrClosed)
	}
	r.unsent = nil
}
