package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"correlator/internal/admin"
	"correlator/internal/agent"
	"correlator/internal/export"
	"correlator/internal/metrics"
	"correlator/internal/sockfile"
	"correlator/internal/systemd"
)

// services are how a running agent is watched, and what it exports by. They are opened before the agent, so that an
// address that is in use costs nothing, and end after it.
type services struct {
	log     *zap.Logger
	export  *export.Export  // nil: nothing is exported
	admin   *admin.Server   // nil without an admin socket
	metrics *metrics.Server // nil without an address
}

// openServices opens what the configuration asks for. Without the default admin socket the agent can do its
// work: that it cannot be had is a warning, unless another agent has it.
func openServices(cfg *configuration, log *zap.Logger) (*services, error) {
	s := &services{log: log}
	var err error
	if cfg.AdminSocket != "" {
		if s.admin, err = admin.Open(cfg.AdminSocket); errors.Is(err, sockfile.ErrInUse) {
			return nil, fmt.Errorf("%w: another agent runs, it seems; two of them need two --admin-socket, and do all work twice", err)
		} else if err != nil && cfg.needsAdminSocket() {
			return nil, err
		} else if err != nil {
			log.Warn(`"correlator status" cannot ask this agent`, zap.Error(err))
		}
	}
	if cfg.MetricsAddress != "" {
		if s.metrics, err = metrics.Open(cfg.MetricsAddress); err != nil {
			s.close(context.Background()) // there is no receiver yet
			return nil, fmt.Errorf("opening --metrics-address: %w", err)
		}
		log.Info("serving metrics", zap.Stringer("address", s.metrics.Addr()))
	}
	if cfg.Export.Enabled() {
		cfg.Export.LimitMemory(cfg.MaxProcesses)
		about := export.About{Version: version, HostID: cfg.HostID, SamplesPerSecond: cfg.SamplesPerSecond}
		if s.export, err = export.Open(cfg.Export, about, log); err != nil {
			s.close(context.Background())
			return nil, err
		}
	}
	return s, nil
}

// otlp is what status tells of what is exported, nil when nothing is.
func (s *services) otlp() *admin.OTLP {
	if s.export == nil {
		return nil
	}
	status := s.export.Status()
	return admin.NewOTLP(&status)
}

// gatherer gathers the metrics of an agent and of what is exported.
func (s *services) gatherer(a *agent.Agent) prometheus.Gatherer {
	owners := []prometheus.Collector{agent.NewCollector(a)}
	if s.export != nil {
		owners = append(owners, s.export)
	}
	return metrics.NewGatherer(metrics.Build{Version: version, Revision: commit}, owners...)
}

// exporter is who takes samples, or nil.
func (s *services) exporter() agent.Exporter {
	if s.export == nil || !s.export.TakesSamples() {
		return nil
	}
	return s.export
}

// serve answers for an agent until the returned function is called, which waits for the end: until what is to be
// exported is, or its context ends. When ctx ends the service manager hears that the agent is about to.
func (s *services) serve(ctx context.Context, a *agent.Agent) (end func(hurry context.Context)) {
	serveCtx, cancel := context.WithCancel(context.Background())
	notifyCtx, stopNotifying := context.WithCancel(ctx)
	var serving sync.WaitGroup
	start := func(serve func() error) {
		serving.Go(func() {
			if err := serve(); err != nil {
				s.log.Error("the agent runs on unwatched", zap.Error(err))
			}
		})
	}
	if s.admin != nil {
		start(func() error { return s.admin.Serve(a, s.otlp) })
	}
	gatherer := s.gatherer(a)
	if s.export != nil {
		s.export.Start(gatherer)
	}
	if s.metrics != nil {
		start(func() error { return s.metrics.Serve(serveCtx, gatherer, a) })
	}
	start(func() error { return systemd.Notify(notifyCtx, a) })
	return func(hurry context.Context) {
		if s.export != nil {
			s.export.Shutdown(hurry)
		}
		cancel()
		stopNotifying() // the agent may have ended by itself
		if s.admin != nil {
			s.admin.Close()
		}
		serving.Wait()
	}
}

// close ends services that do not serve. What was received meanwhile was acknowledged, so it is sent on, until ctx ends.
func (s *services) close(ctx context.Context) {
	if s.export != nil {
		s.export.Shutdown(ctx)
	}
	if s.admin != nil {
		s.admin.Close()
	}
	if s.metrics != nil {
		s.metrics.Close()
	}
}
