package receiver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"strconv"

	"correlator/internal/host/sockfile"
)

const (
	// DefaultSocket is where the clients connect by default.
	DefaultSocket = "/tmp/oc-daemon.sock"
	// DefaultSocketMode lets the users of Config.Group connect: pools of PHP workers run as users
	// of their own.
	DefaultSocketMode fs.FileMode = 0o660
	// DefaultMaxConnections is enough for most hosts: there is one connection for each PHP worker.
	DefaultMaxConnections = 4096
	// DefaultBufferBytes keeps what arrives during seconds in which destinations take nothing.
	DefaultBufferBytes = 256 << 20
	// DefaultMaxTraceBytes is 30 times as large as 600 spans without attributes. The clients limit
	// neither the size of a trace nor its number of spans.
	DefaultMaxTraceBytes = 8 << 20

	// maxTraceBytes is the largest limit of a trace: a header that announces more is taken for
	// something else.
	maxTraceBytes = 64 << 20
	// minTraceBytes is the size that PHP applications get through without an extension on Linux.
	minTraceBytes = 64 << 10
	// minBufferBytes has room for the largest messages but traces, which are of 1 MiB, of a few
	// users at a time.
	minBufferBytes = 8 << 20
	// maxMaxConnections is the largest limit of connections: each takes a descriptor.
	maxMaxConnections = 1 << 20
)

// Config is where a receiver listens and what it accepts. Values of 0 stand for the defaults.
type Config struct {
	// Socket is the path of the socket.
	Socket string
	// SocketMode is the mode of the socket; clients need the right to write.
	SocketMode fs.FileMode `key:"socket-mode"`
	// Group is the name or number of the group that owns the socket; if it is empty, the group of
	// this process does.
	Group string `key:"socket-group"`

	// MaxConnections limits the open connections. A further one takes the place of another, of the
	// user that has the most.
	MaxConnections int `key:"max-connections"`
	// BufferBytes limits the memory for messages that are not complete, or wait.
	BufferBytes int64 `key:"buffer-bytes" unit:"bytes"`
	// MaxTraceBytes limits the size of a message with spans.
	MaxTraceBytes int `key:"max-trace-bytes" unit:"bytes"`
}

// Validate checks what can be checked without listening.
func (c *Config) Validate() error {
	if c.Socket == "" {
		return errors.New("socket without a path")
	}
	if err := sockfile.CheckPath(c.Socket); err != nil {
		return fmt.Errorf("socket %s: %w", c.Socket, err)
	}
	if c.SocketMode&^fs.ModePerm != 0 {
		return fmt.Errorf("socket mode %v: more than permissions", c.SocketMode)
	}
	if n := c.MaxConnections; n < 0 || n > maxMaxConnections {
		return fmt.Errorf("max-connections %d: not in 1 to %d", n, maxMaxConnections)
	}
	d := c.withDefaults()
	if n := d.MaxTraceBytes; n < minTraceBytes || n > maxTraceBytes {
		return fmt.Errorf("max-trace-bytes %d: not in %d to %d", n, minTraceBytes, maxTraceBytes)
	}
	// A message is in the budget twice while it is passed on, and a user gets a half at most.
	if smallest := max(minBufferBytes, 4*int64(d.MaxTraceBytes)); d.BufferBytes < smallest {
		return fmt.Errorf("buffer-bytes %d: less than %d, which the largest traces need", d.BufferBytes, smallest)
	}
	_, err := c.gid()
	return err
}

// connectionBytes is what a connection takes at most, besides what BufferBytes covers: for the
// goroutine, and for what is known of 32 processes.
const connectionBytes = 16 << 10

// MemoryBytes is the memory that a receiver takes at most, without that of Options.Stats and of the
// Queue.
func (c *Config) MemoryBytes() int64 {
	d := c.withDefaults()
	return d.BufferBytes + int64(d.MaxConnections)*connectionBytes + 4*requestBytes
}

// withDefaults returns the configuration with all defaults.
func (c *Config) withDefaults() Config {
	return Config{
		Socket: c.Socket, Group: c.Group,
		SocketMode:     cmp.Or(c.SocketMode, DefaultSocketMode),
		MaxConnections: cmp.Or(c.MaxConnections, DefaultMaxConnections),
		BufferBytes:    cmp.Or(c.BufferBytes, DefaultBufferBytes),
		MaxTraceBytes:  cmp.Or(c.MaxTraceBytes, DefaultMaxTraceBytes),
	}
}

// gid returns the number of the group that owns the socket, or sockfile.OwnGroup. A number needs no
// entry in the group database: one of a container has none on the host.
func (c *Config) gid() (int, error) {
	if c.Group == "" {
		return sockfile.OwnGroup, nil
	}
	if id, err := strconv.ParseUint(c.Group, 10, 31); err == nil {
		return int(id), nil
	}
	group, err := user.LookupGroup(c.Group)
	if err != nil {
		return 0, fmt.Errorf("socket group: %w", err)
	}
	id, err := strconv.Atoi(group.Gid)
	if err != nil {
		return 0, fmt.Errorf("socket group %s: %w", c.Group, err)
	}
	return id, nil
}

// ProbeGroup returns the error that Open would return because of the group of the socket.
func (c *Config) ProbeGroup() error {
	gid, err := c.gid()
	if err != nil {
		return err
	}
	return sockfile.ProbeGroup(c.Socket, gid)
}
