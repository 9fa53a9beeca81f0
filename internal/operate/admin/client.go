package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var errNoAgent = errors.New("no agent answers")

const (
	// statusTimeout is for the whole response. An agent takes milliseconds, and seconds where it gets
	// no CPU; one that takes this long hangs.
	statusTimeout = 15 * time.Second

	// maxStatusBytes bounds what is read: 9000 processes, each with texts of 1 KiB, are some 20 MB.
	maxStatusBytes = 64 << 20
)

// Client is a client of a running agent.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client for an admin socket. It connects for each request.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout:   statusTimeout,
	}}
}

// Status requests the agent's status. When none runs the error is errNoAgent, with a remedy.
func (c *Client) Status(ctx context.Context) (status Status, err error) {
	err = c.get(ctx, "/status", maxStatusBytes, &status)
	return status, err
}

func (c *Client) get(ctx context.Context, path string, maxBytes int64, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://correlator"+path, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return c.refused(response)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxBytes)).Decode(into); err != nil {
		return c.explain(fmt.Errorf("reading the answer: %w", err))
	}
	return nil
}

// refused returns why the agent did not answer, which it says itself, or it is another version.
func (c *Client) refused(response *http.Response) error {
	const maxReason = 1024
	reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
	if response.Header.Get(reasonHeader) != "" {
		return errors.New(strings.TrimSpace(string(reason)))
	}
	return fmt.Errorf("asking the agent at %s: %s", c.path, response.Status)
}

// explain adds what to do when a request failed.
func (c *Client) explain(err error) error {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w at %s: there is no such socket. Is \"correlator run\" running, with this "+
			"--admin-socket?", errNoAgent, c.path)
	case errors.Is(err, unix.ECONNREFUSED) && !c.isSocket():
		return fmt.Errorf("%w at %s: it is no socket", errNoAgent, c.path)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w at %s: nobody listens there any more; the agent was killed", errNoAgent, c.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w at %s: only the user that it runs as, usually root, may ask: %w", errNoAgent, c.path,
			unix.EACCES)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w at %s within %v: it hangs, or the machine does", errNoAgent, c.path, statusTimeout)
	}
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err // without the URL, which is of no use
	}
	return fmt.Errorf("asking the agent at %s: %w", c.path, err)
}

// isSocket reports whether the path, or what a symbolic link there leads to, is a socket. A file
// that is gone meanwhile may have been one.
func (c *Client) isSocket() bool {
	info, err := os.Stat(c.path)
	return err != nil || info.Mode().Type() == os.ModeSocket
}
