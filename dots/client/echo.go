package client

import (
	"context"

	"correlator/dots/system"
)

// Ping waits until the broker has answered: until everything has been handled by it that was
// published before, and here everything that it had sent before. It must not be called by a
// handler.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.out.begin(ctx); err != nil { // as publishers do, so that pings do not pile up
		return err
	}
	c.out.end()
	pong := make(chan struct{})
	c.mu.Lock()
	err := c.err
	if err == nil {
		err = c.pingLocked(func() { close(pong) })
	}
	number := c.pinged
	c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-pong:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.pings, number)
		c.mu.Unlock()
		return ctx.Err()
	}
}

// pingLocked asks the broker for an answer. The reading goroutine calls a function, with mu, when it
// arrives. The caller holds mu.
func (c *Client) pingLocked(onAnswer func()) error {
	if c.state < early {
		return ErrNotConnected
	}
	c.pinged++
	c.pings[c.pinged] = onAnswer
	var echo system.DotsEcho
	echo.Request.Set(true)
	echo.Identifier.Set(c.id.Load())
	echo.SequenceNumber.Set(c.pinged)
	return c.send(&echo)
}

func onEcho(c *Client, instance []byte) error {
	var echo system.DotsEcho
	if err := decodeMessage(&echo, instance); err != nil {
		return err
	}
	if echo.Request.Value() || echo.Identifier.Value() != c.id.Load() {
		return nil // not an answer, or to another question
	}
	number := echo.SequenceNumber.Value()
	c.mu.Lock()
	defer c.mu.Unlock()
	onAnswer := c.pings[number]
	delete(c.pings, number)
	if onAnswer != nil {
		onAnswer()
	}
	return nil
}
