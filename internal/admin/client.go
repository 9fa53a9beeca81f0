package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoAgent: nobody answers at the socket.
var ErrNoAgent = errors.New("no agent answers")

const (
	// askTimeout is for the whole answer. An agent takes milliseconds; one that takes this long hangs.
	askTimeout = 5 * time.Second

	// maxStatusBytes bounds what is read: 9000 processes, each with texts of 1 KiB, are some 20 MB.
	maxStatusBytes = 64 << 20
)

// Client asks a running agent.
type Client struct{ path string }

// NewClient returns a client for an admin socket. It connects when it is asked to.
func NewClient(path string) *Client { return &Client{path: path} }

// Status asks for the agent's status. The error is ErrNoAgent, with what to do about it, when none runs.
func (c *Client) Status(ctx context.Context) (status Status, err error) {
	timed, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	response, err := c.ask(timed)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return status, c.explain(err)
	}
	if response.StatusCode != http.StatusOK {
		return status, fmt.Errorf("asking the agent at %s: %s", c.path, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		return status, fmt.Errorf("reading the answer of the agent at %s: %w", c.path, err)
	}
	return status, nil
}

// ask sends the request and reads the head of the response. The body is there until ctx ends. (A http.Client
// brings along HTTP's connection pools, proxies and redirects: a quarter of a megabyte for one GET.)
func (c *Client) ask(ctx context.Context) (*http.Response, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, "GET /status HTTP/1.1\r\nHost: correlator\r\nConnection: close\r\n\r\n"); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxStatusBytes)), nil)
}

// explain says what to do when the agent could not be asked.
func (c *Client) explain(err error) error {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w at %s: there is no such socket. Is \"correlator run\" running, with this --admin-socket?", ErrNoAgent, c.path)
	case errors.Is(err, unix.ECONNREFUSED) && !c.isSocket():
		return fmt.Errorf("%w at %s: it is no socket", ErrNoAgent, c.path)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w at %s: nobody listens there any more; the agent was killed", ErrNoAgent, c.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w at %s: only the user that it runs as, usually root, may ask: %w", ErrNoAgent, c.path, unix.EACCES)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w at %s within %v: it hangs, or the machine does", ErrNoAgent, c.path, askTimeout)
	}
	return fmt.Errorf("asking the agent at %s: %w", c.path, err)
}

// isSocket is said of what a symbolic link leads to: connecting follows it.
func (c *Client) isSocket() bool {
	info, err := os.Stat(c.path)
	return err != nil || info.Mode().Type() == os.ModeSocket // gone meanwhile: it may have been one
}
