package metrics

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"gotest.tools/v3/assert"
)

// However many clients scrape in a loop, each gets what was gathered after it asked, within
// scrapeInterval. One that comes later does not wait.
func TestScrapesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const loops = 4
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		p := newPaced(gathererFunc(func() ([]*dto.MetricFamily, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return make([]*dto.MetricFamily, len(at)), nil
		}))
		var clients sync.WaitGroup
		for client := range 10 {
			clients.Go(func() {
				time.Sleep(time.Duration(client) * time.Millisecond)
				for range loops {
					asked := time.Since(began)
					families, err := p.Gather()
					mu.Lock()
					if err != nil || at[len(families)-1] < asked || time.Since(began)-asked > scrapeInterval {
						t.Errorf("asked at %v, got that of %v at %v; %v", asked, at[len(families)-1],
							time.Since(began), err)
					}
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			})
		}
		clients.Wait()
		time.Sleep(time.Minute)
		last := time.Since(began)
		if _, err := p.Gather(); err != nil || time.Since(began) != last {
			t.Errorf("waited until %v, %v", time.Since(began), err)
		}
		want := []time.Duration{0}
		for i := range loops {
			want = append(want, time.Duration(i+1)*scrapeInterval)
		}
		want = append(want, last)
		assert.Check(t, slices.Equal(at, want), "gathered at %v, want %v", at, want)
	})
}
