package lifecycle

import (
	"fmt"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"correlator/internal/worker"
	"correlator/messaging"
)

// What fails because the agent ends is neither counted nor logged.
func TestNoErrorAtTheEnd(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	p := &Process{manager: &Manager{counters: new(Counters)}, log: zap.New(core)}
	p.RecordError(fmt.Errorf("opening its library: %w", worker.ErrClosed))
	if p.status.LastError != nil || logs.Len() != 0 {
		t.Errorf("at the end: %+v, %v", p.status.LastError, logs.All())
	}
	p.RecordError(fmt.Errorf("opening its socket: %w", messaging.ErrNoSocket))
	if p.status.LastError == nil || logs.Len() != 1 {
		t.Errorf("before: %+v, %v", p.status.LastError, logs.All())
	}
}
