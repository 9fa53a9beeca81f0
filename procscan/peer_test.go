package procscan

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

// runConnect connects to a socket, says so, and runs until its standard input ends.
func runConnect() error {
	conn, err := net.Dial("unix", os.Args[1])
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// acceptPeer accepts the connection of a process that a command starts.
func acceptPeer(t *testing.T, flags uintptr) (*child.Process, *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
	cmd := child.Command(t, "connect", path)
	cmd.SysProcAttr.Cloneflags = flags
	p := child.StartReady(t, cmd, "")
	conn, err := l.Accept()
	assert.NilError(t, err)
	t.Cleanup(func() { conn.Close() })
	return p, conn.(*net.UnixConn)
}

// peerOf is Peer for a connection that was accepted at a time.
func peerOf(t *testing.T, conn *net.UnixConn, accepted time.Time) (h *Handle, err error) {
	t.Helper()
	raw, err := conn.SyscallConn()
	assert.NilError(t, err)
	assert.NilError(t, raw.Control(func(fd uintptr) { h, err = Peer("/proc", int(fd), accepted) }))
	if err == nil {
		t.Cleanup(func() { h.Close() })
	}
	return h, err
}

func TestPeer(t *testing.T) {
	for name, c := range map[string]struct {
		flags uintptr
		inner []int // pids below ours
	}{
		"our pid namespace":     {},
		"another pid namespace": {flags: syscall.CLONE_NEWPID, inner: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NeedRoot(t)
			p, conn := acceptPeer(t, c.flags)
			h, err := peerOf(t, conn, time.Now())
			assert.NilError(t, err)
			if want := identityOf(t, p.PID); h.Identity() != want {
				t.Errorf("peer %+v, want %+v", h.Identity(), want)
			}
			if pids, err := h.PIDs(); err != nil || !slices.Equal(pids, append([]int{p.PID}, c.inner...)) {
				t.Errorf("pids %v, %v, want %d and %v", pids, err, p.PID, c.inner)
			}
			p.Kill()
			_, err = h.PIDs()
			assert.Check(t, errors.Is(err, ErrGone), "pids after its exit: %v", err)
			held := child.Descriptors(t)
			h.Close()
			_, err = peerOf(t, conn, time.Now())
			assert.Check(t, errors.Is(err, ErrGone), "peer after its exit: %v", err)
			after := child.Descriptors(t)
			assert.Check(t, after == held-1, "%d descriptors with a handle, %d without", held, after)
		})
	}
}

func TestStartedAfter(t *testing.T) {
	p := child.StartSleep(t)
	started := identityOf(t, p.PID).StartTime
	if now := time.Now(); startedAfter(started, now) {
		t.Error("started after now")
	} else if !startedAfter(started, now.Add(-child.Timeout)) { // of other tests
		t.Errorf("started before %v", now.Add(-child.Timeout))
	}
}

func TestParsePIDs(t *testing.T) {
	status := func(line string) string { return strings.Replace(statusText, "NStgid:\t4242\n", line, 1) }
	for line, want := range map[string][]int{
		"NSpid:\t4242\n":        {4242},
		"NSpid:\t4242\t17\t1\n": {4242, 17, 1},
		"NSpid:\t4194304" + strings.Repeat("\t1", 32) + "\n": append([]int{4194304}, slices.Repeat([]int{1}, 32)...),
	} {
		got, err := parsePIDs([]byte(status(line)))
		assert.Check(t, err == nil && slices.Equal(got, want), "%q: %v, %v", line, got, err)
	}
	for _, line := range []string{
		"", "NSpid:\n", "NSpid:\t0\n", "NSpid:\t-1\n", "NSpid:\t2147483648\n", "NSpid:\t1 x\n",
		"NSpid:" + strings.Repeat("\t1", 34) + "\n",
	} {
		got, err := parsePIDs([]byte(status(line)))
		assert.Check(t, err != nil, "%q: %v", line, got)
	}
	got, err := parsePIDs([]byte("NSpid:\t42"))
	assert.Check(t, err != nil, "truncated: %v", got)
}

func FuzzParsePIDs(f *testing.F) {
	f.Add([]byte("Name:\tx\nNSpid:\t4242\t17\t1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pids, err := parsePIDs(text)
		assert.Check(t, err != nil || len(pids) != 0 && len(pids) <= maxPIDs && slices.Min(pids) >= 1,
			"%q: %v", text, pids)
	})
}
