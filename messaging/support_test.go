package messaging

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
)

// patience is how long a test waits for a state; only a failing test takes that long.
const patience = 20 * time.Second

// manualClock is a clock that only the test advances.
type manualClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*manualTimer
}

type manualTimer struct {
	clock *manualClock
	at    time.Time // zero when it is not armed
	f     func()
}

func newManualClock() *manualClock { return &manualClock{now: time.Unix(1_700_000_000, 0)} }

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) AfterFunc(d time.Duration, f func()) timer {
	t := &manualTimer{clock: c, f: f}
	c.mu.Lock()
	c.timers = append(c.timers, t)
	c.mu.Unlock()
	t.Reset(d)
	return t
}

func (t *manualTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	armed := !t.at.IsZero()
	t.at = t.clock.now.Add(d)
	return armed
}

func (t *manualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	armed := !t.at.IsZero()
	t.at = time.Time{}
	return armed
}

// jump advances the time without running timers.
func (c *manualClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// advance advances the time and runs the timers that are due.
func (c *manualClock) advance(d time.Duration) {
	c.jump(d)
	for {
		f := c.due()
		if f == nil {
			return
		}
		f()
	}
}

func (c *manualClock) due() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		if !t.at.IsZero() && !t.at.After(c.now) {
			t.at = time.Time{}
			return t.f
		}
	}
	return nil
}

// newTestPoller returns a poller that is closed after the senders that the test closes.
func newTestPoller(t testing.TB) *Poller {
	t.Helper()
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// receiver is a bound socket, in the role of an APM agent.
type receiver struct {
	t    testing.TB
	fd   int
	path string
}

func listen(t testing.TB) *receiver {
	t.Helper()
	return listenAt(t, filepath.Join(t.TempDir(), "socket"))
}

func listenAt(t testing.TB, path string) *receiver {
	t.Helper()
	r := &receiver{t: t, fd: bindSocket(t, unix.SOCK_DGRAM, path), path: path}
	t.Cleanup(r.close)
	return r
}

func bindSocket(t testing.TB, kind int, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatalf("binding %s: %v", path, err)
	}
	return fd
}

func (r *receiver) close() {
	if r.fd >= 0 {
		unix.Close(r.fd)
		r.fd = -1
	}
}

// read receives one message, if there is one.
func (r *receiver) read() (Message, bool) {
	r.t.Helper()
	var buf [1024]byte
	n, err := unix.Read(r.fd, buf[:])
	if errors.Is(err, unix.EAGAIN) {
		return nil, false
	}
	if err != nil {
		r.t.Fatalf("receiving: %v", err)
	}
	m, err := decode(buf[:n])
	if err != nil {
		r.t.Fatal(err)
	}
	return m, true
}

// expect waits for exactly these messages, one after the other.
func (r *receiver) expect(want ...Message) {
	r.t.Helper()
	for _, w := range want {
		var got Message
		testenv.Poll(r.t, patience, "a message", func() (ok bool) {
			got, ok = r.read()
			return ok
		})
		if got != w {
			r.t.Fatalf("received %+v, want %+v", got, w)
		}
	}
}

// expectNothing checks that no message has arrived.
func (r *receiver) expectNothing() {
	r.t.Helper()
	if m, ok := r.read(); ok {
		r.t.Fatalf("received %+v, want nothing", m)
	}
}

// fill sends datagrams to the receiver from another socket until its queue is full, and returns how
// many fit.
func (r *receiver) fill() int {
	r.t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: r.path})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for n := 0; ; n++ {
		err := unix.Send(fd, appendCorrelation(nil, filler), unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

var filler = correlation{Key: keyOf(0xffff), Count: 1}

func (r *receiver) dial() *Socket {
	r.t.Helper()
	root, err := os.Open("/")
	if err != nil {
		r.t.Fatal(err)
	}
	defer root.Close()
	s, err := Dial("/proc", root, r.path, ourCredentials(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// openRoot opens a directory as the root of a process.
func openRoot(t testing.TB, dir string) *os.File {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("opening %s: %v", dir, err)
	}
	f := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { f.Close() })
	return f
}

func ourCredentials(t testing.TB) Credentials {
	t.Helper()
	groups, err := unix.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	creds := Credentials{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	for _, g := range groups {
		creds.Groups = append(creds.Groups, uint32(g))
	}
	return creds
}
