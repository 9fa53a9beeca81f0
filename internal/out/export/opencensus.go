package export

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"correlator/internal/out"
	"correlator/opencensus/receiver"
	"correlator/opencensus/spans"
	"correlator/opencensus/stats"
	"correlator/otlp"
)

// OpenCensus is what is received of PHP's OpenCensus clients, and what becomes of it. Begin with
// DefaultOpenCensus.
type OpenCensus struct {
	Receiver    receiver.Config // without a Socket there is none
	ServiceName string          `key:"service-name"`
	Prometheus  bool            `key:"prometheus"` // views are also served to Prometheus: see Views

	CutQueries          bool `key:"cut-queries"` // see spans.Options
	TranslateAttributes bool `key:"translate-attributes"`
	MaxStackTraceBytes  int  `key:"max-stack-trace-bytes" unit:"bytes"`
	NonMonotonicSums    bool `key:"non-monotonic-sums"` // see stats.Options
	MaxViews            int  `key:"max-views"`
	MaxSeriesPerView    int  `key:"max-series-per-view"`
}

// DefaultOpenCensus receives nothing.
func DefaultOpenCensus() OpenCensus {
	return OpenCensus{
		Receiver: receiver.Config{
			SocketMode: receiver.DefaultSocketMode, MaxConnections: receiver.DefaultMaxConnections,
			BufferBytes: receiver.DefaultBufferBytes, MaxTraceBytes: receiver.DefaultMaxTraceBytes,
		},
		ServiceName:        "unknown_service:php",
		MaxStackTraceBytes: spans.DefaultMaxStackTraceBytes,
		MaxViews:           stats.DefaultMaxViews, MaxSeriesPerView: stats.DefaultMaxSeries,
	}
}

// MemoryBytes is the memory that clients can make the receiver hold; 0 without one. What is gathered
// for Prometheus takes as much as the views at most.
func (o *OpenCensus) MemoryBytes() int64 {
	if o.Receiver.Socket == "" {
		return 0
	}
	views := int64(stats.DefaultMaxMemory)
	if o.Prometheus {
		views *= 2
	}
	return o.Receiver.MemoryBytes() + views
}

// openOpenCensus opens the receiver and what it passes on to.
func (e *Export) openOpenCensus(about *out.About) (err error) {
	c := &e.config.OpenCensus
	e.views = stats.New(stats.Options{
		ServiceName: c.ServiceName, HostID: about.HostID, HostName: about.HostName,
		MaxBytes: min(stats.DefaultMaxBytes, e.config.maxRequestBytes(otlp.Metrics)),
		MaxViews: c.MaxViews, MaxSeries: c.MaxSeriesPerView, NonMonotonicSums: c.NonMonotonicSums,
	})
	e.openCensus, err = receiver.Open(c.Receiver, receiver.Options{
		Queue: e.queue(), ProcRoot: about.ProcRoot, Stats: e.views,
		Spans: spans.NewEncoder(spans.Options{
			ServiceName: c.ServiceName, HostID: about.HostID, HostName: about.HostName,
			SplitBytes:         e.config.maxRequestBytes(otlp.Traces) / 2,
			MaxStackTraceBytes: c.MaxStackTraceBytes, CutQueries: c.CutQueries,
			TranslateAttributes: c.TranslateAttributes,
		}),
		MaxRequestBytes: e.config.maxRequestBytes(otlp.Traces),
		OnEvent:         e.observeOpenCensus,
		OnPanic: func(value any, stack []byte) {
			e.log.Error("the OpenCensus receiver has a defect; further panics are only counted",
				zap.String("reason", "opencensus_panics_total"), zap.Any("panic", value),
				zap.ByteString("stack", stack))
		},
	})
	if err != nil {
		return fmt.Errorf("opening --opencensus-socket: %w", err)
	}
	e.log.Info("receiving OpenCensus", zap.String("socket", e.openCensus.Path()))
	return nil
}

// Views returns the gatherer of the views of OpenCensus clients, or nil if they are not to be served.
// They are no metrics of the agent's own: whoever may connect decides on them.
func (e *Export) Views() prometheus.Gatherer {
	if e.openCensus == nil || !e.config.OpenCensus.Prometheus {
		return nil
	}
	return e.views
}

// endOpenCensus ends the receiver, in a quarter of the time at most. An error is that of ctx: what was
// left is counted as dropped.
func (e *Export) endOpenCensus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.config.ShutdownTimeout/4)
	defer cancel()
	_ = e.openCensus.Shutdown(ctx)
}

// observeOpenCensus logs an event of a connection. The receiver limits their number.
func (e *Export) observeOpenCensus(event receiver.Event) {
	fields := []zap.Field{zap.Uint32("uid", event.UID), zap.Int("pid", event.PID)}
	switch event.Kind {
	case receiver.BadData:
		e.log.Warn("an OpenCensus client has sent what cannot be used", append(fields,
			zap.String("reason", "opencensus_dropped_messages_total"), zap.Uint64("messages", event.Losses),
			zap.Stringer("first", event.Reason), zap.Error(event.Err))...)
	case receiver.NotProtocol:
		e.log.Warn("connection closed: what came was not OpenCensus's protocol", append(fields,
			zap.String("reason", "opencensus_closed_connections_total"))...)
	case receiver.UnknownVersion:
		e.log.Warn("an OpenCensus client has another version of the protocol; it is served as if it had the first",
			append(fields, zap.Uint8("version", event.Version))...)
	case receiver.Conflict:
		e.log.Warn("a view is registered with two definitions; the first is kept until nobody registers it any more",
			zap.String("reason", "opencensus_lost_stats_total"), zap.Uint32("uid", event.UID),
			zap.String("view", event.Conflict.View), zap.String("kept", event.Conflict.Kept),
			zap.String("refused", event.Conflict.Refused))
	}
}
