package live

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/internal/lab/testenv"
)

// relay passes on what a broker and its guests send each other, until it is frozen.
type relay struct {
	gate    sync.Mutex // held while frozen
	address string
}

func newRelay(t *testing.T, broker string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	r := &relay{address: l.Addr().String()}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = l.Close() })
	t.Cleanup(cancel)
	running.Go(func() {
		for {
			guest, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", broker)
			if err != nil {
				_ = guest.Close() // the broker has ended
				continue
			}
			context.AfterFunc(ctx, func() { _ = guest.Close() }) // browsers keep connections
			running.Go(func() { r.copy(server, guest) })
			running.Go(func() { r.copy(guest, server) })
		}
	})
	return r
}

// copy closes both when one of them has ended.
func (r *relay) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.gate.Lock()
		_, writeErr := to.Write(buf[:n])
		r.gate.Unlock()
		if err != nil || writeErr != nil {
			return
		}
	}
}

// A broker that hangs does not keep Shutdown longer than its context says, nor for good.
func TestShutdownWhileBrokerHangs(t *testing.T) {
	for _, c := range []struct {
		name    string
		goodbye time.Duration
		context func() (context.Context, context.CancelFunc)
	}{
		{"ended", time.Hour, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}},
		{"not ended", time.Millisecond, func() (context.Context, context.CancelFunc) {
			return context.WithCancel(context.Background())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := broker.New(broker.Options{})
			addr, err := b.ListenURI("tcp://127.0.0.1:0")
			assert.NilError(t, err)
			r := newRelay(t, addr.String())
			l := openLive(t, Config{Connect: "tcp://" + r.address})
			l.goodbye = c.goodbye
			l.Start(newSource(1))
			testenv.Poll(t, patience, "the connection", func() bool { return l.counters.connected.Load() == 1 })
			r.gate.Lock()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				ctx, cancel := c.context()
				defer cancel()
				l.Shutdown(ctx)
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("it waits for the broker")
			}
			r.gate.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			assert.Check(t, b.Shutdown(ctx))
			<-ended
		})
	}
}
