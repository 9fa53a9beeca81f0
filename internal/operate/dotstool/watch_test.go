package dotstool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/recording"
	"correlator/internal/lab/testenv"
)

func serveTest(t *testing.T) (*broker.Broker, string) {
	t.Helper()
	b := broker.New(broker.Options{})
	uri := "uds://" + filepath.Join(t.TempDir(), "bus")
	_, err := b.ListenURI(uri)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
	return b, uri
}

func publishTest(t *testing.T, uri string, remove bool, objects ...string) {
	t.Helper()
	files := filepath.Join(t.TempDir(), "room.dots")
	const dots = "struct Room { 1: [key] uint32 id; 2: string name; }"
	assert.NilError(t, os.WriteFile(files, []byte(dots), 0o600))
	p := Publish{Guest: Guest{Endpoint: uri}, Type: "Room", Files: []string{files}, Remove: remove}
	assert.NilError(t, p.Run(t.Context(), Lines(strings.NewReader(strings.Join(objects, "\n")))))
}

// On a terminal the table changes in place: objects that are removed vanish.
func TestWatchOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	b, uri := serveTest(t)
	master, screen := testenv.Terminal(t, 40, 10)
	ended := make(chan error, 1)
	go func() {
		w := Watch{Guest: Guest{Endpoint: uri}, Types: []string{"Room"}, Notes: io.Discard}
		ended <- w.Table(context.Background(), screen)
	}()
	const home, line, below = "\x1b[H", "\x1b[K", "\x1b[J"
	waitFor(t, master, home+below+"Room: not known to the broker")
	publishTest(t, uri, false, `{"id":7,"name":"kitchen"}`, `{"id":2,"name":"\u001b[2J"}`)
	waitFor(t, master, home+line+"Room: 2\r\n"+line+"id  name\r\n"+line+` 2  \x1b[2J`+"\r\n"+below+" 7  kitchen")
	publishTest(t, uri, true, `{"id":2}`)
	waitFor(t, master, home+line+"Room: 1\r\n"+line+"id  name\r\n"+below+" 7  kitchen")
	go func() { _ = b.Shutdown(context.Background()) }()
	err := <-ended
	assert.Check(t, err, "ended with %v", err)
}

func waitFor(t *testing.T, r *os.File, text string) {
	t.Helper()
	assert.NilError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	var got []byte
	for buf := make([]byte, 4096); !bytes.Contains(got, []byte(text)); {
		n, err := r.Read(buf)
		assert.NilError(t, err, "%q is not in %q", text, got)
		got = append(got, buf[:n]...)
	}
}

// A writer that fails ends it; so does the context, which is no error.
func TestWatchEnds(t *testing.T) {
	_, uri := serveTest(t)
	publishTest(t, uri, false, `{"id":7}`)
	w := Watch{Guest: Guest{Endpoint: uri}, Types: []string{"Room"}, Notes: io.Discard}
	err := w.JSON(t.Context(), failing{})
	assert.Check(t, errors.Is(err, io.ErrClosedPipe), "ended with %v", err)
	ctx, cancel := context.WithCancel(t.Context())
	err = w.JSON(ctx, writerFunc(cancel))
	assert.Check(t, err, "ended with %v", err)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// Nothing is missed of a type that is described only while it is watched or recorded.
func TestExpected(t *testing.T) {
	b, uri := serveTest(t)
	var watched, recorded bytes.Buffer
	ended := make(chan error, 2)
	go func() {
		w := Watch{Guest: Guest{Endpoint: uri}, Types: []string{"Ring"}, Count: 3, Notes: io.Discard}
		ended <- w.JSON(context.Background(), &watched)
	}()
	go func() {
		r := Record{Guest: Guest{Endpoint: uri}, File: "-", Types: []string{"Ring"}, Count: 3, Stdout: &recorded,
			Notes: io.Discard}
		ended <- r.Run(context.Background())
	}()
	for b.Members("Ring") < 2 {
		runtime.Gosched()
	}
	files := filepath.Join(t.TempDir(), "ring.dots")
	assert.NilError(t, os.WriteFile(files, []byte("struct Ring [cached=false] { 1: uint32 n; }"), 0o600))
	p := Publish{Guest: Guest{Endpoint: uri}, Type: "Ring", Files: []string{files}}
	assert.NilError(t, p.Run(t.Context(), Lines(strings.NewReader("{\"n\":1}\n{\"n\":2}\n{\"n\":3}"))))
	for range 2 {
		err := <-ended
		assert.Check(t, err)
	}
	for n, line := range strings.Split(strings.TrimSpace(watched.String()), "\n") {
		assert.Check(t, strings.Contains(line, fmt.Sprintf(`{"n":%d}`, n+1)), "line %d: %s", n+1, line)
	}
	assert.Check(t, strings.Count(recorded.String(), "\x64Ring") >= 3, "recorded %q", &recorded)
}

// What is recorded comes out again, removals and unset properties too. A recording that waits for
// years ends with the context.
func TestRecordAndReplay(t *testing.T) {
	b, uri := serveTest(t)
	publishTest(t, uri, false, `{"id":7,"name":"kitchen"}`, `{"id":8,"name":"attic"}`, `{"id":9,"name":"cellar"}`)
	var file bytes.Buffer
	recorded := make(chan error, 1)
	go func() {
		r := Record{
			Guest: Guest{Endpoint: uri, Name: "test"}, File: "-", Types: []string{"Room"}, Count: 5, Stdout: &file,
			Notes: io.Discard,
		}
		recorded <- r.Run(context.Background())
	}()
	for b.Members("Room") == 0 {
		runtime.Gosched()
	}
	publishTest(t, uri, false, `{"id":7,"name":null}`)
	publishTest(t, uri, true, `{"id":8}`)
	err := <-recorded
	assert.NilError(t, err)
	reader, err := recording.NewReader(bytes.NewReader(file.Bytes()), 0)
	assert.Assert(t, err == nil && reader.Header.Name == "test", "%v %v", reader, err)

	_, second := serveTest(t)
	replay := Replay{
		Guest: Guest{Endpoint: second}, File: "-", Speed: math.Inf(1), Stdin: bytes.NewReader(file.Bytes()),
		Notes: io.Discard,
	}
	assert.NilError(t, replay.Run(t.Context()))
	var got bytes.Buffer
	w := Watch{Guest: Guest{Endpoint: second}, Types: []string{"Room"}, Count: 2}
	assert.NilError(t, w.Table(t.Context(), &got))
	want := "Room: 2\nid  name\n 7  -\n 9  cellar\n\n"
	assert.Check(t, got.String() == want, "%q, want %q", &got, want)

	slow := Replay{Speed: 0.001}
	err = slow.pause(testenv.Ended(), time.Now(), math.MaxInt64)
	assert.Check(t, errors.Is(err, context.Canceled), "ended with %v", err)
}
