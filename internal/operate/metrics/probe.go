package metrics

import (
	"errors"
	"net/http"
	"time"
)

// Probes are what an orchestrator asks of the agent. One that blocks has failed.
type Probes interface {
	Health() error // why the agent should be restarted, or nil
	Ready() error  // why it does not serve all processes that it could, or nil
}

const (
	// probeTimeout is the default timeout of the kubelet, which should get the reason instead of
	// timing out. Probes take microseconds.
	probeTimeout = time.Second
	// probeInterval is the time for which a result is used again, so that it costs nothing to ask
	// in a loop.
	probeInterval = 100 * time.Millisecond
)

var errSlow = errors.New("the correlator does not answer")

// probe is a check of the agent. Its response is 200, or 503 and the reason.
type probe struct {
	check   func() error
	timeout time.Duration

	slot chan struct{} // full while check runs: one that hangs is not called again
	last error         // guarded by slot
	at   time.Time     // of last; guarded by slot
}

func newProbe(check func() error) *probe {
	return &probe{check: check, timeout: probeTimeout, slot: make(chan struct{}, 1)}
}

func (p *probe) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := p.result(); err != nil {
		writeText(w, http.StatusServiceUnavailable, err.Error()+"\n")
		return
	}
	writeText(w, http.StatusOK, "ok\n")
}

// result returns the error of check, of now or of just before, or errSlow.
func (p *probe) result() error {
	timeout := time.After(p.timeout)
	select {
	case p.slot <- struct{}{}:
	case <-timeout:
		return errSlow
	}
	if !p.at.IsZero() && time.Since(p.at) < probeInterval {
		defer func() { <-p.slot }()
		return p.last
	}
	checked := make(chan error, 1)
	go func() {
		defer func() { <-p.slot }()
		p.last = p.check()
		p.at = time.Now()
		checked <- p.last
	}()
	select {
	case err := <-checked:
		return err
	case <-timeout:
		return errSlow
	}
}
