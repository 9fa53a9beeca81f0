package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// scrapePause is between the begins of two scrapes: whoever scrapes in a loop costs one percent of a CPU, and
// Prometheus servers that come at the same moment wait for each other.
const scrapePause = 100 * time.Millisecond

// paced is a Gatherer that has another gather once in scrapePause at most. Who comes before waits.
type paced struct {
	gatherer prometheus.Gatherer

	mu   sync.Mutex
	next time.Time
}

func (p *paced) Gather() ([]*dto.MetricFamily, error) {
	time.Sleep(p.reserve(time.Now()))
	return p.gatherer.Gather()
}

// reserve answers how long to wait.
func (p *paced) reserve(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := max(p.next.Sub(now), 0)
	p.next = now.Add(wait + scrapePause)
	return wait
}
