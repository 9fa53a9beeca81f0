package lifecycle

import (
	"testing"
	"time"

	"correlator/internal/attach"
)

// A loop that has stopped is not healthy.
func TestHealth(t *testing.T) {
	m := &Manager{table: attach.NewTable()}
	since := func(ago time.Duration) {
		m.discovery.round.began = time.Now().Add(-ago)
		m.discovery.round.after.Store(1)
	}
	since(stuckAfter - 10*time.Second)
	if err := m.Health(0); err != nil {
		t.Error(err)
	}
	since(stuckAfter + time.Second)
	if m.Health(0) == nil {
		t.Error("healthy")
	}
	m.discovery.round.beat()
	if err := m.Health(0); err != nil {
		t.Errorf("after a beat: %v", err)
	}
	if err := overdue("fetching samples", time.Time{}, stuckAfter); err != nil {
		t.Errorf("before it began: %v", err)
	}
}
