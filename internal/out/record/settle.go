package record

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"correlator/internal/stacks/sampling"
)

const (
	// unwindGrace is how long recording waits at most until the stacks of the processes that were found at first
	// are unwound. That takes half a second of CPU time for the first, and 0.2 s for each further JVM: on a host with
	// ten busy threads for each CPU, ten times as long. unwindNotice is when that is logged.
	unwindGrace  = 30 * time.Second
	unwindNotice = 2 * time.Second
)

// unwinder is what settle needs of sampling.Sampling.
type unwinder interface {
	Settle(ctx context.Context)
	Unwinding() *sampling.UnwindingStatus
}

// settle waits, for a while, until stacks are unwound. It logs when it waits for long, and when it gives up.
func settle(ctx context.Context, stacks unwinder, grace time.Duration, log *zap.Logger) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	notice := time.AfterFunc(unwindNotice, func() {
		log.Warn("waiting until stacks can be unwound", zap.Duration("at_most", grace))
	})
	defer notice.Stop()
	stacks.Settle(ctx)
	status := stacks.Unwinding()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && status != nil && status.Waiting > 0 {
		log.Warn("stacks are walked by frame pointers until they can be unwound: the machine is busy, or runtimes start",
			zap.Int("processes", status.Waiting), zap.Int("unwound", status.Unwound), zap.Error(status.Err()))
	}
}
