package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// scrapeInterval is the minimal time between the starts of two gatherings. Clients that scrape in a
// loop, however many there are, then cost about one percent of a CPU, and what it takes to encode
// the same for each.
const scrapeInterval = 100 * time.Millisecond

// paced is a Gatherer that calls another at most once per scrapeInterval. Earlier callers wait for
// that, and all that wait get the same: nobody waits for longer because others scrape in a loop.
type paced struct {
	gatherer prometheus.Gatherer

	turn     chan struct{} // full while one gathers, or waits until it may; guards what follows
	began    time.Time     // when gathering the rest began
	families []*dto.MetricFamily
	err      error
}

func newPaced(gatherer prometheus.Gatherer) *paced {
	return &paced{gatherer: gatherer, turn: make(chan struct{}, 1)}
}

func (p *paced) Gather() ([]*dto.MetricFamily, error) {
	called := time.Now()
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if !p.began.After(called) {
		time.Sleep(time.Until(p.began.Add(scrapeInterval)))
		p.began = time.Now()
		p.families, p.err = p.gatherer.Gather()
	}
	return p.families, p.err
}
