package lifecycle

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

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
	assert.Check(t, m.Health(0))
	since(stuckAfter + time.Second)
	assert.Check(t, m.Health(0) != nil, "healthy")
	m.discovery.round.beat()
	assert.Check(t, m.Health(0), "after a beat")
	assert.Check(t, overdue("fetching samples", time.Time{}, stuckAfter), "before it began")
}
