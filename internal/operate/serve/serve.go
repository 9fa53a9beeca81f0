// Package serve runs an agent together with what watches it and exports for it: the admin socket,
// metrics over HTTP, the service manager, OTLP, the live view. It handles the signals that end an agent.
package serve

import (
	"context"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"go.uber.org/zap"

	"correlator/internal/host/resident"
	"correlator/internal/operate/config"
	"correlator/internal/operate/metrics"
	"correlator/internal/out/agent"
)

// settling is how long an agent has before what its start has used of the program is unmapped, and goroutines have
// one CPU: then it has loaded the unwinding engine, too, if there are processes.
const settling = 10 * time.Second

// trimInterval is how often what was used of the program since is unmapped again: what gathers and encodes metrics, for
// example, and else stays mapped until memory is short.
const trimInterval = time.Minute

// Run runs an agent until SIGTERM or SIGINT, and a second one of them ends it without delay. The
// configuration must be complete.
func Run(ctx context.Context, cfg *config.Config, build metrics.Build, log *zap.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, stop = untilHangup(ctx, log)
	defer stop()
	s, err := openServices(cfg, build, log)
	if err != nil {
		return err
	}
	a, err := agent.New(cfg.Agent(), s.exporter(), log)
	if err != nil {
		s.close(ctx)
		return err
	}
	debug.FreeOSMemory() // loading eBPF takes several MB of the kernel's types, once
	settled := time.AfterFunc(settling, func() {
		debug.FreeOSMemory() // so does to get to know many processes
		limitProcessors(cfg)
		trim(ctx, cfg.Agent().ProcRoot, log)
	})
	defer settled.Stop()
	shutdown := s.serve(ctx, a)
	second, stop := untilSecondSignal(ctx)
	defer stop()
	context.AfterFunc(second, a.StopNow)
	err = a.Run(ctx)
	shutdown(second)
	return err
}

// trim unmaps what was used of the program, again and again until ctx ends.
func trim(ctx context.Context, procRoot string, log *zap.Logger) {
	again := time.NewTicker(trimInterval)
	defer again.Stop()
	for ctx.Err() == nil {
		if err := resident.Trim(procRoot); err != nil {
			log.Debug("pages of the program stay mapped", zap.Error(err))
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}
