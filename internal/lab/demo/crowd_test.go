package demo

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Members of a crowd are processes, each with all that takes part.
func TestCrowd(t *testing.T) {
	needLittleEndian(t)
	const members = 20
	crowd := StartMany(t, members, Options{})
	pids := crowd.pids()
	slices.Sort(pids)
	pids = slices.Compact(pids)
	assert.Assert(t, len(pids) == members, "%d processes, want %d", len(pids), members)
	began := monotonicNs(t)
	for i := range members {
		socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram",
			Name: fmt.Sprintf("%s.%d", crowd.parent.Socket, i)})
		assert.NilError(t, err)
		send(t, socket, unhex(t, registration))
		socket.Close()
	}
	registered := crowd.Registered()
	for _, pid := range pids {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil || !strings.Contains(string(maps), crowd.parent.Library) {
			t.Errorf("process %d does not map %s (%v)", pid, crowd.parent.Library, err)
		}
		if at := registered[pid]; at < began || at > monotonicNs(t) {
			t.Errorf("process %d was registered with at %d ns, sent from %d ns on", pid, at, began)
		}
	}
	reports := crowd.Quit()
	for _, pid := range pids {
		if r := reports[pid]; r.Registrations != 1 || r.Messages != 1 {
			t.Errorf("process %d: %d messages, %d registrations", pid, r.Messages, r.Registrations)
		}
	}
}

// Processes that run from the same files have each their own socket, and a library in common.
func TestFiles(t *testing.T) {
	files := NewFiles(t, Glibc)
	first, second := Start(t, Options{Files: files}), Start(t, Options{Files: files})
	if first.Socket == second.Socket || first.Library != second.Library {
		t.Errorf("sockets %q and %q, libraries %q and %q", first.Socket, second.Socket, first.Library, second.Library)
	}
	if first.Published().Socket != first.Socket {
		t.Errorf("socket %q, published %q", first.Socket, first.Published().Socket)
	}
}

// The child of a fork has what the parent has published, lives on without it, and ends with the
// test.
func TestFork(t *testing.T) {
	p := Start(t, Options{})
	child := p.Fork(true)
	storage := p.Loaded().StoragePointer
	parentStorage, childStorage := readWord(t, p.PID, storage), readWord(t, child, storage)
	if parentStorage != p.Published().Storage || childStorage != parentStorage {
		t.Errorf("published %#x, read %#x in the parent and %#x in the child", p.Published().Storage, parentStorage,
			childStorage)
	}
	p.Kill()
	assert.Check(t, unix.Kill(child, 0), "the child of a process that was killed")
	p.stdin.Close()
	testenv.Poll(t, deadline, "the child to end", func() bool { return unix.Kill(child, 0) == unix.ESRCH })
}

// The same file at two places, with a storage pointer each.
func TestLoadAgain(t *testing.T) {
	p := Start(t, Options{})
	p.Withdraw()
	again := p.LoadAgain()
	if again.Path != p.Library || again.Base == p.Loaded().Base {
		t.Errorf("%s at %#x, and %s at %#x", p.Library, p.Loaded().Base, again.Path, again.Base)
	}
	published := p.Publish()
	first, second := readWord(t, p.PID, p.Loaded().StoragePointer), readWord(t, p.PID, again.StoragePointer)
	assert.Check(t, first == 0 && second == published.Storage,
		"pointers %#x and %#x, want 0 and %#x", first, second, published.Storage)
}
