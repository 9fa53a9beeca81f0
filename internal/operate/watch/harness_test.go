package watch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/value"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/dotstool"
	"correlator/internal/out/live/types"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("TERM", "xterm")
	os.Exit(m.Run())
}

const deadline = time.Minute

// serve is a broker with the objects of an agent.
func serve(t *testing.T, uri string) *broker.Broker {
	t.Helper()
	b := broker.New(broker.Options{Name: "test", ReadOnly: true})
	t.Cleanup(func() { shutdown(t, b) })
	for _, s := range types.Published() {
		assert.NilError(t, b.RegisterType(s))
	}
	_, err := b.ListenURI(uri)
	assert.NilError(t, err)
	return b
}

func shutdown(t *testing.T, b *broker.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	assert.Check(t, b.Shutdown(ctx))
}

func publish(t *testing.T, b *broker.Broker, objects ...broker.Instance) {
	t.Helper()
	assert.NilError(t, b.Publish(objects...))
}

var some = value.Some[string]

func host() *types.CorrelatorHost {
	return &types.CorrelatorHost{
		Host: some("h1"), Name: some("web-1"), Cpus: value.Some[uint32](4), Processes: value.Some[uint32](3),
		CPU: value.Some(1.5), AgentCPU: value.Some(0.012), SamplesPerSecond: value.Some[uint32](20),
	}
}

func process(pid uint32, service string, cpu float64) *types.CorrelatorProcess {
	return &types.CorrelatorProcess{
		Host: some("h1"), Pid: value.Some(pid), Service: some(service), State: some("registered"), CPU: value.Some(cpu),
		TracedCPU: value.Some(cpu / 2), Environment: some("prod"), Contexts: value.Some([]string{"elastic"}),
		ContainerID: some("0123456789abcdef0123456789abcdef"),
	}
}

func thread(pid, tid uint32, transaction string) *types.CorrelatorThread {
	return &types.CorrelatorThread{
		Host: some("h1"), Pid: value.Some(pid), Tid: value.Some(tid), Name: some("http-" + fmt.Sprint(tid)),
		TraceID: some(traceOf(transaction)), TransactionID: some(transaction), CPU: value.Some(0.25),
		Since: value.Some(value.TimepointOf(time.Now())), LastRun: value.Some(value.TimepointOf(time.Now())),
	}
}

func traceOf(transaction string) string { return strings.Repeat(transaction, 2) }

// stacksSince is since when stacks are counted.
var stacksSince = time.Date(2026, 11, 23, 12, 3, 5, 0, time.Local)

func transaction(id string, cpu float64) *types.CorrelatorTransaction {
	return &types.CorrelatorTransaction{
		Host: some("h1"), TraceID: some(traceOf(id)), TransactionID: some(id), CPU: value.Some(cpu),
		CPUTime: value.Some(value.Duration(2.5)), Service: some("shop"), Threads: value.Some[uint32](2),
		StacksSince: value.Some(value.TimepointOf(stacksSince)), Pid: value.Some[uint32](11),
		Since: value.Some(value.TimepointOf(time.Now())),
	}
}

// stackOf is a stack that a transaction has used CPU time with; frames are innermost first.
func stackOf(transaction, id string, seconds float64, frames ...string) []broker.Instance {
	return []broker.Instance{
		&types.CorrelatorStack{Host: some("h1"), ID: some(id), Frames: value.Some(frames)},
		&types.CorrelatorTransactionStack{
			Host: some("h1"), TraceID: some(traceOf(transaction)), TransactionID: some(transaction),
			StackID: some(id), CPUTime: value.Some(value.Duration(seconds)),
		},
	}
}

// waitOf is what threads of a transaction did.
func waitOf(transaction, state, place, text string, seconds float64) *types.CorrelatorTransactionWait {
	return &types.CorrelatorTransactionWait{Host: some("h1"), TraceID: some(traceOf(transaction)),
		TransactionID: some(transaction), State: some(state), Place: some(place), Text: some(text),
		Time: value.Some(value.Duration(seconds)), Times: value.Some[uint32](3),
		Longest: value.Some(value.Duration(seconds)),
		EndedBy: some("holder\x1b[2J")}
}

const (
	first  = "1111111111111111"
	second = "2222222222222222"
)

func publishAll(t *testing.T, b *broker.Broker) {
	t.Helper()
	publish(t, b, host(), process(11, "shop", 0.5), process(12, "ca\x1b[2Jrt", 0.25), process(13, "idle", 0))
	publish(t, b, thread(11, 101, first), thread(12, 102, second), transaction(first, 0.4), transaction(second, 0.3))
	publish(t, b, stackOf(first, "s1", 3, "compute", "handle", "main")...)
	publish(t, b, stackOf(first, "s2", 1, "report", "main")...)
	publish(t, b, stackOf(second, "s3", 1, "of another", "main")...)
}

// window is a terminal in which Watch runs.
type window struct {
	t      *testing.T
	master *os.File
	done   chan error
	cancel func()

	mu      sync.Mutex
	written bytes.Buffer
}

func open(t *testing.T, uri string, columns, rows uint16) *window {
	t.Helper()
	master, screen := testenv.Terminal(t, columns, rows)
	ctx, cancel := context.WithCancel(t.Context())
	w := &window{t: t, master: master, done: make(chan error, 1), cancel: cancel}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			w.mu.Lock()
			w.written.Write(buf[:n])
			w.mu.Unlock()
		}
	}()
	watch := Watch{Guest: dotstool.Guest{Endpoint: uri}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.done <- watch.Table(ctx, screen, screen)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

func (w *window) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	drawings := strings.Split(w.written.String(), "\x1b[H")
	text := drawings[len(drawings)-1]
	for _, control := range []string{"\x1b[K", "\x1b[J", "\x1b[7m", "\x1b[27m", "\r"} {
		text = strings.ReplaceAll(text, control, "")
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ") // the marked one is filled
	}
	return lines
}

// shows waits until all of some texts are on the screen, and returns its lines.
func (w *window) shows(texts ...string) (lines []string) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the screen:\n%s", strings.Join(w.lines(), "\n"))
		}
	}()
	testenv.Poll(w.t, deadline, fmt.Sprintf("%q", texts), func() bool {
		lines = w.lines()
		all := strings.Join(lines, "\n")
		for _, text := range texts {
			if !strings.Contains(all, text) {
				return false
			}
		}
		return strings.HasSuffix(all, "q: quit") || strings.Contains(all, "…")
	})
	return lines
}

func (w *window) press(keys string) {
	w.t.Helper()
	_, err := w.master.WriteString(keys)
	assert.NilError(w.t, err)
}

// ends waits until Watch has returned without an error.
func (w *window) ends() {
	w.t.Helper()
	select {
	case err := <-w.done:
		assert.Check(w.t, err == nil, err)
	case <-time.After(deadline):
		w.t.Fatal("it does not end")
	}
}

func endpoint(t *testing.T) string { return "uds:" + filepath.Join(t.TempDir(), "live.sock") }
