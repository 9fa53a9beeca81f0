package dotstool

import (
	"context"
	"errors"
	"time"

	"correlator/dots/client"
)

// settleTime is how long things that block may take to end when a command is interrupted.
const settleTime = time.Second

// errStuck means that a command cannot end as it should: its output takes nothing.
var errStuck = errors.New("the output takes nothing")

// ErrInterrupted is the error of a command whose context ended before it did what it was for.
var ErrInterrupted = errors.New("interrupted")

// interruptedBy returns ErrInterrupted instead of an error if it was the context that ended something.
func interruptedBy(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// interruptible does something that may block for ever, as reading from a terminal does. It returns
// early when the context or the connection ends, and leaves what blocks to itself then.
func interruptible(ctx context.Context, c *client.Client, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Done():
		return c.Err()
	}
}

// settle waits until the broker has everything that was published, also after an interruption, when
// it waits less. It returns the error of publishing, or why the connection ended.
func settle(ctx context.Context, c *client.Client, published error) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
	}
	if err := c.Ping(ctx); err != nil && (published == nil || c.Err() != nil) {
		return err
	}
	return published
}
