package metrics

import (
	"errors"
	"net/http"
	"time"
)

// Probes are the questions of an orchestrator. They may block; that is an answer, too.
type Probes interface {
	Health() error // why to restart the agent, or nil
	Ready() error  // why it does not serve all processes that it could, or nil
}

// probeTimeout is as long as the kubelet waits by default: who asks should get the reason, not a timeout of
// his own. What is asked takes microseconds.
const probeTimeout = time.Second

var errSlow = errors.New("the correlator does not answer")

// probe answers 200, or 503 with the reason.
type probe struct {
	ask     func() error
	timeout time.Duration
	slot    chan struct{} // has a token while ask is under way: one that hangs is not asked again
}

func newProbe(ask func() error) *probe {
	return &probe{ask: ask, timeout: probeTimeout, slot: make(chan struct{}, 1)}
}

func (p *probe) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := p.result(); err != nil {
		answer(w, http.StatusServiceUnavailable, err.Error()+"\n")
		return
	}
	answer(w, http.StatusOK, "ok\n")
}

// result is what ask answers, or errSlow.
func (p *probe) result() error {
	timeout := time.After(p.timeout)
	select {
	case p.slot <- struct{}{}:
	case <-timeout:
		return errSlow
	}
	answered := make(chan error, 1)
	go func() {
		defer func() { <-p.slot }()
		answered <- p.ask()
	}()
	select {
	case err := <-answered:
		return err
	case <-timeout:
		return errSlow
	}
}
