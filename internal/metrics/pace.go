package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// scrapeInterval is the minimal time between the starts of two scrapes. A client that scrapes in a
// loop then costs about one percent of a CPU; of Prometheus servers that scrape at the same moment
// one waits.
const scrapeInterval = 100 * time.Millisecond

// paced is a Gatherer that calls another at most once per scrapeInterval. Earlier callers wait.
type paced struct {
	gatherer prometheus.Gatherer

	mu   sync.Mutex
	next time.Time
}

func (p *paced) Gather() ([]*dto.MetricFamily, error) {
	time.Sleep(p.reserve(time.Now()))
	return p.gatherer.Gather()
}

// reserve returns how long the caller must wait.
func (p *paced) reserve(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := max(p.next.Sub(now), 0)
	p.next = now.Add(wait + scrapeInterval)
	return wait
}
