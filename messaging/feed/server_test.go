package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

const patience = 20 * time.Second

func listen(t testing.TB, path string) (*Server, *Counters) {
	t.Helper()
	counters := &Counters{}
	s, err := Listen(path, counters)
	assert.NilError(t, err)
	t.Cleanup(func() { s.Close() })
	return s, counters
}

// served collects the records that a server passes on.
type served struct {
	mu      sync.Mutex
	records []Record
	stop    context.CancelFunc
	ended   chan error
}

func serve(t testing.TB, s *Server) *served {
	ctx, cancel := context.WithCancel(context.Background())
	got := &served{stop: cancel, ended: make(chan error, 1)}
	go func() {
		got.ended <- s.Serve(ctx, func(records []Record) {
			got.mu.Lock()
			defer got.mu.Unlock()
			got.records = append(got.records, records...)
		})
	}()
	t.Cleanup(cancel)
	return got
}

func (s *served) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

func numbered(n int) Record {
	r := withContext
	r.PID = uint32(n)
	return r
}

func dial(t testing.TB, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestClientToServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	s, counters := listen(t, path)
	got := serve(t, s)
	c := dial(t, path)
	const total = 5*maxRecords + 7
	for n := range total {
		assert.NilError(t, c.Add(numbered(n)))
	}
	// flushes the rest
	assert.NilError(t, c.Close())
	testenv.Poll(t, patience, "all records", func() bool { return got.count() == total })
	for n, r := range got.records {
		assert.Assert(t, r == numbered(n), "record %d is %+v", n, r)
	}
	d, r := counters.Datagrams.Load(), counters.Records.Load()
	assert.Check(t, d == 6 && r == total, "counted %d datagrams, %d records", d, r)
}

func TestServerCountsRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	s, counters := listen(t, path)
	got := serve(t, s)
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	assert.NilError(t, err)
	defer conn.Close()
	good := unhex(t, golden[0].hex)
	for reason, change := range map[RefusalReason]func(b []byte) []byte{
		RefusedMagic:    func(b []byte) []byte { return b[:0] },
		RefusedLength:   func(b []byte) []byte { return append(b, make([]byte, 100_000)...) }, // truncated
		RefusedCount:    func(b []byte) []byte { b[40], b[41] = 0, 0; return b },
		RefusedFlags:    func(b []byte) []byte { b[42] = 2; return b },
		RefusedReserved: func(b []byte) []byte { b[6] = 1; return b },
	} {
		for _, datagram := range [][]byte{change(slices.Clone(good)), good} {
			_, err := conn.Write(datagram)
			assert.NilError(t, err)
		}
		testenv.Poll(t, patience, "a refusal for "+reason.String(), func() bool {
			return counters.Refused[reason].Load() == 1
		})
	}
	testenv.Poll(t, patience, "the good ones", func() bool { return got.count() == int(NumRefusalReasons) })
	if counters.Datagrams.Load() != uint64(NumRefusalReasons) {
		t.Errorf("%d datagrams handled", counters.Datagrams.Load())
	}
}

// Datagrams accepted before the end are handled; later ones are errors for the sampler.
func TestServeEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	s, _ := listen(t, path)
	c := dial(t, path)
	feed := func() error { return errors.Join(c.Add(numbered(0)), c.Flush()) }
	accepted := 0
	for ; accepted < 10; accepted++ { // nobody reads yet: they wait in the kernel
		assert.NilError(t, feed())
	}
	ctx, cancel := context.WithCancel(context.Background())
	handled := 0
	err := s.Serve(ctx, func([]Record) {
		if handled++; handled > 1 {
			return
		}
		cancel()
		testenv.Poll(t, patience, "the end of reception", func() bool {
			err := feed()
			if err == nil {
				accepted++
			}
			return errors.Is(err, unix.EPIPE)
		})
	})
	if err != nil || handled != accepted {
		t.Errorf("handled %d of %d datagrams, %v", handled, accepted, err)
	}
}

func TestServeEndsWithoutDatagrams(t *testing.T) {
	s, _ := listen(t, filepath.Join(t.TempDir(), "feed"))
	got := serve(t, s)
	got.stop()
	err := <-got.ended
	assert.Check(t, err)
}

func TestCloseEndsServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	s, _ := listen(t, path)
	got := serve(t, s)
	assert.Check(t, errors.Join(s.Close(), s.Close()))
	err := <-got.ended
	assert.Check(t, errors.Is(err, net.ErrClosed), "%v, want net.ErrClosed", err)
	_, err = os.Lstat(path)
	assert.Check(t, errors.Is(err, os.ErrNotExist), "the socket's file is left: %v", err)
}

func TestClientSurvivesAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	s, _ := listen(t, path)
	c := dial(t, path)
	s.Close()
	for range 2 { // first connected, then without a socket to connect to
		assert.Assert(t, errors.Join(c.Add(numbered(1)), c.Flush()) != nil, "fed an agent that has ended")
	}
	s, counters := listen(t, path)
	got := serve(t, s)
	assert.NilError(t, errors.Join(c.Add(numbered(2)), c.Flush()))
	testenv.Poll(t, patience, "the record", func() bool { return got.count() == 1 })
	if got.records[0] != numbered(2) || counters.Records.Load() != 1 {
		t.Errorf("%+v", got.records)
	}
}

func TestClientWriteTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	listen(t, path) // nothing reads
	c := dial(t, path)
	c.timeout = time.Millisecond
	testenv.Poll(t, patience, "a full queue", func() bool {
		return errors.Is(errors.Join(c.Add(numbered(1)), c.Flush()), os.ErrDeadlineExceeded)
	})
}

func TestAddRecordWithoutSamples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	s, _ := listen(t, path)
	got := serve(t, s)
	c := dial(t, path)
	assert.NilError(t, c.Add(numbered(1)))
	err := c.Add(Record{PID: 1, TID: 1})
	assert.Check(t, errors.Is(err, errCount), "%v, want errCount", err)
	assert.NilError(t, c.Close())
	assert.Check(t, c.conn == nil, "it is still connected")
	testenv.Poll(t, patience, "the record", func() bool { return got.count() == 1 })
}

// What lines say is flushed before a read that may block; an empty line says nothing, and a wrong one ends it, as does
// an error of the reader.
func TestAddLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	s, _ := listen(t, path)
	got := serve(t, s)
	c := dial(t, path)
	broken, line := errors.New("broken"), "1 2 60b420bb3851d9d47acb933dbe70399b\n"
	for i, test := range []struct{ in, err string }{
		{line + " \n" + line, "broken"}, {line + line + "1 2", "line 3: "}, {line, ""},
	} {
		in := io.Reader(strings.NewReader(test.in))
		if test.err == broken.Error() {
			in = io.MultiReader(in, iotest.ErrReader(broken))
		}
		err := c.AddLines(in)
		assert.Check(t, strings.HasPrefix(fmt.Sprint(err), cmp.Or(test.err, "<nil>")), err)
		testenv.Poll(t, patience, "the records", func() bool { return got.count() == []int{2, 2, 5}[i] })
	}
}

// Only root may feed: the kernel refuses the sampler of another user.
func TestOtherUsersMayNotFeed(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		assert.NilError(t, os.Chmod(path, 0o755))
	}
	path := filepath.Join(dir, "feed")
	listen(t, path)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // ends with the goroutine
		unix.Setfsuid(1000)
		_, err := Dial(path)
		result <- err
	}()
	err := <-result
	assert.Check(t, errors.Is(err, syscall.EACCES), "%v, want EACCES", err)
}
