package dotstool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/recording"
	"correlator/dots/value"
)

// startBroker starts a broker that has a room, and returns its endpoint and what ends it.
func startBroker(t *testing.T) (uri string, stop func()) {
	t.Helper()
	b := broker.New(broker.Options{})
	uri = "uds://" + filepath.Join(t.TempDir(), "s")
	_, err := b.ListenURI(uri)
	assert.NilError(t, err)
	stop = sync.OnceFunc(func() {
		assert.Check(t, b.Shutdown(context.Background()))
	})
	t.Cleanup(stop)
	c, err := client.Dial(t.Context(), uri, client.Options{})
	assert.NilError(t, err)
	defer c.Close()
	o := client.Dynamic{Object: object(t, room, map[string]any{"id": uint64(7)})}
	assert.NilError(t, c.PublishProperties(t.Context(), o, value.PropertySet(2)))
	assert.NilError(t, c.Ping(t.Context()))
	return uri, stop
}

// stuckWriter takes nothing, as a pipe that nobody reads.
type stuckWriter struct {
	stuck func() // called by the first Write
	end   chan struct{}
}

func (w *stuckWriter) Write([]byte) (int, error) {
	w.stuck()
	<-w.end
	return 0, io.ErrClosedPipe
}

// A signal ends commands whose output nobody reads.
func TestInterruptStuckOutput(t *testing.T) {
	uri, _ := startBroker(t)
	guest := Guest{Endpoint: uri}
	for name, run := range map[string]func(context.Context, io.Writer) error{
		"watch JSON": func(ctx context.Context, out io.Writer) error {
			return (&Watch{Guest: guest, Types: []string{"Room"}, Notes: io.Discard}).JSON(ctx, out)
		},
		"watch": func(ctx context.Context, out io.Writer) error {
			w := &stuckAfter{w: out} // the first drawing succeeds
			return (&Watch{Guest: guest, Types: []string{"Room", "DotsClient"}, Notes: io.Discard}).Table(ctx, w)
		},
		"record": func(ctx context.Context, out io.Writer) error {
			return (&Record{Guest: guest, File: "-", Stdout: out, Notes: io.Discard}).Run(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &stuckWriter{stuck: sync.OnceFunc(cancel), end: make(chan struct{})}
			defer close(out.end)
			done := make(chan error, 1)
			go func() { done <- run(ctx, out) }()
			if name == "watch" {
				other, err := client.Dial(t.Context(), uri, client.Options{}) // which changes the table
				assert.Check(t, err)
				defer other.Close()
				poll(ctx, t, other)
			}
			err := <-done
			assert.Check(t, errors.Is(err, errStuck) == (name != "watch JSON"), err)
		})
	}
}

// poll publishes until the context ends.
func poll(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	for n := uint64(0); ctx.Err() == nil; n++ {
		o := client.Dynamic{Object: object(t, room, map[string]any{"id": n % 8})}
		assert.NilError(t, c.PublishProperties(t.Context(), o, value.PropertySet(2)))
		assert.NilError(t, c.Ping(t.Context()))
	}
}

// stuckAfter takes one Write.
type stuckAfter struct {
	w     io.Writer
	wrote bool
}

func (w *stuckAfter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.wrote = true
		return len(p), nil
	}
	return w.w.Write(p)
}

// Waiting for input ends with a signal, and with the broker; what was read is published.
func TestInterruptInput(t *testing.T) {
	var header bytes.Buffer
	w, err := recording.NewWriter(&header, recording.Header{})
	assert.NilError(t, err)
	assert.NilError(t, w.Flush())
	type command func(ctx context.Context, uri string, in io.Reader) error
	publish := func(ctx context.Context, uri string, in io.Reader) error {
		return (&Publish{Guest: Guest{Endpoint: uri}, Type: "Room"}).Run(ctx, Lines(in))
	}
	replay := func(ctx context.Context, uri string, in io.Reader) error {
		return (&Replay{Guest: Guest{Endpoint: uri}, File: "-", Stdin: in, Speed: 1, Notes: io.Discard}).Run(ctx)
	}
	for _, test := range []struct {
		name  string
		run   command
		input string
		died  bool // it is the broker that ends
	}{
		{"publish", publish, `{"id":9}` + "\n", false}, {"publish without broker", publish, `{"id":9}` + "\n", true},
		{"replay", replay, header.String(), false}, {"replay without broker", replay, header.String(), true},
		{"replay of nothing", replay, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			uri, stop := startBroker(t)
			in, out := io.Pipe()
			defer out.Close() //nolint:errcheck // a test
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- test.run(ctx, uri, in) }()
			_, err := io.WriteString(out, test.input)
			assert.NilError(t, err)
			if !test.died {
				cancel()
				err := <-done
				assert.Check(t, err)
				return
			}
			stop()
			err = <-done
			assert.Check(t, err != nil, "no error though the broker is gone")
		})
	}
}

// A signal while connecting is no failure to connect, and no success of what is done once.
func TestInterruptConnecting(t *testing.T) {
	uri := "uds://" + filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", strings.TrimPrefix(uri, "uds://")) // which says nothing
	assert.NilError(t, err)
	defer l.Close() //nolint:errcheck // a test
	guest := Guest{Endpoint: uri}
	for name, test := range map[string]struct {
		run  func(ctx context.Context) error
		want error
	}{
		"publish": {func(ctx context.Context) error {
			return (&Publish{Guest: guest, Type: "Room"}).Run(ctx, One("{}"))
		}, ErrInterrupted},
		"describe": {func(ctx context.Context) error {
			_, err := Describe(ctx, guest, nil)
			return err
		}, ErrInterrupted},
		"watch": {func(ctx context.Context) error {
			return (&Watch{Guest: guest, Types: []string{"Room"}, Notes: io.Discard}).JSON(ctx, io.Discard)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- test.run(ctx) }()
			conn, err := l.Accept()
			assert.NilError(t, err)
			defer conn.Close() //nolint:errcheck // a test
			cancel()
			err = <-done
			assert.Check(t, errors.Is(err, test.want), "%v instead of %v", err, test.want)
		})
	}
}
