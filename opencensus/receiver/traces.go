package receiver

import (
	"runtime/debug"
	"time"

	"correlator/opencensus/spans"
	"correlator/opencensus/wire"
	"correlator/otlp"
)

// traceWorker encodes trace exports until their queue is closed and empty.
func (r *Receiver) traceWorker() {
	w := traceWorker{Receiver: r}
	queue := r.queues[traceQueue]
	for b := queue.take(); b != nil; b = queue.take() {
		for i := range b.entries {
			w.work(b, &b.entries[i])
		}
		queue.giveBack(b)
	}
}

// traceWorker is what a worker keeps from one export to the next.
type traceWorker struct {
	*Receiver
	encoded []byte
}

// maxKeptBytes is the size from which on the memory of an export is not kept for the next one.
const maxKeptBytes = 1 << 20

// work encodes one export. A panic, which is a defect, costs that export alone.
func (w *traceWorker) work(b *batch, e *entry) {
	defer func() {
		if v := recover(); v != nil {
			w.panicIn("trace worker", v, debug.Stack())
			w.counters.drop(wire.TraceExport, Panic)
		}
	}()
	if w.drained.Err() != nil {
		w.counters.drop(wire.TraceExport, Shutdown)
		return
	}
	encoded, result, err := w.spans.Append(w.encoded[:0], &spans.Export{
		Payload: b.payload(e), Sent: e.sent(), Received: e.received(), PHPVersion: e.from.php, Process: e.from.process,
	})
	if cap(encoded) <= maxKeptBytes {
		w.encoded = encoded
	}
	if err != nil {
		w.counters.drop(wire.TraceExport, Malformed)
		return
	}
	w.counters.addExport(&result)
	if len(encoded) <= w.maxRequestBytes {
		if len(encoded) > 0 {
			w.requests.add(encoded, result.Spans)
		}
		return
	}
	for part, n := range spans.Parts(encoded) {
		if len(part) > w.maxRequestBytes { // it has a huge span
			w.counters.countSpans(n, otlp.ErrTooLarge)
		} else {
			w.requests.add(part, n)
		}
	}
}

// refuseTraces has trace exports dropped unread for a while, since nobody takes them.
func (r *Receiver) refuseTraces(now time.Time) {
	r.tracesRefused.Store(int64(now.Sub(r.since) + unsupportedTime))
}

// takesTraces reports whether trace exports are worth the work.
func (r *Receiver) takesTraces(now time.Time) bool {
	return now.Sub(r.since) >= time.Duration(r.tracesRefused.Load())
}
