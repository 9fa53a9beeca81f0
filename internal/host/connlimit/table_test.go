package connlimit

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// fake is a connection from an address.
type fake struct {
	net.Conn
	address string
	added   *Conn
	once    sync.Once
	closed  chan struct{}
}

func (f *fake) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address)} }
func (f *fake) Close() error         { f.once.Do(func() { close(f.closed) }); return nil }

// isClosed reports whether the table has closed the connection, or has refused it.
func (f *fake) isClosed() bool {
	if f.added != nil {
		select {
		case <-f.added.Done():
		default:
			return false
		}
	}
	<-f.closed
	return true
}

// add adds a connection of an address, which is nil if there is no place.
func add(table *Table, address string) (*Conn, *fake) {
	f := &fake{address: address, closed: make(chan struct{})}
	f.added = table.Add(f)
	return f.added, f
}

const (
	many, few = "10.0.0.1", "10.0.0.2"
	others    = "10.0.1."
)

// Of the peer that has the most connections, the one that has been idle the longest makes room.
func TestIdlestMakesRoom(t *testing.T) {
	table := New(4)
	_, ours := add(table, few)
	first, a := add(table, many)
	_, b := add(table, many)
	_, c := add(table, many)
	first.Begin()
	first.End() // it is the idlest no more
	for i, want := range []*fake{b, c} {
		if conn, _ := add(table, many); conn == nil || !want.isClosed() {
			t.Errorf("connection %d of who has the most: %v, the idlest is closed: %v", i, conn, want.isClosed())
		}
	}
	if a.isClosed() || ours.isClosed() {
		t.Errorf("another was closed: %v, %v", a.isClosed(), ours.isClosed())
	}
	if conn, _ := add(table, few); conn == nil || !a.isClosed() || ours.isClosed() {
		t.Errorf("a connection of who has few: %v, %v, %v", conn, a.isClosed(), ours.isClosed())
	}
	got, want := table.Counts(), (Counts{Open: 4, Added: 7, MadeRoom: 3})
	assert.Check(t, got == want, "%+v, want %+v", got, want)
}

// One with a request makes room for a peer that has fewer, but not for another of its own peer
// until Grace is over.
func TestBusyMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(3)
		var busy []*fake
		for range 3 {
			conn, f := add(table, many)
			conn.Begin()
			busy = append(busy, f)
			time.Sleep(time.Millisecond)
		}
		conn, f := add(table, many)
		assert.Check(t, conn == nil && f.isClosed(), "its own peer's was closed")
		conn, _ = add(table, few)
		assert.Check(t, conn != nil && busy[0].isClosed(), "a peer without a connection: %v", conn)
		time.Sleep(Grace)
		conn, _ = add(table, many)
		assert.Check(t, conn != nil && busy[1].isClosed() && !busy[2].isClosed(), "after a while: %v", conn)
		got, want := table.Counts(), (Counts{Open: 3, Added: 6, MadeRoom: 2, Refused: 1})
		assert.Check(t, got == want, "%+v, want %+v", got, want)
	})
}

// Who has as many as everybody else keeps them.
func TestEqualShares(t *testing.T) {
	table := New(8)
	var all []*fake
	for i := range 4 {
		for range 2 {
			conn, f := add(table, others+strconv.Itoa(i))
			if i > 0 {
				conn.Begin()
			}
			all = append(all, f)
		}
	}
	add(table, others+"3") // its own have requests, and the others have no more
	for i, f := range all {
		assert.Check(t, !f.isClosed(), "connection %d was closed", i)
	}
	n := table.Counts()
	assert.Check(t, n.Refused == 1, "%+v", n)
}

// A closed connection has no place, however often and by whom it is closed.
func TestClose(t *testing.T) {
	table := New(1)
	a, _ := add(table, many)
	add(table, few)
	<-a.Done()
	a.Begin()
	a.End()
	a.Close()
	n := table.Counts()
	assert.Check(t, n.Open == 1, "%+v", n)
	table.CloseAll()
	if n := table.Counts(); n.Open != 0 || len(table.peers) != 0 {
		t.Errorf("%+v, %d peers", n, len(table.peers))
	}
}

// Add does not wait for who uses the descriptor of the connection that it closes.
func TestBusyDescriptor(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	assert.NilError(t, err)
	defer listener.Close()
	accept := func() *net.UnixConn {
		client, err := net.Dial("unix", listener.Addr().String())
		assert.NilError(t, err)
		t.Cleanup(func() { client.Close() })
		server, err := listener.Accept()
		assert.NilError(t, err)
		return server.(*net.UnixConn)
	}
	table, victim := New(1), accept()
	first := table.Add(victim)
	raw, err := victim.SyscallConn()
	assert.NilError(t, err)
	using, release, read := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		read <- raw.Read(func(uintptr) bool { close(using); <-release; return true })
	}()
	<-using
	added := make(chan *Conn)
	go func() { added <- table.Add(accept()) }()
	select {
	case second := <-added:
		<-first.Done()
		got, want := table.Counts(), (Counts{Open: 1, Added: 2, MadeRoom: 1})
		assert.Check(t, got == want, "%+v, want %+v", got, want)
		close(release)
		err := <-read
		assert.Check(t, err)
		first.Close()
		second.Close()
	case <-time.After(time.Minute):
		t.Error("Add waits")
		close(release)
		<-read
		(<-added).Close()
	}
	n := table.Counts().Open
	assert.Check(t, n == 0, "%d are open", n)
}

func TestPeerOf(t *testing.T) {
	for address, want := range map[string]Peer{
		"127.0.0.1": loopback, "127.8.9.1": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback,
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:2::7": "2001:db8:1:2::/64",
	} {
		got := PeerOf(&fake{address: address})
		assert.Check(t, got == want, "%s is %q, want %q", address, got, want)
	}
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	assert.NilError(t, err)
	defer listener.Close()
	client, err := net.Dial("unix", path)
	assert.NilError(t, err)
	defer client.Close()
	server, err := listener.Accept()
	assert.NilError(t, err)
	got, want := PeerOf(server), Peer("uid "+strconv.Itoa(os.Getuid()))
	assert.Check(t, got == want, "the client of a Unix socket is %q, want %q", got, want)
	server.Close()
	got = PeerOf(server)
	assert.Check(t, got == unknown, "that of a closed one is %q", got)
}

// A released connection stays open, and has no place.
func TestRelease(t *testing.T) {
	table := New(1)
	a, f := add(table, many)
	a.Release()
	if n := table.Counts(); n.Open != 0 || len(table.peers) != 0 {
		t.Errorf("%+v, %d peers", n, len(table.peers))
	}
	b, _ := add(table, many)
	assert.Check(t, b != nil, "it takes the place of another one")
	select {
	case <-f.closed:
		t.Error("it is closed")
	default:
	}
	a.Begin()
	a.Release()
	a.Close()
	<-f.closed
	n := table.Counts()
	assert.Check(t, n.Open == 1 && n.MadeRoom == 0, "%+v", n)
}
