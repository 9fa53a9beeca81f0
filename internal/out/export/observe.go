package export

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/otlp"
)

// reasons has the names of the metrics, without correlator_otlp_, that count what an event reports
// once.
var reasons = map[otlp.EventKind]string{
	otlp.EventWaiting:     "attempts_total",
	otlp.EventRefused:     "dropped_items_total",
	otlp.EventPartial:     "dropped_items_total",
	otlp.EventUnsupported: "dropped_items_total",
	otlp.EventLost:        "dropped_items_total",
}

var messages = map[otlp.EventKind]string{
	otlp.EventWaiting:     "OTLP destination accepts nothing; retrying",
	otlp.EventRecovered:   "OTLP destination accepts requests again",
	otlp.EventRefused:     "OTLP destination refuses data",
	otlp.EventPartial:     "OTLP destination reports partial success",
	otlp.EventUnsupported: "OTLP destination does not support the signal; retrying later",
	otlp.EventSupported:   "OTLP destination supports the signal now",
	otlp.EventLost:        "not all data could be exported",
}

// observe logs an event. Package otlp limits their number.
func (e *Export) observe(event otlp.Event) {
	level, fields := zapcore.InfoLevel, []zap.Field{zap.String("destination", event.Destination)}
	if reason, ok := reasons[event.Kind]; ok {
		level = zapcore.WarnLevel
		fields = append(fields, zap.String("reason", "otlp_"+reason))
	}
	switch event.Kind {
	case otlp.EventRefused, otlp.EventPartial, otlp.EventUnsupported, otlp.EventSupported:
		fields = append(fields, zap.Stringer("signal", event.Signal))
	}
	for _, text := range []struct{ name, value string }{
		{"code", event.Code}, {"error", event.Message}, {"hint", event.Hint},
	} {
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

// observePanic logs the first panic of a call to the receiver.
func (e *Export) observePanic(value any, stack []byte) {
	e.log.Error("the OTLP receiver has a defect; further panics are only counted",
		zap.String("reason", "otlp_received_refused_items_total"),
		zap.Any("panic", value), zap.ByteString("stack", stack))
}
