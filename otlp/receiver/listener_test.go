package receiver

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/otlp"
)

// A connection beyond the limit replaces the one that has been idle the longest, and is counted.
func TestConnections(t *testing.T) {
	l := openLab(t, Config{})
	dial := func() net.Conn {
		c, err := net.Dial("unix", l.Addr().String())
		assert.NilError(t, err)
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	body, _ := sound(t, otlp.Traces)
	first := dial()
	testenv.Poll(t, patience, "one is connected", func() bool { return l.Status().Connections == 1 })
	for range maxConnections - 1 {
		dial()
	}
	testenv.Poll(t, patience, "all are connected", func() bool { return l.Status().Connections == maxConnections })
	l.send(otlp.Traces, body)
	_, err := io.Copy(io.Discard, first)
	assert.Check(t, err == nil || errors.Is(err, syscall.ECONNRESET), "the first: %v", err)
	s := l.Status()
	assert.Check(t, s.Connections == maxConnections && s.RefusedConnections == 1 && s.LastError == nil, "%+v", s)
}

// faulty is a listener whose Accept fails at first.
type faulty struct {
	net.Listener
	errs chan error
}

func (f *faulty) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.Listener.Accept()
	}
}

// Errors of accept are counted and in the status, and accept is retried.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		oneP(t)
		pipe := bufconn.Listen(1 << 20)
		f := &faulty{Listener: pipe, errs: make(chan error, 1)}
		f.errs <- syscall.EPERM
		b := &bubble{TB: t, store: &store{}, listener: pipe}
		b.Receiver = serve(&Config{}, f, b.store)
		defer b.Shutdown(context.Background())
		body, _ := sound(t, otlp.Traces)
		_, err := export(b.dial(), otlp.Traces, body)
		assert.Check(t, err)
		s := b.Status()
		assert.Check(t, s.LastError.Message == syscall.EPERM.Error() && !s.LastError.At.IsZero() && s.Connections == 1,
			"%+v", s)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(b.Receiver)
		families, err := registry.Gather()
		assert.NilError(t, err)
		counted := 0.0
		for _, f := range families {
			if f.GetName() == "correlator_otlp_receiver_accept_errors_total" {
				counted += f.Metric[0].GetCounter().GetValue()
			}
		}
		assert.Check(t, counted == 1, "%v errors are counted", counted)
	})
}

// Connections that have sent nothing, or half a preface, delay a shutdown no longer than others.
func TestShutdownSilent(t *testing.T) {
	for _, preface := range []string{"", "PRI * HT"} {
		synctest.Test(t, func(t *testing.T) {
			b := openBubble(t)
			conn, err := b.listener.DialContext(context.Background())
			assert.NilError(t, err)
			defer conn.Close()
			go io.Copy(io.Discard, conn)
			_, err = io.WriteString(conn, preface)
			assert.NilError(t, err)
			synctest.Wait()
			start := time.Now()
			if err := b.Shutdown(context.Background()); err != nil || time.Since(start) > lingerTimeout {
				t.Errorf("%v, after %v", err, time.Since(start))
			}
			n := b.Status().Connections
			assert.Check(t, n == 0, "%d connections are left", n)
		})
	}
}

// Connections that send nothing, or are idle, are closed after a timeout.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		start := time.Now()
		silent, err := b.listener.DialContext(context.Background())
		assert.NilError(t, err)
		_, err = io.Copy(io.Discard, silent)
		assert.Check(t, err == nil || err == io.ErrClosedPipe, err)
		took := time.Since(start)
		assert.Check(t, took == handshakeTimeout, "it was closed after %v, want %v", took, handshakeTimeout)
		body, _ := sound(t, otlp.Traces)
		conn := b.dial()
		for range 3 {
			_, err := export(conn, otlp.Traces, body)
			assert.Check(t, err)
			time.Sleep(idleTimeout - time.Second)
			n := b.Status().Connections
			assert.Check(t, n == 1, "%d connections", n)
		}
		time.Sleep(time.Minute)
		n := b.Status().Connections
		assert.Check(t, n == 0, "%d connections after %v", n, idleTimeout)
		_, err = export(conn, otlp.Traces, body)
		assert.Check(t, err)
		stalled, err := b.listener.DialContext(context.Background())
		assert.NilError(t, err)
		_, err = stalled.Write(append(opening(), call(1)[:20]...))
		assert.NilError(t, err)
		_, _ = io.Copy(io.Discard, stalled)
		synctest.Wait()
		strays := b.counters.strayCounts()[StrayMalformed]
		assert.Check(t, strays == 1, "a call that never got beyond its headers is counted %d times", strays)
	})
}

// Clients may send pings for keepalive.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t)
		conn := b.dial(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second,
			PermitWithoutStream: true}))
		body, _ := sound(t, otlp.Traces)
		_, err := export(conn, otlp.Traces, body)
		assert.Check(t, err)
		time.Sleep(idleTimeout / 2)
		s := conn.GetState()
		assert.Check(t, s == connectivity.Ready && b.Status().Connections == 1, "the connection is %v", s)
	})
}

// The status has the address and the counts.
func TestStatus(t *testing.T) {
	l := openLab(t, Config{})
	body := encode(t, traceRequest(aSpan("a"), badSpan(), aSpan("b")))
	l.send(otlp.Traces, body)
	l.refusal(otlp.Traces, body[:len(body)-1])
	l.store.err = otlp.ErrUnsupported
	l.refusal(otlp.Metrics, encode(t, metricRequest(gauge(1, 2))))
	s := l.Status()
	assert.Check(t, s.Address == l.Addr().String() && filepath.IsAbs(s.Address), "%+v", s)
	want := Status{Address: s.Address, Connections: 1, Signals: []Signal{
		{Signal: "traces", Received: 4, PassedOn: 2, Rejected: 1, Refused: 1},
		{Signal: "metrics", Received: 2, Refused: 2}, {Signal: "profiles"},
	}}
	testenv.Poll(t, patience, "nothing is in work", func() bool { return l.Status().InWork == 0 })
	s.InWork = 0
	assert.DeepEqual(t, s, want)
}
