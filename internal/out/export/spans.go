package export

import (
	"context"

	"correlator/otlp"
	"correlator/otlp/spantimes"
)

// timed is the exporter, which tells when spans began and ended that were received and accepted.
type timed struct {
	*otlp.Exporter
	onSpan func(*spantimes.Span)
}

// queue returns where receivers put what they have received.
func (e *Export) queue() timed { return timed{e.exporter, e.config.OnSpan} }

// EnqueueReceived is that of the exporter.
func (t timed) EnqueueReceived(ctx context.Context, b *otlp.Batch) error {
	err := t.Exporter.EnqueueReceived(ctx, b)
	if err == nil && t.onSpan != nil && b.Signal() == otlp.Traces {
		spantimes.Entries(b.Request(), t.onSpan)
	}
	return err
}
