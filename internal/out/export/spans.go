package export

import (
	"context"
	"sync"

	"correlator/otlp"
	"correlator/otlp/spantimes"
)

// spansAtOnce is how many spans are told at a time: who is told may need a lock that others wait for.
const spansAtOnce = 256

// spanReader tells when spans began and ended, of one request at a time: like the validation of requests, that takes
// one CPU at most.
type spanReader struct {
	tell func([]spantimes.Span) // nil: nobody wants to know

	mu    sync.Mutex
	spans []spantimes.Span // that are to be told
}

func (r *spanReader) read(request []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	spantimes.Entries(request, func(span *spantimes.Span) {
		if len(r.spans) == spansAtOnce {
			r.flush()
		}
		r.spans = append(r.spans, *span)
	})
	r.flush()
}

func (r *spanReader) flush() {
	spans := r.spans
	r.spans = spans[:0]
	if len(spans) > 0 {
		r.tell(spans)
	}
}

// timed is the exporter, which tells when spans began and ended that were received and accepted.
type timed struct {
	*otlp.Exporter
	reader *spanReader
}

// queue returns where receivers put what they have received.
func (e *Export) queue() timed { return timed{e.exporter, &e.spans} }

// EnqueueReceived is that of the exporter.
func (t timed) EnqueueReceived(ctx context.Context, b *otlp.Batch) error {
	err := t.Exporter.EnqueueReceived(ctx, b)
	if err == nil && t.reader.tell != nil && b.Signal() == otlp.Traces {
		t.reader.read(b.Request())
	}
	return err
}
