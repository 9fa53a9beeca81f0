package messaging

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// peer is a real process with the sender and socket that the agent has for it.
type peer struct {
	t        *testing.T
	child    *child
	sender   *Sender
	identity SocketID
}

func newPeer(t *testing.T, counters *Counters, poller *Poller, h helper) *peer {
	t.Helper()
	p := &peer{t: t, sender: NewSender(counters, poller)}
	t.Cleanup(p.sender.Close)
	p.serve(h)
	return p
}

// serve starts or restarts the process, and connects to it.
func (p *peer) serve(h helper) {
	p.t.Helper()
	p.child = h.start(p.t, nil)
	if got := p.child.line(); got != "bound" {
		p.t.Fatal(got)
	}
	socket, err := Dial("/proc", p.child.root(), h.Bind, p.child.credentials())
	if err != nil {
		p.t.Fatal(err)
	}
	p.identity = socket.Identity()
	if err := p.sender.Connect(socket, longRegistration); err != nil {
		p.t.Fatal(err)
	}
	if !h.Silent {
		p.child.expect(longRegistration)
	}
}

// stop stops the process by a signal and waits until it has stopped.
func (p *peer) stop() {
	p.t.Helper()
	pid := p.child.cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
		if err == nil && status.Stopped() {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			p.t.Fatalf("stopping: %v, status %#x", err, status)
		}
	}
}

// expectSamples waits for one sample of each of the first keys, oldest first.
func (p *peer) expectSamples(keys int) {
	p.t.Helper()
	for n := range keys {
		p.child.expect(correlationOf(n, 1))
	}
}

// replace replaces a file by one that create makes, or removes it if create is nil.
func replace(path string, create func(path string) error) error {
	if create == nil {
		return os.Remove(path)
	}
	next := path + ".next" // made before the other is removed, so it has another inode number
	return errors.Join(create(next), os.Rename(next, path))
}

// Whatever processes do to their sockets, the samples of another process arrive, senders do not
// spin, and the processes get the queued samples when they receive again.
func TestTroubledProcessesBesideHealthy(t *testing.T) {
	const keys = 300
	dir := openTempDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	var troubles, none Counters
	poller := newTestPoller(t)
	healthy := newPeer(t, &none, poller, helper{Bind: at("healthy")})
	silent := newPeer(t, &troubles, poller, helper{Bind: at("silent"), Silent: true})
	stopped := newPeer(t, &troubles, poller, helper{Bind: at("stopped")})
	stopped.stop()

	// These have another file at their path, or none, while their old socket is still open.
	replaced := make(map[string]*peer)
	for name, replacement := range map[string]struct {
		create func(path string) error
		want   error // of Dial, and of Identify
	}{
		"removed": {nil, ErrNoSocket},
		"socket":  {func(path string) error { listenAt(t, path); return nil }, nil},
		"file":    {func(path string) error { return os.WriteFile(path, nil, 0o666) }, ErrNotSocket},
		"fifo":    {func(path string) error { return unix.Mkfifo(path, 0o666) }, ErrNotSocket},
		"link":    {func(path string) error { return os.Symlink(dir, path) }, ErrNotSocket},
	} {
		p := newPeer(t, &troubles, poller, helper{Bind: at(name)})
		replaced[name] = p
		assert.NilError(t, replace(at(name), replacement.create))
		identity, err := Identify(p.child.root(), at(name))
		assert.Check(t, errors.Is(err, replacement.want) && identity != p.identity,
			"%s: is %v (%v), was %v, want %v", name, identity, err, p.identity, replacement.want)
		p.sender.Disconnect()
		socket, err := Dial("/proc", p.child.root(), at(name), p.child.credentials())
		assert.Check(t, errors.Is(err, replacement.want), "%s: %v, want %v", name, err, replacement.want)
		if err == nil {
			socket.Close()
		}
	}

	for n := range keys {
		now := time.Now()
		silent.sender.Add(keyOf(n), 1, now)
		stopped.sender.Add(keyOf(n), 1, now)
		for _, p := range replaced {
			p.sender.Add(keyOf(n), 1, now)
		}
		healthy.sender.Add(keyOf(n), 1, now)
		healthy.child.expect(correlationOf(n, 1))
	}
	stats := silent.sender.Stats()
	assert.Check(t, stats.Sent+stats.Queued == keys && stats.Queued != 0, "a receiver that does not read: %+v", stats)
	waits := troubles.SendWaits.Load()
	assert.Check(t, waits <= 2, "%d failed attempts for two receivers that do not read, want one each", waits)

	assert.NilError(t, stopped.child.cmd.Process.Signal(unix.SIGCONT))
	stopped.expectSamples(keys)
	for name, p := range replaced {
		p.child.kill()
		p.serve(helper{Bind: at("new-" + name)})
		p.expectSamples(keys)
	}
	for _, p := range []*peer{healthy, stopped, replaced["removed"]} {
		stats := p.sender.Stats()
		assert.Check(t, sum(stats.Dropped) == 0, "dropped: %+v", stats)
	}
}
