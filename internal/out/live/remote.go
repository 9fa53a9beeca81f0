package live

import (
	"context"
	"time"

	"go.uber.org/zap"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/schema"
	"correlator/internal/out/live/types"
)

// connect publishes to the other broker, and connects again when the connection ends.
func (l *Live) connect(ctx context.Context, p *publisher) {
	logged := ""
	for {
		connected, err := l.publishTo(ctx, p)
		if ctx.Err() != nil {
			return
		}
		l.counters.connectionFailures.Add(1)
		if connected {
			logged = ""
		}
		if text := err.Error(); text != logged {
			l.log.Warn("the live view's broker cannot be reached; trying again", zap.Error(err))
			logged = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(l.retry):
		}
	}
}

// publishTo publishes until ctx or the connection ends. The error is not nil unless ctx has ended.
func (l *Live) publishTo(ctx context.Context, p *publisher) (connected bool, err error) {
	c := client.New(client.Options{Name: "correlator", Secret: l.config.Secret, CloseTimeout: l.goodbye})
	defer c.Close()
	if err := c.Describe(types.Published()...); err != nil {
		return false, err
	}
	d := &demand{changed: l.wakeUp}
	if err := d.follow(c); err != nil {
		return false, err
	}
	if err := c.Connect(ctx, l.config.Connect); err != nil {
		return false, err
	}
	l.log.Info("publishing the live view", zap.String("broker", c.ServerName()))
	l.counters.connected.Store(1)
	defer l.counters.connected.Store(0)
	r := &remote{live: l, output: output{bus: connection{ctx, c, d}}, mailbox: make(chan *snapshot, 1)}
	p.add(r)
	defer p.remove(r)
	l.wakeUp()
	r.run(ctx, c.Done())
	return true, c.Err()
}

// remote publishes to a broker that runs elsewhere, which may be slow: on a goroutine of its own, and
// always the latest snapshot.
type remote struct {
	live    *Live
	output  output
	mailbox chan *snapshot
}

// wanted has no timelines: which are selected is not known, and all would be much.
func (r *remote) wanted() want { return wantedOn(r.output.bus) &^ wantTimelines }

// publish replaces the snapshot that waits. It is called by one goroutine.
func (r *remote) publish(s *snapshot, _ want) {
	select {
	case <-r.mailbox:
	default:
	}
	r.mailbox <- s
}

// run publishes until ctx or the connection ends.
func (r *remote) run(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case s := <-r.mailbox:
			r.live.published(r.output.sync(s, r.wanted()))
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// connection is a connection to such a broker.
type connection struct {
	ctx    context.Context
	client *client.Client
	demand *demand
}

func (c connection) Apply(changes []broker.Change) error {
	for i := range changes {
		x := &changes[i]
		if x.Remove {
			x.Err = c.client.Remove(c.ctx, x.Object)
		} else {
			x.Err = c.client.PublishProperties(c.ctx, x.Object, x.Properties)
		}
	}
	return nil
}

func (c connection) Wants(s *schema.Struct) bool { return c.demand.wants(s) }
