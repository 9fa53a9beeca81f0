package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// deadline bounds every wait.
const deadline = 20 * time.Second

// service is a Source whose state the test sets.
type service struct {
	mu                        sync.Mutex
	started, health, ready    error
	startedCalls, healthCalls int
}

func (s *service) Started() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startedCalls++
	return s.started
}

func (s *service) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

func (s *service) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.healthCalls++
	return s.health
}

func (s *service) set(health, ready error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started, s.health, s.ready = nil, health, ready
}

// counted waits until a counter has grown by more.
func (s *service) counted(t *testing.T, which *int, more int) {
	t.Helper()
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return *which
	}
	end := count() + more
	testenv.Poll(t, deadline, "calls", func() bool { return count() >= end })
}

// manager plays systemd: it has the socket, and what was received.
type manager struct {
	t      *testing.T
	socket *net.UnixConn
}

// listen binds a socket and sets the environment for it, with a watchdog of that interval, if any.
func listen(t *testing.T, path string, watchdog time.Duration) *manager {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	assert.NilError(t, err)
	t.Cleanup(func() { socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	if watchdog > 0 {
		t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	}
	return &manager{t, socket}
}

// next returns the lines of the next message.
func (m *manager) next() []string {
	m.t.Helper()
	buf := make([]byte, 4096)
	m.socket.SetReadDeadline(time.Now().Add(deadline))
	n, err := m.socket.Read(buf)
	assert.NilError(m.t, err)
	return strings.Split(string(buf[:n]), "\n")
}

// until returns all lines up to and including line.
func (m *manager) until(line string) (lines []string) {
	m.t.Helper()
	for !slices.Contains(lines, line) {
		lines = append(lines, m.next()...)
	}
	return lines
}

// start runs Notify until the returned function is called, which returns its error.
func start(t *testing.T, source Source) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Notify(ctx, source) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// What systemd receives during the life of a service.
func TestNotify(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"), 20*time.Millisecond)
	s := &service{started: errors.New("first sweep is not done\nREADY=1")}
	stop := start(t, s)
	if first := m.next(); !slices.Equal(first, []string{"STATUS=starting: first sweep is not done READY=1"}) {
		t.Errorf("sent first: %q", first)
	}
	s.set(nil, nil)
	ready := m.next()
	assert.Check(t, slices.Equal(ready, []string{"READY=1", "STATUS=serving"}), "sent when ready: %q", ready)
	for range 3 {
		fed := m.next()
		assert.Check(t, slices.Equal(fed, []string{"WATCHDOG=1"}), "sent while healthy: %q", fed)
	}

	s.set(nil, errors.New("half blind"))
	m.until("STATUS=not ready: half blind") // and is kept alive
	s.set(nil, nil)
	m.until("STATUS=serving")

	s.set(errors.New("sweeps hang"), errors.New("sweeps hang"))
	m.until("STATUS=not healthy: sweeps hang")
	s.counted(t, &s.healthCalls, 3)
	s.set(nil, nil)
	if back := m.next(); !slices.Equal(back, []string{"WATCHDOG=1", "STATUS=serving"}) {
		t.Errorf("sent between trouble and health: %q", back)
	}

	assert.Check(t, stop())
	end := m.until("STOPPING=1")
	assert.Check(t, !slices.Contains(end, "READY=1") && slices.Contains(end, "STATUS=stopping"),
		"sent at the end: %q", end)
}

// Without a watchdog, or with one for another process, there are no keep-alives. The socket may be
// abstract.
func TestNotifyNoWatchdog(t *testing.T) {
	for name, pid := range map[string]int{"none": os.Getpid(), "for its parent": os.Getppid()} {
		t.Run(name, func(t *testing.T) {
			watchdog := time.Duration(0)
			if pid != os.Getpid() {
				watchdog = 2 * time.Millisecond
			}
			m := listen(t, fmt.Sprintf("@correlator-notify-%d", os.Getpid()), watchdog)
			t.Setenv("WATCHDOG_PID", strconv.Itoa(pid))
			stop := start(t, &service{})
			ready := m.next()
			assert.Check(t, stop())
			end := m.next()
			assert.Check(t, ready[0] == "READY=1" && end[0] == "STOPPING=1", "sent %q and %q", ready, end)
		})
	}
}

// An error is returned at the end. READY=1 is sent as soon as that is possible.
func TestNotifyLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	t.Setenv("NOTIFY_SOCKET", path)
	s := &service{}
	stop := start(t, s)
	s.counted(t, &s.startedCalls, 2) // the message after the first call has been sent
	m := listen(t, path, 0)
	m.until("READY=1")
	err := stop()
	assert.Check(t, errors.Is(err, os.ErrNotExist), "ended with %v", err)
}

// Without a service manager there is nothing to do.
func TestNotifyNobody(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	assert.Check(t, start(t, &service{})())
}

func TestNotifyWrongInterval(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"), 0)
	t.Setenv("WATCHDOG_USEC", "soon")
	stop := start(t, &service{})
	m.until("READY=1")
	if err := stop(); err == nil || !strings.Contains(err.Error(), "reading the watchdog's interval: ") {
		t.Errorf("ended with %v", err)
	}
}
