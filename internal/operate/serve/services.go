package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"correlator/internal/host/sockfile"
	"correlator/internal/host/systemd"
	"correlator/internal/names/naming"
	"correlator/internal/operate/admin"
	"correlator/internal/operate/config"
	"correlator/internal/operate/metrics"
	"correlator/internal/out"
	"correlator/internal/out/agent"
	"correlator/internal/out/explain"
	"correlator/internal/out/export"
	"correlator/internal/out/keep"
	"correlator/internal/out/live"
	"correlator/profile"
)

// services watch a running agent and export for it. They are opened before the agent, so that an
// address that is in use costs nothing, and shut down after it.
type services struct {
	log     *zap.Logger
	build   metrics.Build
	export  *export.Export  // nil: nothing is exported
	admin   *admin.Server   // nil without an admin socket
	metrics *metrics.Server // nil without an address
	live    *live.Live      // nil: there is no live view
	keep    *keep.Keep      // nil: no samples are kept
	namer   *naming.Namer   // of them all; nil: frames have the names that they come with
}

// hostName returns the name of the host that the agent sees: in a container with a UTS namespace of
// its own that is the container's. Empty: there is none.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// namesFrames reports whether somebody has frames named.
func namesFrames(cfg *config.Config) bool {
	kept := cfg.Keep.Config()
	return cfg.Samples.PerSecond > 0 && (cfg.Export.NamesFrames() || cfg.LiveView.Enabled() || kept.Enabled())
}

// openServices opens what the configuration asks for. The agent can do its work without the default
// admin socket: failing to open that is a warning, unless another agent has it.
func openServices(cfg *config.Config, build metrics.Build, log *zap.Logger) (*services, error) {
	s := &services{log: log, build: build}
	var err error
	if cfg.Monitoring.AdminSocket != "" {
		if s.admin, err = admin.Open(cfg.Monitoring.AdminSocket); errors.Is(err, sockfile.ErrInUse) {
			return nil, fmt.Errorf("%w: another agent runs, it seems; two of them need two --admin-socket, and do "+
				"all work twice", err)
		} else if err != nil && cfg.NeedsAdminSocket() {
			return nil, err
		} else if err != nil {
			log.Warn(`"correlator status" cannot ask this agent`, zap.Error(err))
		}
	}
	if cfg.Monitoring.MetricsAddress != "" {
		if s.metrics, err = metrics.Open(cfg.Monitoring.MetricsAddress); err != nil {
			s.close(context.Background()) // there is no receiver yet
			return nil, fmt.Errorf("opening --metrics-address: %w", err)
		}
		log.Info("serving metrics", zap.Stringer("address", s.metrics.Addr()))
	}
	warnOfMemory(limitMemory(cfg), cfg, log)
	if namesFrames(cfg) {
		if s.namer, err = naming.Open(cfg.Discovery.ProcRoot); err != nil {
			s.close(context.Background())
			return nil, fmt.Errorf("preparing to name frames: %w", err)
		}
	}
	about := out.About{Version: build.Version, HostID: cfg.Agents.HostID, HostName: hostName(),
		SamplesPerSecond: cfg.Samples.PerSecond, ProcRoot: cfg.Discovery.ProcRoot}
	exported := cfg.Export
	if kept := cfg.Keep.Config(); kept.Enabled() {
		s.keep = keep.Open(kept, about, s.namer)
		exported.OnSpans = s.keep.Spans
	}
	if exported.Enabled() {
		if s.export, err = export.Open(exported, about, s.namer, log); err != nil {
			s.close(context.Background())
			return nil, err
		}
	}
	if cfg.LiveView.Enabled() {
		if s.live, err = live.Open(cfg.LiveView, about, s.namer, log); err != nil {
			s.close(context.Background())
			return nil, fmt.Errorf("opening the live view: %w", err)
		}
		if s.keep != nil {
			s.live.ShowTimelines(func(ctx context.Context, of keep.Only) ([]byte, error) {
				return explain.LiveTimeline(ctx, s.keep, of)
			})
		}
	}
	return s, nil
}

// otlp returns the status of what is exported, nil when nothing is.
func (s *services) otlp() *export.Status {
	if s.export == nil {
		return nil
	}
	status := s.export.Status()
	return &status
}

// keeper returns what answers queries for samples, nil if none are kept.
func (s *services) keeper() admin.Keeper {
	if s.keep == nil {
		return nil
	}
	return s.keep
}

// gatherer returns the gatherer of the metrics of an agent, of what is exported, and of the server
// of metrics.
func (s *services) gatherer(a *agent.Agent) prometheus.Gatherer {
	owners := []prometheus.Collector{agent.NewCollector(a)}
	if s.export != nil {
		owners = append(owners, s.export)
	}
	if s.live != nil {
		owners = append(owners, s.live)
	}
	if s.keep != nil {
		owners = append(owners, s.keep)
	}
	if s.metrics != nil {
		owners = append(owners, s.metrics)
	}
	return metrics.NewGatherer(s.build, owners...)
}

// exporter returns the receiver of samples, or nil.
func (s *services) exporter() agent.Exporter {
	var all receivers
	if s.export != nil && s.export.TakesSamples() {
		all = append(all, s.export)
	}
	if s.live != nil {
		all = append(all, s.live)
	}
	if s.keep != nil {
		all = append(all, s.keep)
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type receivers []agent.Exporter

func (r receivers) TakesSamples() bool { return slices.ContainsFunc(r, agent.Exporter.TakesSamples) }

func (r receivers) Sampled(sample *profile.Sample) {
	for _, one := range r {
		one.Sampled(sample)
	}
}

func (r receivers) TakesAccounts() bool { return slices.ContainsFunc(r, agent.Exporter.TakesAccounts) }

func (r receivers) Accounted(account *profile.Account) {
	for _, one := range r {
		if one.TakesAccounts() {
			one.Accounted(account)
		}
	}
}

func (r receivers) Waited(sample *profile.Sample) {
	for _, one := range r {
		if one.TakesAccounts() {
			one.Waited(sample)
		}
	}
}

func (r receivers) TakesUntraced() bool { return slices.ContainsFunc(r, agent.Exporter.TakesUntraced) }

// serve serves an agent until the returned function is called, which blocks until everything is
// exported or its context ends. The service manager is told as soon as ctx ends.
func (s *services) serve(ctx context.Context, a *agent.Agent) (shutdown func(ctx context.Context)) {
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
		start(func() error { return s.admin.Serve(a, s.otlp, s.keeper()) })
	}
	gatherer := s.gatherer(a)
	if s.export != nil {
		s.export.Start(gatherer)
	}
	if s.metrics != nil {
		served := gatherer
		if s.export != nil && s.export.Views() != nil {
			served = prometheus.Gatherers{gatherer, s.export.Views()}
		}
		start(func() error { return s.metrics.Serve(serveCtx, served, a) })
	}
	if s.live != nil {
		s.live.Start(a)
	}
	start(func() error { return systemd.Notify(notifyCtx, a) })
	return func(ctx context.Context) {
		s.endOutlets(ctx)
		cancel()
		stopNotifying() // the agent may have ended by itself
		if s.admin != nil {
			s.admin.Close()
		}
		serving.Wait()
	}
}

// outlet is what hands on what the agent knows, and may be kept from it by those who take it.
type outlet interface{ Shutdown(ctx context.Context) }

func (s *services) outlets() (all []outlet) {
	if s.live != nil {
		all = append(all, s.live)
	}
	if s.export != nil {
		all = append(all, s.export)
	}
	if s.keep != nil {
		all = append(all, s.keep)
	}
	return all
}

// endAll shuts down outlets at the same time: none waits for those who take what another hands on.
func endAll(ctx context.Context, all ...outlet) {
	var ending sync.WaitGroup
	for _, o := range all {
		ending.Go(func() { o.Shutdown(ctx) })
	}
	ending.Wait()
}

// endOutlets shuts down all outlets, and then what they share.
func (s *services) endOutlets(ctx context.Context) {
	endAll(ctx, s.outlets()...)
	if s.namer != nil {
		s.namer.Close()
	}
}

// close closes services that do not serve. What was received meanwhile was acknowledged, so it is
// sent on, until ctx ends.
func (s *services) close(ctx context.Context) {
	s.endOutlets(ctx)
	if s.admin != nil {
		s.admin.Close()
	}
	if s.metrics != nil {
		s.metrics.Close()
	}
}
