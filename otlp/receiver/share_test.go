package receiver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/otlp"
)

// attacker is the user who attacks.
const attacker = 1000

// dialAs connects as another user, as the kernel sees it.
func dialAs(uid int, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			err = errno
			return
		}
		conn, err = net.Dial(network, address)
	}()
	<-done
	return conn, err
}

// open is a receiver to which every user may connect, and how.
type open struct {
	*Receiver
	network string
}

// openToAll returns a receiver on a Unix socket or on loopback.
func openToAll(t *testing.T, network string) *open {
	t.Helper()
	testenv.NeedRoot(t)
	c := Config{Listen: "127.0.0.1:0"}
	if network == "unix" {
		dir, err := os.MkdirTemp("/tmp", "otlp")
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		assert.NilError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		c = Config{Listen: "unix:" + filepath.Join(dir, "otlp.sock"), SocketMode: 0o666}
	}
	r, err := Open(c, &store{})
	assert.NilError(t, err)
	t.Cleanup(func() { r.Shutdown(testenv.Ended()) })
	return &open{r, network}
}

// dial connects as a user.
func (o *open) dial(t *testing.T, uid int) net.Conn {
	t.Helper()
	conn, err := dialAs(uid, o.network, o.Addr().String())
	assert.NilError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// sendAll sends requests that must all be accepted, each on a connection of its own, which stays
// open. On a slow machine one may have to be sent again: the receiver asks for that.
func (o *open) sendAll(t *testing.T, requests int) {
	t.Helper()
	target := o.Addr().String()
	if o.network == "unix" {
		target = "unix:" + target
	}
	body, _ := sound(t, otlp.Traces)
	for range requests {
		conn := dial(t, target)
		testenv.Poll(t, patience, "a request to be taken", func() bool {
			_, err := export(conn, otlp.Traces, body)
			assert.Assert(t, err == nil || status.Code(err) == codes.Unavailable, err)
			return err == nil
		})
	}
}

// Whoever keeps all connections open keeps nobody out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			o := openToAll(t, network)
			for range maxConnections {
				_, err := o.dial(t, attacker).Write(opening())
				assert.NilError(t, err)
			}
			testenv.Poll(t, patience, "all are connected", func() bool {
				return o.Status().Connections == maxConnections
			})
			o.sendAll(t, 59)
		})
	}
}

// A user who opens connections in a loop takes none of another's, be they idle or not.
func TestConnectionsOfOneUser(t *testing.T) {
	o := openToAll(t, "unix")
	target := "unix:" + o.Addr().String()
	ours := dial(t, target)
	body, _ := sound(t, otlp.Traces)
	_, err := export(ours, otlp.Traces, body)
	assert.NilError(t, err)
	for range 3 * maxConnections {
		o.dial(t, attacker)
	}
	testenv.Poll(t, patience, "all are accepted", func() bool {
		return o.Status().RefusedConnections == 2*maxConnections+1
	})
	state := ours.GetState()
	_, err = export(ours, otlp.Traces, body)
	assert.Check(t, err)
	n := o.listener.conns.Counts()
	assert.Check(t, n.Refused == 0 && state.String() == "READY", "%+v, our connection is %v", n, state)
}

// Senders that begin as many calls as they can and never end one, again and again, keep no slot
// from others.
func TestSlowSendersMakeRoom(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			o := openToAll(t, network)
			ctx, cancel := context.WithCancel(context.Background())
			var attackers sync.WaitGroup
			defer attackers.Wait()
			defer cancel()
			for range maxOpen / maxStreams {
				transport := client(t, func(context.Context) (net.Conn, error) {
					return dialAs(attacker, network, o.Addr().String())
				})
				for range maxStreams {
					attackers.Go(func() {
						for ctx.Err() == nil {
							body := newTrickle(100, 1)
							if answer, err := post(ctx, t, transport, otlp.Traces.Method(), nil, body); err == nil {
								answer.Body.Close()
							}
						}
					})
				}
			}
			testenv.Poll(t, patience, "everything is taken", func() bool { return o.opened() == maxOpen })
			o.sendAll(t, 3)
			assert.Check(t, o.counters.snapshot()[otlp.Traces].refused[Slow] != 0, "no slow sender is counted")
		})
	}
}

// A panic is answered with INTERNAL, counted, and reported once.
func TestPanic(t *testing.T) {
	var reports atomic.Int32
	s := &store{}
	l := openLabWith(t, Config{OnPanic: func(value any, stack []byte) {
		reports.Add(1)
		assert.Check(t, value == "a defect" && strings.Contains(string(stack), "panicking"), "%v at %s", value, stack)
	}}, panicking{}, s)
	body, _ := sound(t, otlp.Traces)
	for range 3 {
		wantStatus(t, l.refusal(otlp.Traces, body), codes.Internal, false)
	}
	l.wantCounts(otlp.Traces, "items=3, refused_items panic=3, requests INTERNAL=3")
	n := reports.Load()
	assert.Check(t, n == 1, "reported %d times", n)
}

// panicking is a queue with a defect.
type panicking struct{}

func (panicking) EnqueueReceived(context.Context, *otlp.Batch) error { panic("a defect") }
