package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/schema"
	"correlator/internal/attach/process"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/out"
	"correlator/internal/out/agent"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

// patience is how long tests wait for what must happen.
const patience = time.Minute

func TestMain(m *testing.M) {
	worker.Main(symbolizer.LiveKind)
	os.Exit(testenv.Main(m))
}

// fakeSource has processes that do not exist.
type fakeSource struct {
	processes atomic.Pointer[[]agent.ProcessStatus]
	reads     atomic.Int64
	work      []agent.ProcessWork
	readAt    map[procscan.ProcessID]time.Time
}

func newSource(n int) *fakeSource {
	processes := make([]agent.ProcessStatus, n)
	for i := range processes {
		v := process.NewView(procscan.ProcessID{PID: 1000 + i, StartTime: 1})
		v.ServiceName, v.ServiceEnvironment, v.State = fmt.Sprint("shop-", i), "prod", process.StateRegistered
		processes[i] = agent.ProcessStatus{View: v}
	}
	s := &fakeSource{}
	s.processes.Store(&processes)
	return s
}

func (s *fakeSource) Status() agent.Status {
	s.reads.Add(1)
	return agent.Status{StartedAt: time.Now(), Processes: *s.processes.Load()}
}

func (s *fakeSource) Work() ([]agent.ProcessWork, map[procscan.ProcessID]time.Time, error) {
	return s.work, s.readAt, nil
}

// frames are frames with names, the innermost first.
func frames(names ...string) *profile.Stack {
	var frames []profile.Frame
	for i, name := range names {
		frames = append(frames, profile.NewJVMFrame(&profile.Function{Name: name}, uint32(i+1)))
	}
	return &profile.Stack{ID: profile.TraceID(frames), Frames: frames}
}

// newSample returns samples of a thread in a transaction with a number.
func newSample(pid, tid int, transaction byte, count uint64, at time.Time) *profile.Sample {
	r := &profile.Resource{PID: pid}
	r.Name = fmt.Sprint("shop-", pid-1000)
	s := &profile.Sample{Resource: r, TID: tid, Thread: fmt.Sprint("worker-", tid), Count: count, At: at}
	s.TraceID[15], s.TransactionID[7], s.SpanID[7] = transaction, transaction, 9
	return s
}

var testAbout = out.About{HostID: "host-id", HostName: "host-1", Version: "1.2", SamplesPerSecond: 20,
	ProcRoot: "/proc"}

// openLive returns a Live that is shut down at the end of the test.
func openLive(tb testing.TB, config Config) *Live {
	tb.Helper()
	l, err := Open(config, testAbout, nil, zap.NewNop())
	assert.NilError(tb, err)
	l.retry, l.interval = 10*time.Millisecond, 2*pause
	l.tracker.forget = time.Hour // whatever a browser takes; see age
	tb.Cleanup(func() { shutdown(tb, l) })
	return l
}

func shutdown(tb testing.TB, l *Live) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.Shutdown(ctx)
}

// newSocket returns the endpoint of a Unix socket that does not exist yet.
func newSocket(tb testing.TB) string {
	tb.Helper()
	return "uds:" + filepath.Join(tb.TempDir(), "s")
}

func dial(tb testing.TB, uri, secret string) *client.Client {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, uri, client.Options{Name: "test", Secret: secret})
	assert.NilError(tb, err)
	tb.Cleanup(func() { c.Close() })
	return c
}

// recorder is a bus that records.
type recorder struct {
	wanted  want
	only    string // the transaction that is selected; empty: all
	applied []broker.Change
	refuse  func(*broker.Change) error
	err     error
}

func (r *recorder) Apply(changes []broker.Change) error {
	if r.err != nil {
		return r.err
	}
	for i := range changes {
		if r.refuse != nil {
			changes[i].Err = r.refuse(&changes[i])
		}
		r.applied = append(r.applied, changes[i])
	}
	return nil
}

// take returns what was applied since the last call.
func (r *recorder) take() []broker.Change {
	all := r.applied
	r.applied = nil
	return all
}

// blockingBus blocks until its channel is closed.
type blockingBus struct{ blocked chan struct{} }

func (b blockingBus) Apply([]broker.Change) error {
	<-b.blocked
	return nil
}

func (blockingBus) Wants(*schema.Struct) bool { return true }

func (blockingBus) Selects(broker.Instance) bool { return true }

// age makes what is known of the threads of some transactions so old that they are forgotten, unless there
// are new samples.
func (t *Tracker) age(transactions ...byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, th := range t.threads {
		if slices.Contains(transactions, th.transaction.transaction[7]) {
			th.lastRun = th.lastRun.Add(-2 * t.forget)
		}
	}
	for id, tx := range t.transactions {
		if slices.Contains(transactions, id.transaction[7]) {
			tx.lastRun = tx.lastRun.Add(-2 * t.forget)
		}
	}
}
