package serve

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"

	"correlator/internal/host/terminal"
)

// untilSecondSignal returns a context that is ended by a SIGTERM or SIGINT after ctx has ended: a
// second signal asks not to wait.
func untilSecondSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	second, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		defer signal.Stop(signals)
		select {
		case <-signals:
			cancel()
		case <-second.Done():
		}
	})
	return second, func() {
		stop()
		cancel()
	}
}

// untilHangup returns a context that SIGHUP ends if it means that our terminal is gone. Sent to a
// service it asks to read the configuration again, which is not supported, and does not end it.
// Where SIGHUP was ignored before, by nohup, it stays ignored.
func untilHangup(ctx context.Context, log *zap.Logger) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	if terminal.Is(os.Stdin) {
		return signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP is ignored: the configuration is read once; restart the agent to change it")
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, stop
}
