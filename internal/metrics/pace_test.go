package metrics

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// A client that scrapes in a loop waits, one that comes later does not.
func TestScrapesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		p := &paced{gatherer: gathererFunc(func() ([]*dto.MetricFamily, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return nil, nil
		})}
		var clients sync.WaitGroup
		for range 2 {
			clients.Go(func() {
				for range 2 {
					p.Gather()
				}
			})
		}
		clients.Wait()
		time.Sleep(time.Minute)
		p.Gather()
		want := []time.Duration{0, scrapeInterval, 2 * scrapeInterval, 3 * scrapeInterval,
			3*scrapeInterval + time.Minute}
		if !slices.Equal(at, want) {
			t.Errorf("gathered at %v, want %v", at, want)
		}
	})
}
