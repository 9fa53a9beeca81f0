package feed

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// flushTimeout is how long Flush waits for an agent whose queue is full. An agent normally
	// reads at once; if this one does not, it must not hold up the sampler.
	flushTimeout = time.Second

	// sendBufferBytes is room for full datagrams, whatever the system's default is.
	sendBufferBytes = 3 * maxDatagramBytes
)

// Client feeds samples to an agent. It is for one goroutine at a time. When the agent restarts, the
// client connects again.
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

// Add adds a record to the next datagram, and calls Flush when that is full. Records without
// context should be flushed at once: the agent reads the context of their threads when it receives
// them. A record without a time gets the present one, so that the agent knows its age.
func (c *Client) Add(r Record) error {
	if r.Count == 0 {
		return fmt.Errorf("%w: no samples", errCount)
	}
	if r.TimeNs == 0 {
		r.TimeNs = monotonicNs()
	}
	c.records = append(c.records, r)
	if len(c.records) < maxRecords {
		return nil
	}
	return c.Flush()
}

// Flush sends the records that were added. It waits up to a second while the agent's queue is full.
// After an error these records are lost, which the caller should count: the next agent would take
// them for new. The next Flush tries to connect again.
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
	err = c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
	if err == nil {
		_, err = c.conn.Write(c.datagram)
	}
	if err != nil {
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
		return 0 // the agent's time of receipt
	}
	return uint64(now.Nano())
}
