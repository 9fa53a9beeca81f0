package receiver

import (
	"errors"
	"sync"
	"sync/atomic"

	"correlator/internal/host/label"
	"correlator/internal/host/metric"
	"correlator/opencensus/spans"
	"correlator/opencensus/wire"
	"correlator/otlp"
)

// Drop is why a message was not processed.
type Drop uint8

const (
	Malformed   Drop = iota // it does not decode, or there was no valid header
	Truncated               // the client did not finish it
	Oversize                // larger than Config.MaxTraceBytes
	NoMemory                // no memory to keep its beginning until the rest arrives
	UnknownType             // of a type that is not known
	QueueFull               // no memory to keep it until it is processed
	Unsupported             // nobody takes what would become of it
	Panic                   // a defect
	Shutdown                // there was no time left for it
	NumDrops
)

var dropNames = [NumDrops]string{
	Malformed: "malformed", Truncated: "truncated", Oversize: "oversize", NoMemory: "no_memory",
	UnknownType: "unknown_type", QueueFull: "queue_full", Unsupported: "unsupported", Panic: "panic",
	Shutdown: "shutdown",
}

// String is the value of the label reason.
func (d Drop) String() string { return label.Of(dropNames[:], d) }

// Refusal is why spans or data points were not accepted by the queue.
type Refusal uint8

const (
	TooLarge      Refusal = iota // for every destination
	Overload                     // the queues of destinations are full
	NoDestination                // no destination takes the signal
	Closing                      // shutting down
	Defect                       // a panic
	NumRefusals
)

var refusalNames = [NumRefusals]string{
	TooLarge: "too_large", Overload: "overload", NoDestination: "unsupported", Closing: "shutdown", Defect: "panic",
}

// String is the value of the label reason.
func (r Refusal) String() string { return label.Of(refusalNames[:], r) }

// messageCounts counts messages of one type: received = processed + dropped + those that wait.
type messageCounts struct {
	received, bytes, processed uint64 // bytes of payloads that were delivered
	dropped                    [NumDrops]uint64
}

// itemCounts counts spans or data points: exported + refused are all that were encoded.
type itemCounts struct {
	exported uint64
	refused  [NumRefusals]uint64
}

// counts are the counters.
type counts struct {
	messages [wire.Types]messageCounts // by wire.Type.Index
	skipped  uint64                    // bytes in search of a header
	gaps     uint64                    // messages that clients could not send
	latency  metric.Histogram

	empty                    uint64 // trace exports that clients could not encode
	spansDropped             [spans.NumDropReasons]uint64
	eventsLost, linksLost    uint64
	attributesLost           uint64
	badParents, unknownZones uint64
	spans, points            itemCounts
}

// counters are counts that goroutines share.
type counters struct {
	notProtocol atomic.Uint64 // connections
	panics      atomic.Uint64

	mu sync.Mutex
	counts
}

// snapshot returns a copy, with the counts of messages of one moment. A connection adds what it has
// received after it was passed on, so some may have been processed before.
func (c *counters) snapshot() counts {
	c.mu.Lock()
	all := c.counts
	c.mu.Unlock()
	for i := range all.messages {
		m := &all.messages[i]
		m.received = max(m.received, m.done())
	}
	return all
}

// done returns the number of messages that do not wait.
func (c *messageCounts) done() uint64 {
	n := c.processed
	for _, dropped := range c.dropped {
		n += dropped
	}
	return n
}

// addRead adds what was read, and what was lost of that.
func (c *counters) addRead(r *readCounts, lost *wire.Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.messages {
		m := &c.messages[i]
		m.received += r.received[i] + lost.Malformed[i] + lost.Truncated[i] + lost.Oversize[i] + lost.NoMemory[i]
		m.bytes += r.bytes[i]
		m.processed += r.processed[i]
		m.dropped[Malformed] += lost.Malformed[i]
		m.dropped[Truncated] += lost.Truncated[i]
		m.dropped[Oversize] += lost.Oversize[i]
		m.dropped[NoMemory] += lost.NoMemory[i]
		m.dropped[QueueFull] += r.queueFull[i]
		m.dropped[Panic] += r.panicked[i]
	}
	c.messages[0].received += lost.Unknown
	c.messages[0].dropped[UnknownType] += lost.Unknown
	c.messages[wire.TraceExport.Index()].dropped[Unsupported] += r.unsupported
	c.skipped += lost.Skipped
	c.gaps += r.gaps
	c.latency.Add(&r.latency)
}

// drop counts a message that was not processed.
func (c *counters) drop(t wire.Type, why Drop) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages[t.Index()].dropped[why]++
}

// addStats adds what became of messages, by wire.Type.Index.
func (c *counters) addStats(processed *[wire.Types]uint64, dropped *[NumDrops][wire.Types]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.messages {
		c.messages[i].processed += processed[i]
		for why := range dropped {
			c.messages[i].dropped[why] += dropped[why][i]
		}
	}
}

// addExport adds a trace export that was processed.
func (c *counters) addExport(r *spans.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages[wire.TraceExport.Index()].processed++
	if r.Empty {
		c.empty++
	}
	for why, n := range r.Dropped {
		c.spansDropped[why] += uint64(n)
	}
	c.attributesLost += uint64(r.DroppedAttributes)
	c.eventsLost += uint64(r.DroppedEvents)
	c.linksLost += uint64(r.DroppedLinks)
	c.badParents += uint64(r.InvalidParents)
	c.unknownZones += uint64(r.UnknownZones)
}

// countSpans counts spans that the queue has accepted, or not.
func (c *counters) countSpans(n int, err error) { c.countItems(&c.spans, n, err) }

// countPoints counts data points.
func (c *counters) countPoints(n int, err error) { c.countItems(&c.points, n, err) }

func (c *counters) countItems(items *itemCounts, n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		items.exported += uint64(n)
	} else {
		items.refused[refusal(err)] += uint64(n)
	}
}

// refusal returns why the queue has not taken a request.
func refusal(err error) Refusal {
	switch {
	case errors.Is(err, otlp.ErrTooLarge):
		return TooLarge
	case errors.Is(err, otlp.ErrUnsupported):
		return NoDestination
	case errors.Is(err, otlp.ErrClosed):
		return Closing
	case errors.Is(err, errPanic):
		return Defect
	default:
		return Overload
	}
}

// latencyBounds are those of the buckets, in seconds: from a message that is read at once to one
// that has waited in the socket of a client that was stopped.
var latencyBounds = []float64{0.0001, 0.00025, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1, 10, 100}
