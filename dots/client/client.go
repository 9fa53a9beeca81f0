package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"correlator/dots/auth"
	"correlator/dots/endpoint"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
)

// Errors that end a connection, or say why nothing was sent.
var (
	// ErrClosed is the error after Close.
	ErrClosed = errors.New("DOTS connection closed")
	// ErrGoodbye is the error after the broker has said that it closes the connection.
	ErrGoodbye = errors.New("DOTS broker said goodbye")
	// ErrRefused means that the broker does not accept this client.
	ErrRefused = errors.New("DOTS broker refused the client")
	// ErrSecretNeeded means that the broker wants a secret, and none is configured.
	ErrSecretNeeded = errors.New("DOTS broker demands authentication and there is no secret")
	// ErrNotConnected is returned for publications before there is a connection.
	ErrNotConnected = errors.New("DOTS client is not connected")
	// ErrHandler is wrapped when the connection has ended and a handler still runs.
	ErrHandler = errors.New("DOTS handler has not returned")
	// ErrUsed is returned when a Client is connected a second time.
	ErrUsed = errors.New("DOTS client was connected before")
	// ErrProtocol is wrapped by errors about what the broker sent.
	ErrProtocol = errors.New("DOTS protocol violated")
	// ErrTooLarge is wrapped when a container exceeds its bounds.
	ErrTooLarge = errors.New("DOTS container too large")
	// ErrUnsupported is returned for a subscription with a filter if the broker knows none.
	ErrUnsupported = errors.New("DOTS broker has no filtered subscriptions")
	// ErrUnknownType is wrapped for a type that has not been described.
	ErrUnknownType = errors.New("DOTS type is not known")
	// ErrSubstruct is wrapped for a type that may only be a property of others.
	ErrSubstruct = errors.New("DOTS type may only be nested")
	// ErrNoKey is wrapped for an object without all its key properties.
	ErrNoKey = errors.New("DOTS object lacks key properties")
	// ErrInvalid is wrapped for an object that has values that the protocol does not allow.
	ErrInvalid = errors.New("DOTS object invalid")
	// ErrUncached is returned for the removal of an object of an uncached type.
	ErrUncached = errors.New("DOTS type is uncached, its objects cannot be removed")
)

// BrokerError is what a broker said before it closed the connection.
type BrokerError struct {
	Code int32
	Text string
}

// Error returns the broker's text, which may contain anything.
func (e *BrokerError) Error() string {
	return fmt.Sprintf("DOTS broker reports error %d: %.300q", e.Code, e.Text)
}

// Options configure a Client. Zero values are the defaults.
type Options struct {
	Name   string // of the client, need not be unique; default: "go"
	Secret string // default: that of the endpoint, else DOTS_AUTH_SECRET

	// NoPreload connects without the phase in which containers are filled: Connect returns as soon
	// as the broker has accepted the client, and subscriptions are sent then.
	NoPreload bool

	FrameBytes   int           // longest frame that is received; default: 64 MiB
	OutputBytes  int           // publishers wait when more is to be written; default: 256 KiB
	Objects      int           // most objects in a container; default: 10 million
	ObjectBytes  int           // most bytes of objects in a container, estimated; default: 1 GiB
	CloseTimeout time.Duration // how long Close waits for the broker; default: 10 s
}

// Counters say how much has been received and sent.
type Counters struct {
	ReceivedFrames, ReceivedBytes uint64
	SentFrames, SentBytes         uint64
	Unsubscribed                  uint64 // instances received that nobody had subscribed to
	TypeConflicts                 uint64 // descriptors received that differ from the known type
	KeysRefused                   uint64 // objects received that have NaN in the key, which equals nothing
	TypesRefused                  uint64 // descriptors received that were invalid, or too many
}

// state is how far a connection is.
type state int32

const (
	unconnected state = iota
	waitHello
	waitResponse
	early     // accepted, containers are filled
	connected // all that was subscribed before is filled
	closed
)

// Client is a guest of one broker. It is made by New or Dial, and must be closed once it has been
// connected.
type Client struct {
	options  Options
	registry *schema.Registry
	conn     net.Conn
	format   frame.Format
	out      *output

	id           atomic.Uint32
	ready        chan struct{} // closed when Connect may return
	done         chan struct{} // closed when nothing is received any more
	routes       atomic.Pointer[routes]
	counters     counters
	capabilities system.DotsServerCapabilities // valid when ready
	serverName   string                        // valid when ready

	mu       sync.Mutex // protects what follows; taken before out.mu
	state    state
	err      error
	subs     []*subscription  // in the order of subscription
	left     map[string]bool  // groups that were left
	expected map[string]bool  // groups that were joined before their types are known
	types    []*schema.Struct // described when connecting
	discover *Discovery
	filters  uint32            // last subscription id
	pings    map[uint32]func() // by sequence number: what to do when the answer arrives
	pinged   uint32            // last sequence number

	cnonce   func() string
	exchange exchange // protected by out.mu
	in       input    // of the reading goroutine
}

// New makes a client that is not connected yet. What is subscribed now is filled by Connect.
func New(o Options) *Client {
	o.FrameBytes = cmp.Or(o.FrameBytes, frame.DefaultLimit)
	o.OutputBytes = cmp.Or(o.OutputBytes, 256<<10)
	o.Objects = cmp.Or(o.Objects, 10_000_000)
	o.ObjectBytes = cmp.Or(o.ObjectBytes, 1<<30)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, 10*time.Second)
	c := &Client{
		options:  o,
		registry: system.NewRegistry(),
		out:      newOutput(o.OutputBytes),
		ready:    make(chan struct{}),
		done:     make(chan struct{}),
		pings:    make(map[uint32]func()),
		left:     make(map[string]bool),
		expected: make(map[string]bool),
	}
	c.cnonce = auth.CNonce
	c.in.presize = presizeBytes
	c.exchange.init()
	c.routes.Store(&routes{})
	return c
}

// Dial makes a client and connects it.
func Dial(ctx context.Context, uri string, o Options) (*Client, error) {
	c := New(o)
	if err := c.Connect(ctx, uri); err != nil {
		return nil, err
	}
	return c, nil
}

// Connect connects to the broker at an endpoint, as package endpoint describes it; with an empty
// one, to that in the environment variable DOTS_ENDPOINT, or else to tcp://127.0.0.1. It returns
// when the containers of all earlier subscriptions are filled; if the broker does not do that while
// connecting, or with Options.NoPreload, Wait of a subscription tells. The context bounds only the
// time until then. After an error the Client is of no use any more.
func (c *Client) Connect(ctx context.Context, uri string) error {
	e, err := endpoint.Parse(cmp.Or(uri, os.Getenv(endpoint.EnvironmentEndpoint), endpoint.Default))
	if err != nil {
		return err
	}
	if e.User != "" {
		c.options.Name = e.User
	}
	c.options.Secret = cmp.Or(c.options.Secret, e.Secret)
	var conn net.Conn
	if e.WebSocket() {
		conn, err = c.dialWebSocket(ctx, e)
	} else {
		conn, err = e.Dial(ctx)
	}
	if err != nil {
		return err
	}
	return c.ConnectConn(ctx, conn, e.Format())
}

// ConnectConn is Connect on a stream that stands already. The Client closes it, also after an
// error.
func (c *Client) ConnectConn(ctx context.Context, conn net.Conn, f frame.Format) error {
	c.mu.Lock()
	if c.state != unconnected {
		c.mu.Unlock()
		_ = conn.Close()
		return ErrUsed
	}
	c.state = waitHello
	c.options.Name = cmp.Or(c.options.Name, "go")
	c.options.Secret = cmp.Or(c.options.Secret, os.Getenv(endpoint.EnvironmentSecret))
	c.conn, c.format = conn, f
	c.out.w = conn
	c.mu.Unlock()
	go c.out.run()
	go c.read()
	select {
	case <-c.ready:
		return nil
	case <-c.done:
	case <-ctx.Done():
		c.end(ctx.Err())
		if err := c.awaitHandler(); err != nil {
			return fmt.Errorf("connecting to a DOTS broker: %w: %w", ctx.Err(), err)
		}
	}
	select {
	case <-c.ready: // and lost since
		return nil
	default:
	}
	return fmt.Errorf("connecting to a DOTS broker: %w", c.Err())
}

// ID returns the client id that the broker assigned, 0 before.
func (c *Client) ID() uint32 { return c.id.Load() }

// ServerName returns the broker's name, once Connect has returned.
func (c *Client) ServerName() string { return c.serverName }

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil while there is a connection, and then why it ended: ErrClosed after Close,
// ErrGoodbye if the broker said goodbye, a *BrokerError if it reported an error.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Types returns the types that the client knows: those of the protocol, those it has published or
// subscribed to, and those that the broker has described.
func (c *Client) Types() *schema.Registry { return c.registry }

// end ends the connection with an error, unless it has ended already.
func (c *Client) end(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
		c.state = closed
	}
	err = c.err
	c.mu.Unlock()
	c.out.fail(err)
	_ = c.conn.Close()
}

// handlerTime is how long a handler is waited for when the connection has ended.
const handlerTime = 500 * time.Millisecond

// awaitHandler waits, after end, until the reading goroutine has noticed it. Only a handler that
// does not return keeps it from that.
func (c *Client) awaitHandler() error {
	timer := time.NewTimer(handlerTime)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		return ErrHandler
	}
}

// closeWriter is a stream whose one direction can be closed.
type closeWriter interface{ CloseWrite() error }

// Close says goodbye to the broker, waits until it has taken everything that was published and
// closed the connection, at most Options.CloseTimeout, and then closes it. It returns an error if
// not everything reached the broker; closing what is closed is none. No handler runs any more when
// it returns, unless the error wraps ErrHandler: a handler has not returned in time. Called by a
// handler, which it would wait for, it returns that error after the timeout.
func (c *Client) Close() error {
	c.mu.Lock()
	switch {
	case c.conn == nil:
		c.mu.Unlock()
		return nil
	case c.state == closed:
		c.mu.Unlock()
		return c.awaitHandler()
	}
	wasClosing := c.err != nil
	if !wasClosing {
		c.err = ErrClosed
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), c.options.CloseTimeout)
	defer cancel()
	var err error
	if !wasClosing {
		err = c.sayGoodbye(ctx)
	}
	if err == nil {
		select {
		case <-c.done:
		case <-ctx.Done():
			err = fmt.Errorf("closing a DOTS connection: %w", ctx.Err())
		}
	}
	c.end(ErrClosed)
	if handler := c.awaitHandler(); handler != nil {
		return errors.Join(err, handler)
	}
	return err
}

func (c *Client) sayGoodbye(ctx context.Context) error {
	var goodbye system.DotsMsgError
	goodbye.ErrorCode.Set(0)
	if err := c.send(&goodbye); err != nil {
		return err
	}
	c.out.finish(ErrClosed)
	if err := c.out.flush(ctx); err != nil {
		return err
	}
	if half, ok := c.conn.(closeWriter); ok {
		_ = half.CloseWrite() // an error means that the broker has closed already
	}
	return nil
}

type counters struct {
	receivedFrames, receivedBytes, unsubscribed, typeConflicts, typesRefused, keysRefused atomic.Uint64
}

// Counters returns how much has been received and sent so far.
func (c *Client) Counters() Counters {
	c.out.mu.Lock()
	frames, bytes := c.out.frames, c.out.bytes
	c.out.mu.Unlock()
	return Counters{
		ReceivedFrames: c.counters.receivedFrames.Load(), ReceivedBytes: c.counters.receivedBytes.Load(),
		SentFrames: frames, SentBytes: bytes,
		Unsubscribed:  c.counters.unsubscribed.Load(),
		KeysRefused:   c.counters.keysRefused.Load(),
		TypeConflicts: c.counters.typeConflicts.Load(), TypesRefused: c.counters.typesRefused.Load(),
	}
}
