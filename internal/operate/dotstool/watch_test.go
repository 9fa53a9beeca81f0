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

	"correlator/dots/broker"
	"correlator/dots/recording"
	"correlator/internal/lab/testenv"
)

// serveTest runs a broker, and returns its endpoint.
func serveTest(t *testing.T) (*broker.Broker, string) {
	t.Helper()
	b := broker.New(broker.Options{})
	uri := "uds://" + filepath.Join(t.TempDir(), "bus")
	if _, err := b.ListenURI(uri); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
	return b, uri
}

// publishTest publishes objects of the type Room.
func publishTest(t *testing.T, uri string, remove bool, objects ...string) {
	t.Helper()
	files := filepath.Join(t.TempDir(), "room.dots")
	const dots = "struct Room { 1: [key] uint32 id; 2: string name; }"
	if err := os.WriteFile(files, []byte(dots), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Publish{Guest: Guest{Endpoint: uri}, Type: "Room", Files: []string{files}, Remove: remove}
	if err := p.Run(t.Context(), Lines(strings.NewReader(strings.Join(objects, "\n")))); err != nil {
		t.Fatal(err)
	}
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
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// waitFor reads until the output has a text.
func waitFor(t *testing.T, r *os.File, text string) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for buf := make([]byte, 4096); !bytes.Contains(got, []byte(text)); {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v; %q is not in %q", err, text, got)
		}
		got = append(got, buf[:n]...)
	}
}

// A writer that fails ends it; so does the context, which is no error.
func TestWatchEnds(t *testing.T) {
	_, uri := serveTest(t)
	publishTest(t, uri, false, `{"id":7}`)
	w := Watch{Guest: Guest{Endpoint: uri}, Types: []string{"Room"}, Notes: io.Discard}
	if err := w.JSON(t.Context(), failing{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ended with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := w.JSON(ctx, writerFunc(cancel)); err != nil {
		t.Errorf("ended with %v", err)
	}
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
	if err := os.WriteFile(files, []byte("struct Ring [cached=false] { 1: uint32 n; }"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Publish{Guest: Guest{Endpoint: uri}, Type: "Ring", Files: []string{files}}
	if err := p.Run(t.Context(), Lines(strings.NewReader("{\"n\":1}\n{\"n\":2}\n{\"n\":3}"))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for n, line := range strings.Split(strings.TrimSpace(watched.String()), "\n") {
		if !strings.Contains(line, fmt.Sprintf(`{"n":%d}`, n+1)) {
			t.Errorf("line %d: %s", n+1, line)
		}
	}
	if n := strings.Count(recorded.String(), "\x64Ring"); n < 3 {
		t.Errorf("recorded %q", &recorded)
	}
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
	if err := <-recorded; err != nil {
		t.Fatal(err)
	}
	reader, err := recording.NewReader(bytes.NewReader(file.Bytes()), 0)
	if err != nil || reader.Header.Name != "test" {
		t.Fatal(reader, err)
	}

	_, second := serveTest(t)
	replay := Replay{
		Guest: Guest{Endpoint: second}, File: "-", Speed: math.Inf(1), Stdin: bytes.NewReader(file.Bytes()),
		Notes: io.Discard,
	}
	if err := replay.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	w := Watch{Guest: Guest{Endpoint: second}, Types: []string{"Room"}, Count: 2}
	if err := w.Table(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if want := "Room: 2\nid  name\n 7  -\n 9  cellar\n\n"; got.String() != want {
		t.Errorf("%q, want %q", &got, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := Replay{Speed: 0.001}
	if err := slow.pause(ctx, time.Now(), math.MaxInt64); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
