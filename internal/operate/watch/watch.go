// Package watch shows in a terminal what agents publish of their hosts: processes, threads with
// what they work on, the transactions that use the CPU most, and the stacks of one of them while
// they grow.
//
//	broker ─▶ bus: a connection, containers ─▶ snapshot ─▶ view ─▶ screen
//	                        ▲                               ▲
//	                        └─ stacks, while they are shown └─ keys
package watch

import (
	"context"
	"errors"
	"io"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/operate/dotstool"
	"correlator/internal/out/live/types"
)

// DefaultEndpoint is where an agent on this host serves its live view.
const DefaultEndpoint = "uds:/run/correlator/live.sock"

const (
	// drawInterval is the time between two drawings of what changes: more of them nobody can read.
	drawInterval = 200 * time.Millisecond

	// plainInterval is that time where one drawing follows the other.
	plainInterval = time.Second

	// ageInterval is how often drawings are made when nothing changes: they say since when.
	ageInterval = time.Second

	retryInterval  = time.Second
	connectTimeout = 30 * time.Second
)

// Watch shows what is published to a broker.
type Watch struct {
	Guest dotstool.Guest
	Notes io.Writer // what is to be known beside the data
}

// JSON writes a line for each object that is published, changed or removed, until ctx ends, which
// is no error, or the connection does.
func (w *Watch) JSON(ctx context.Context, out io.Writer) error {
	all := dotstool.Watch{Guest: w.Guest, Notes: w.Notes}
	for _, s := range types.Published() {
		if s != (*types.CorrelatorTransactionTimeline)(nil).Descriptor() { // which are for a page
			all.Types = append(all.Types, s.Name)
		}
	}
	return all.JSON(ctx, out)
}

// Table shows tables, in place on a terminal and steered by its keys, until ctx ends or the key for
// that is pressed, which is no error. The first attempt to connect must succeed; after that, it
// connects again when a connection has ended.
func (w *Watch) Table(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := w.connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	l := &loop{watch: w, ctx: ctx, bus: b, connected: make(chan connection, 1), interval: plainInterval}
	defer l.close()
	defer cancel()
	l.screen = terminal.OpenScreen(out)
	defer l.screen.Close()
	if l.screen.Resized() != nil {
		l.interval = drawInterval
		keyboard, err := terminal.OpenKeyboard(in)
		if err != nil {
			return err
		}
		defer keyboard.Close()
		l.keys = keyboard.Keys()
	}
	return l.run()
}

func (w *Watch) connect(ctx context.Context) (*bus, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return openBus(ctx, w.Guest.URI(), w.Guest.Secret)
}

// connection is what came of an attempt to connect.
type connection struct {
	bus *bus
	err error
}

// loop draws, and waits for what makes another drawing necessary.
type loop struct {
	watch    *Watch
	ctx      context.Context
	screen   *terminal.Screen
	keys     <-chan terminal.Key // nil: there are none
	interval time.Duration

	bus        *bus
	view       view
	trouble    error // nil while there is a connection
	connecting bool  // connected will receive
	connected  chan connection
}

// close ends the connection, and one that is being made. The context must have ended.
func (l *loop) close() {
	l.bus.close()
	if l.connecting {
		if c := <-l.connected; c.bus != nil {
			c.bus.close()
		}
	}
}

func (l *loop) run() error {
	age := time.NewTicker(ageInterval)
	defer age.Stop()
	pause := time.NewTimer(l.interval)
	defer pause.Stop()
	if err := l.draw(); err != nil {
		return err
	}
	for dirty, paused := false, true; ; {
		urgent := false
		select {
		case <-l.ctx.Done():
			return nil
		case key, ok := <-l.keys:
			if !ok || l.view.press(key) {
				return nil
			}
			urgent = true
		case <-l.screen.Resized():
			urgent = true
		case <-pause.C:
			paused = false
		case <-age.C:
			dirty = true
		case <-l.bus.changed:
			dirty = true
		case <-l.lost():
			l.trouble, dirty = l.bus.client.Err(), true
			l.reconnect()
		case c := <-l.connected:
			l.take(c)
			dirty = true
		}
		if !urgent && (!dirty || paused) {
			continue
		}
		if err := l.draw(); err != nil {
			return err
		}
		dirty, paused = false, true
		pause.Reset(l.interval)
	}
}

// lost returns a channel that is closed when the connection has ended, unless that is known.
func (l *loop) lost() <-chan struct{} {
	if l.connecting {
		return nil
	}
	return l.bus.client.Done()
}

func (l *loop) reconnect() {
	l.connecting = true
	go func() {
		select {
		case <-l.ctx.Done():
		case <-time.After(retryInterval):
		}
		b, err := l.watch.connect(l.ctx)
		l.connected <- connection{b, err}
	}()
}

// take takes over what came of an attempt to connect.
func (l *loop) take(c connection) {
	l.connecting = false
	if l.trouble = c.err; c.err != nil {
		l.reconnect()
		return
	}
	l.bus.close()
	l.bus = c.bus
}

func (l *loop) draw() error {
	if l.trouble == nil {
		// Without a connection nothing more arrives; it is chosen again when there is one.
		_ = errors.Join(l.bus.choose(l.view.subject()), l.bus.meet())
	}
	columns, rows := l.screen.Size()
	if rows == 0 {
		return l.screen.Draw(l.view.plain(l.bus.snapshot(), l.trouble, columns))
	}
	return l.screen.DrawMarked(l.view.draw(l.bus.snapshot(), l.trouble, columns, rows))
}
