package admin

import (
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

	"correlator/internal/agent"
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
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client for an admin socket. It connects when it is asked to.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: askTimeout}}
}

// Status asks for the agent's status. The error is ErrNoAgent, with what to do about it, when none runs.
func (c *Client) Status(ctx context.Context) (status agent.Status, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://correlator/status", nil)
	if err != nil {
		return status, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return status, c.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return status, fmt.Errorf("asking the agent at %s: %s", c.path, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStatusBytes)).Decode(&status); err != nil {
		return status, fmt.Errorf("reading the answer of the agent at %s: %w", c.path, err)
	}
	return status, nil
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
