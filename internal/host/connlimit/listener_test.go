package connlimit

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// script is a listener whose Accept returns what it is sent, and an error of its own once it is closed.
type script struct {
	net.Listener
	next   chan any // a net.Conn or an error
	closed chan struct{}
}

func (s *script) Accept() (net.Conn, error) {
	select {
	case <-s.closed:
		return nil, errors.New("closed")
	case next := <-s.next:
		if err, ok := next.(error); ok {
			return nil, err
		}
		return next.(net.Conn), nil
	}
}

func (s *script) Close() error { close(s.closed); return nil }

func newScript() *script { return &script{next: make(chan any, 100), closed: make(chan struct{})} }

// After errors, permanent ones included, accept is tried again, after delays that double up to a second
// and begin anew with the next connection. Each is reported; connections without room are closed.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, table := newScript(), New(1)
		l := NewListener(s, table)
		failed, refused := 0, []string(nil)
		l.Failed = func(error) { failed++ }
		l.Refused = func(peer net.Addr) { refused = append(refused, peer.(*net.TCPAddr).IP.String()) }
		accepted := make(chan *Conn, 10)
		ended := make(chan error)
		go func() { ended <- l.Serve(func(c *Conn) { c.Begin(); accepted <- c }) }()
		start := time.Now()
		for range 9 {
			s.next <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		s.next <- syscall.EPERM
		s.next <- &fake{address: few, closed: make(chan struct{})}
		first := <-accepted
		want := (5+10+20+40+80+160+320+640)*time.Millisecond + 2*time.Second
		took := time.Since(start)
		assert.Check(t, took == want, "a connection after 10 errors is accepted after %v, not %v", took, want)
		if f := l.Failures(); f.Count != 10 || f.Last != syscall.EPERM.Error() || f.At.IsZero() {
			t.Errorf("%+v", f)
		}
		none := &fake{address: many, closed: make(chan struct{})}
		s.next <- syscall.EMFILE
		s.next <- none // delays begin anew with this one, too
		<-none.closed
		s.next <- syscall.EMFILE
		synctest.Wait()
		start = time.Now()
		first.Close()
		s.next <- &fake{address: few, closed: make(chan struct{})}
		if <-accepted; time.Since(start) != backoff.Min {
			t.Errorf("a connection after one error is accepted after %v", time.Since(start))
		}
		l.Close()
		err := <-ended
		assert.Check(t, errors.Is(err, net.ErrClosed), err)
		assert.Check(t, failed == 12 && slices.Equal(refused, []string{many}), "%d errors, %q refused", failed, refused)
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || l.Failures().Count != 12 {
			t.Errorf("after Close: %v, %d failures", err, l.Failures().Count)
		}
	})
}

// Close ends the wait after an error, and another who closes the listener ends Accept, too.
func TestListenerCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{syscall.EMFILE, net.ErrClosed} {
			s := newScript()
			l := NewListener(s, New(1))
			s.next <- err
			ended := make(chan error)
			go func() {
				_, err := l.Accept()
				ended <- err
			}()
			synctest.Wait()
			start := time.Now()
			if err == syscall.EMFILE {
				l.Close()
			}
			if err := <-ended; !errors.Is(err, net.ErrClosed) || time.Since(start) > 0 {
				t.Errorf("%v, after %v", err, time.Since(start))
			}
		}
	})
}
