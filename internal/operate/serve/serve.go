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
	trim := time.AfterFunc(settling, func() {
		debug.FreeOSMemory() // so does to get to know many processes
		if err := resident.Trim(cfg.Agent().ProcRoot); err != nil {
			log.Debug("pages of the program stay mapped", zap.Error(err))
		}
		limitProcessors(cfg)
	})
	defer trim.Stop()
	shutdown := s.serve(ctx, a)
	second, stop := untilSecondSignal(ctx)
	defer stop()
	context.AfterFunc(second, a.StopNow)
	err = a.Run(ctx)
	shutdown(second)
	return err
}
