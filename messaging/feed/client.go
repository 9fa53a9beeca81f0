package feed

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// flushTimeout is how long Flush waits for an agent whose queue is full. An agent reads at
	// once, so this one has trouble; a sampler should not get into it as well.
	flushTimeout = time.Second

	// sendBufferBytes lets full datagrams wait however low the system's default is.
	sendBufferBytes = 3 * maxDatagramBytes
)

// Client feeds samples to an agent. It is used by one goroutine at a time, and outlives the
// agent: once that is back, so is the connection.
type Client struct {
	path     string
	timeout  time.Duration
	conn     *net.UnixConn // nil after an error
	records  []Record
	datagram []byte
}

// Dial connects to the feed socket at path, which root alone may do. The caller must Close.
func Dial(path string) (*Client, error) {
	c := &Client{path: path, timeout: flushTimeout}
	if err := c.connect(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Client) connect() (err error) {
	c.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: c.path, Net: "unixgram"})
	if err != nil {
		c.conn = nil
		return fmt.Errorf("connecting to feed socket: %w", err)
	}
	if err := c.conn.SetWriteBuffer(sendBufferBytes); err != nil {
		return errors.Join(fmt.Errorf("setting send buffer: %w", err), c.hangUp())
	}
	return nil
}

func (c *Client) hangUp() error {
	conn := c.conn
	c.conn = nil
	return conn.Close()
}

// Add takes a record for the next datagram, and is Flush when that is full. Records without
// context should not wait: the agent looks at what their threads do when it gets them. A record
// without a time gets the present one, so that what waits on the way shows its age.
func (c *Client) Add(r Record) error {
	if r.Count == 0 {
		return fmt.Errorf("%w: no samples", ErrCount)
	}
	if r.TimeNs == 0 {
		r.TimeNs = monotonicNs()
	}
	c.records = append(c.records, r)
	if len(c.records) < MaxRecords {
		return nil
	}
	return c.Flush()
}

// Flush sends what was added. It waits up to a second while the agent's queue is full. After
// an error what was added is lost, for the sampler to count: sent later, to the agent's
// successor, it would be taken for new. The next Flush tries to connect again.
func (c *Client) Flush() error {
	if len(c.records) == 0 {
		return nil
	}
	var err error
	c.datagram, err = AppendDatagram(c.datagram[:0], c.records)
	c.records = c.records[:0]
	if err != nil {
		return err
	}
	if c.conn == nil {
		if err := c.connect(); err != nil {
			return err
		}
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
	if _, err := c.conn.Write(c.datagram); err != nil {
		return errors.Join(fmt.Errorf("feeding: %w", err), c.hangUp())
	}
	return nil
}

// Close flushes and ends the connection.
func (c *Client) Close() error {
	err := c.Flush()
	if c.conn != nil {
		err = errors.Join(err, c.hangUp())
	}
	return err
}

func monotonicNs() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0 // now, to whom it is sent
	}
	return uint64(now.Nano())
}
