package messaging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// threadStatus returns the status of the calling thread, to which the goroutine must be locked.
func threadStatus() (string, error) {
	b, err := os.ReadFile("/proc/thread-self/status")
	return string(b), err
}

func sameCredentials(a, b Credentials) bool {
	return a.UID == b.UID && a.GID == b.GID && slices.Equal(a.Groups, b.Groups)
}

func effectiveCapabilities(status string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "none"
}

func TestCredentialsAreSwitchedOnOneThread(t *testing.T) {
	testenv.NeedRoot(t)
	ours := ourCredentials(t)
	for _, creds := range []Credentials{
		{UID: 1000, GID: 1000},
		{UID: 1000, GID: 1001, Groups: []uint32{7, 2000, 3000}},
		{UID: 0, GID: 1000},
		{UID: 0, GID: 0, Groups: []uint32{4}},
		{UID: 4_000_000_000, GID: 4_000_000_001, Groups: []uint32{4_000_000_002}},
		ours,
	} {
		var status string
		var tid int
		err := creds.Do(func() (err error) {
			tid = unix.Gettid()
			status, err = threadStatus()
			return err
		})
		assert.NilError(t, err, creds)
		got := credentialsOf(t, status)
		assert.Check(t, sameCredentials(got, creds), "switched to %v, want %v", got, creds)
		caps := effectiveCapabilities(status)
		assert.Check(t, caps == "0000000000000000", "%v: capabilities %s, want none", creds, caps)
		assert.Check(t, tid != os.Getpid(), "%v: switched the main thread", creds)
		expectThreadGone(t, tid)
	}
	expectThreads(t, ours)
}

// expectThreadGone waits for the end of a thread of ours.
func expectThreadGone(t *testing.T, tid int) {
	t.Helper()
	testenv.Poll(t, patience, "the switched thread to end", func() bool {
		return errors.Is(unix.Tgkill(os.Getpid(), tid, 0), unix.ESRCH)
	})
}

// expectThreads checks the ids of all our threads.
func expectThreads(t *testing.T, want Credentials) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/task/*/status")
	assert.Assert(t, err == nil && len(paths) != 0, "no threads: %v", err)
	for _, path := range paths {
		status, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // an idle thread that ended
		}
		assert.NilError(t, err)
		got := credentialsOf(t, string(status))
		assert.Check(t, sameCredentials(got, want), "%s: %v, want %v", path, got, want)
		assert.Check(t, !strings.HasSuffix(effectiveCapabilities(string(status)), "0000000000000000"),
			"%s: no capabilities are left", path)
	}
}

// While many goroutines switch credentials and others make the runtime start threads, none runs
// with the rights of another.
func TestCredentialsDoNotLeak(t *testing.T) {
	testenv.NeedRoot(t)
	ours := ourCredentials(t)
	var tids sync.Map
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for round := range 20 {
				creds := Credentials{uint32(1000 + n), uint32(2000 + round), []uint32{uint32(3000 + n)}}
				err := creds.Do(func() error {
					tids.Store(unix.Gettid(), true)
					var inner sync.WaitGroup
					for range 3 { // these run on other threads, and may need new ones
						inner.Go(func() {
							uid, _ := unix.SetfsuidRetUid(noID)
							assert.Check(t, uint32(uid) == ours.UID, "another goroutine runs as %d", uid)
						})
					}
					inner.Wait()
					status, err := threadStatus()
					if err != nil {
						return err
					}
					if got := credentialsOf(t, status); !sameCredentials(got, creds) {
						return fmt.Errorf("runs as %v, want %v", got, creds)
					}
					return nil
				})
				assert.Check(t, err)
			}
		})
	}
	all.Wait()
	tids.Range(func(tid, _ any) bool {
		expectThreadGone(t, tid.(int))
		return true
	})
	expectThreads(t, ours)
}

// Without capabilities an agent connects to processes of its own user; for others the error is
// ErrCredentials.
func TestDialWithoutCapabilities(t *testing.T) {
	testenv.NeedRoot(t)
	dir := openTempDir(t)
	us := Credentials{UID: 1000, GID: 1000, Groups: []uint32{2000, 3000}}
	r := listenAt(t, filepath.Join(dir, "socket"))
	assert.NilError(t, os.Chmod(r.path, 0o666))
	const denied = "ErrCredentials"
	c := helper{Assume: &us, DialPath: r.path, Dial: []Credentials{
		us,
		{UID: 1000, GID: 1000, Groups: []uint32{3000, 2000, 2000}}, // in another order
		{UID: 1001, GID: 1000, Groups: us.Groups},
		{UID: 1000, GID: 1001, Groups: us.Groups},
		{UID: 1000, GID: 1000, Groups: []uint32{2000}},
		{UID: 0, GID: 0},
	}}.start(t, nil)
	for i, want := range []string{"<nil>", "<nil>", denied, denied, denied, denied} {
		got := c.line()
		assert.Check(t, got == want, "dial %d: %s, want %s", i, got, want)
	}
}

// A receiver with SO_PASSCRED gets the ids of its process, not those of root.
func TestReceiverSeesItsOwnIDs(t *testing.T) {
	testenv.NeedRoot(t)
	r := listenAt(t, filepath.Join(openTempDir(t), "socket"))
	assert.NilError(t, os.Chmod(r.path, 0o666))
	assert.NilError(t, unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	for _, creds := range []Credentials{{UID: 1000, GID: 1001}, {UID: 0, GID: 1001}, ourCredentials(t)} {
		socket, err := Dial("/proc", openRoot(t, "/"), r.path, creds)
		assert.NilError(t, err)
		s := NewSender(&Counters{}, newTestPoller(t))
		assert.NilError(t, s.Connect(socket, testRegistration))
		r.waitReadable()
		s.Close()
		var buf, control [1024]byte
		n, controlBytes, _, _, err := unix.Recvmsg(r.fd, buf[:], control[:], 0)
		assert.NilError(t, err)
		m, err := decode(buf[:n])
		assert.Check(t, err == nil && m == testRegistration, "received %+v, %v", m, err)
		messages, err := unix.ParseSocketControlMessage(control[:controlBytes])
		assert.Assert(t, err == nil && len(messages) == 1, "%v, %v", messages, err)
		got, err := unix.ParseUnixCredentials(&messages[0])
		assert.NilError(t, err)
		want := unix.Ucred{Pid: int32(os.Getpid()), Uid: creds.UID, Gid: creds.GID}
		assert.Check(t, *got == want, "sent as %+v, want %+v", *got, want)
	}
}

// openTempDir returns a temporary directory that every user may reach.
func openTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "messaging-"+strconv.Itoa(os.Getpid())+"-")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	assert.NilError(t, os.Chmod(dir, 0o755))
	return dir
}
