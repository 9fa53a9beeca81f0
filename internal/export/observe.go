package export

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/otlp"
)

// reasons are the names of the counters, after correlator_otlp_, that go on to count what an event tells of once.
var reasons = map[otlp.EventKind]string{
	otlp.EventWaiting:     "attempts_total",
	otlp.EventRefused:     "dropped_items_total",
	otlp.EventPartial:     "dropped_items_total",
	otlp.EventUnsupported: "dropped_items_total",
	otlp.EventLost:        "dropped_items_total",
}

var messages = map[otlp.EventKind]string{
	otlp.EventWaiting:     "OTLP destination takes nothing; it is tried again",
	otlp.EventRecovered:   "OTLP destination takes requests again",
	otlp.EventRefused:     "OTLP destination refuses data",
	otlp.EventPartial:     "OTLP destination says something of what it took",
	otlp.EventUnsupported: "OTLP destination does not know the signal; it is tried again later",
	otlp.EventSupported:   "OTLP destination takes the signal now",
	otlp.EventLost:        "not all data could be exported",
}

// observe logs an event, of which package otlp sees to it that there are few.
func (e *Export) observe(event otlp.Event) {
	level, fields := zapcore.InfoLevel, []zap.Field{zap.String("destination", event.Destination)}
	if reason, trouble := reasons[event.Kind]; trouble {
		level = zapcore.WarnLevel
		fields = append(fields, zap.String("reason", "otlp_"+reason))
	}
	switch event.Kind {
	case otlp.EventRefused, otlp.EventPartial, otlp.EventUnsupported, otlp.EventSupported:
		fields = append(fields, zap.Stringer("signal", event.Signal))
	}
	for _, text := range []struct{ name, value string }{{"code", event.Code}, {"error", event.Message}, {"hint", event.Hint}} {
		if text.value != "" {
			fields = append(fields, zap.String(text.name, text.value))
		}
	}
	if event.Wait > 0 {
		fields = append(fields, zap.Duration("next_attempt_in", event.Wait))
	}
	if event.Items > 0 {
		fields = append(fields, zap.Uint64("items", event.Items))
	}
	if event.Batches > 0 {
		fields = append(fields, zap.Uint64("batches", event.Batches))
	}
	e.log.Log(level, messages[event.Kind], fields...)
}
