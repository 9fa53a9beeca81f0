package messaging

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// patience is how long a test waits for a state; only a failing test takes that long.
const patience = 20 * time.Second

// newTestPoller returns a poller that is closed after the senders that the test closes.
func newTestPoller(t testing.TB) *Poller {
	t.Helper()
	p, err := NewPoller()
	assert.NilError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// receiver is a bound socket, in the role of an APM agent.
type receiver struct {
	t    testing.TB
	fd   int
	path string
	pump func() // has senders send what there is room for, where nothing else does
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
	assert.NilError(t, err)
	assert.NilError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}), "binding %s", path)
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
	if n == 0 || errors.Is(err, unix.EAGAIN) { // 0: it is shut down
		return nil, false
	}
	assert.NilError(r.t, err, "receiving")
	m, err := decode(buf[:n])
	assert.NilError(r.t, err)
	return m, true
}

// expect waits for exactly these messages, one after the other.
func (r *receiver) expect(want ...Message) {
	r.t.Helper()
	for _, w := range want {
		got, ok := r.read()
		if !ok && r.pump != nil {
			r.pump()
		}
		testenv.Poll(r.t, patience, "a message", func() bool {
			if !ok {
				got, ok = r.read()
			}
			return ok
		})
		assert.Assert(r.t, got == w, "received %+v, want %+v", got, w)
	}
}

func (r *receiver) expectFillers(n int) {
	r.t.Helper()
	for range n {
		r.expect(filler)
	}
}

// expectNothing checks that no message has arrived.
func (r *receiver) expectNothing() {
	r.t.Helper()
	m, ok := r.read()
	assert.Assert(r.t, !ok, "received %+v, want nothing", m)
}

// readAll reads all messages that have arrived and returns how many samples they held.
func (r *receiver) readAll() (samples uint64) {
	r.t.Helper()
	for {
		m, ok := r.read()
		if !ok {
			return samples
		}
		if c, ok := m.(correlation); ok {
			samples += uint64(c.Count)
		}
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
	assert.NilError(r.t, err)
	for n := 0; ; n++ {
		err := unix.Send(fd, appendCorrelation(nil, filler), unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		assert.NilError(r.t, err)
	}
}

var filler = correlation{Key: keyOf(0xffff), Count: 1}

func (r *receiver) dial() *Socket {
	r.t.Helper()
	root, err := os.Open("/")
	assert.NilError(r.t, err)
	defer root.Close()
	s, err := Dial("/proc", root, r.path, ourCredentials(r.t))
	assert.NilError(r.t, err)
	return s
}

// openRoot opens a directory as the root of a process.
func openRoot(t testing.TB, dir string) *os.File {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	assert.NilError(t, err, "opening %s", dir)
	f := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { f.Close() })
	return f
}

func ourCredentials(t testing.TB) Credentials {
	t.Helper()
	groups, err := unix.Getgroups()
	assert.NilError(t, err)
	creds := Credentials{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	for _, g := range groups {
		creds.Groups = append(creds.Groups, uint32(g))
	}
	return creds
}
