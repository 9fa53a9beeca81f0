package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/host/sockfile"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/internal/out/keep"
	"correlator/internal/stacks/sampling"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker/cost"
	"correlator/procscan/javaagent"
)

type source struct {
	status Status
	keep   Keeper
}

func (s *source) Status() agent.Status { return s.status.Status }

func (s *source) Waits() *sampling.WaitsStatus { return s.status.Waits }

func (s *source) otlp() *export.Status { return s.status.OTLP }
func (s *source) keeper() Keeper       { return s.keep }

func serve(t *testing.T, path string, s *source) {
	t.Helper()
	server, err := Open(path)
	assert.NilError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s, s.otlp, s.keeper()) }()
	t.Cleanup(func() {
		assert.Check(t, errors.Join(server.Close(), server.Close(), <-ended))
		_, err := os.Lstat(path)
		assert.Check(t, errors.Is(err, os.ErrNotExist), "the socket's file is left: %v", err)
	})
}

// example has every field set, and texts that are not for a terminal.
func example() Status {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	registered := now.Add(-3*time.Hour - 12*time.Minute)
	return Status{Status: agent.Status{
		At: now, StartedAt: now.Add(-50 * time.Hour), HostID: "3a6f",
		SamplesDelay:     agent.Seconds(300 * time.Millisecond),
		SamplesPerSecond: 20, LiveEvents: true, MappingsFrom: "procmap_query",
		Cost:     cost.Cost{Processes: 4, PSSBytes: 45<<20 + 1<<19, CPUSeconds: 936},
		Unwinder: sampling.AutoUnwinder,
		Unwinding: &sampling.UnwindingStatus{
			Loaded: true, Unwound: 2, Native: 1, Waiting: 1,
			Refused:  map[int]string{813: "V8: the layout\x1b is not known"},
			Unknown:  map[int]string{814: "Python 3.15 was not tried"},
			Failures: map[int]string{812: "process is left out until 12:00:30: the worker did not answer\x1b in time"},
			Engine: &unwind.Status{Generation: 1, Synchronized: 2, Unreaped: 1,
				Quarantined: []unwind.Quarantine{{PID: 812, Reason: "the worker did not answer in time", Until: now}}},
		},
		Processes: []agent.ProcessStatus{
			{
				View: process.View{PID: 812, StartTime: now, State: process.StateRegistered, ServiceName: "shop",
					ServiceEnvironment: "production", Libc: "musl", TLS: "dynamic",
					ContainerID: "8d3f0011223344556677", Contexts: []string{"elastic", "opentelemetry"},
					Library: "/l.so"},
				RegisteredSince: &registered, Exported: 1000, Samples: 1234999, Sent: 1234000, Queued: 30,
				WithoutTrace: 402, Late: 500,
				Dropped: map[string]uint64{"queue_full": 7, "stale": 60},
			},
			{
				View: process.View{PID: 4711, StartTime: now, State: process.StateError, Reason: "socket_denied",
					ServiceName: "evil\x1b[2J", Library: "/l.so", Libc: "glibc", TLS: "static"},
				Dropped: map[string]uint64{},
				LastError: &agent.ProcessError{Reason: "socket_denied", At: now.Add(-65 * time.Second), Count: 3,
					Message: "connecting to /tmp/agent.sock: not permitted to its own user"},
			},
			{
				View: process.View{PID: 90, StartTime: now, State: process.StateNoStorage, Library: "/l.so",
					TLS: "unresolved"},
				Dropped: map[string]uint64{},
				LastError: &agent.ProcessError{Reason: "timeout", At: now.Add(-time.Hour), Count: 1,
					Message: "is long over"},
			},
		},
		Latency: agent.Latency{P50: agent.Seconds(53 * time.Millisecond), P99: agent.Seconds(104 * time.Millisecond),
			Max: agent.Seconds(131250 * time.Microsecond)},
		Counters: map[string]uint64{"samples_added": 1300000, "samples_sent": 1299000, "samples_dropped_late": 600,
			"samples_dropped_added_late": 20, "samples_dropped_queue_full": 7, "fed_stale": 50, "sampled_stale": 10,
			"sampled_unknown_process": 5, "fed_unknown_process": 99999, "fed_no_trace": 300, "sampled_no_slot": 102,
			"sampled_correlated": 1300000},
	}}
}

// A client gets the agent's status unchanged.
func TestStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made/admin.sock") // the directory is made
	want := exporting()
	want.ChainOnly = "the verifier says so"
	want.Slow = &keep.SlowStats{Kept: 12, Forgotten: 3, Bytes: 1_250_000}
	assert.Check(t, Probe(path))
	serve(t, path, &source{status: want, keep: asked{slow: want.Slow}})
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	got, err := NewClient(path).Status(t.Context())
	assert.NilError(t, err)
	assert.Check(t, reflect.DeepEqual(got, want), "got %+v\nwant %+v", got, want)
	var text strings.Builder
	const slow = "\nslow transactions: 12 kept in 1.2 MB (--keep-slow), 3 forgotten for lack of room\n"
	err = WriteStatus(&text, &got)
	assert.Check(t, err == nil && strings.Contains(text.String(), slow), "%v, %s", err, text.String())
	if _, err := Open(path); !errors.Is(err, sockfile.ErrInUse) || !errors.Is(Probe(path), sockfile.ErrInUse) {
		t.Errorf("a second agent: %v, want ErrInUse", err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "two/missing/admin.sock"), "/dev/null/admin.sock"} {
		if _, err := Open(path); err == nil || Probe(path) == nil {
			t.Errorf("%s: %v, Probe: %v", path, err, Probe(path))
		}
	}
}

// Without an agent the error has a remedy.
func TestNoAgent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "admin.sock")
	refused := func(what, text string) {
		t.Helper()
		_, err := NewClient(path).Status(t.Context())
		assert.Check(t, errors.Is(err, errNoAgent) && strings.Contains(err.Error(), text),
			"%s: %v, want %q", what, err, text)
	}
	refused("no socket", `there is no such socket. Is "correlator run" running`)
	listener, err := net.Listen("unix", path)
	assert.NilError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	refused("a socket that was left", "the agent was killed")
	link := filepath.Join(dir, "link")
	assert.NilError(t, errors.Join(os.Rename(path, filepath.Join(dir, "left")), os.Symlink("left", link),
		os.WriteFile(path, nil, 0o600)))
	refused("a file", "it is no socket")
	path = link
	refused("a link to a socket that was left", "the agent was killed")
	path = dir
	refused("a directory", "it is no socket")
	_, err = NewClient(filepath.Join(dir, strings.Repeat("x", 200))).Status(t.Context())
	assert.Check(t, err != nil && !errors.Is(err, errNoAgent), "a path that is too long: %v", err)
}

// Something else that listens there is an error.
func TestForeignResponse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	listener, err := net.Listen("unix", path)
	assert.NilError(t, err)
	defer listener.Close()
	responses := []string{
		"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"garbage\r\n\r\n",
		"",
	}
	go func() {
		for _, response := range responses {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 4096))
			conn.Write([]byte(response))
			conn.Close()
		}
	}()
	for _, response := range responses {
		status, err := NewClient(path).Status(t.Context())
		assert.Check(t, err != nil, "%q became %+v", response, status)
	}
}

func TestWriteStatus(t *testing.T) {
	status := example()
	var got strings.Builder
	want := string(testenv.ReadFile(t, "testdata/status.txt"))
	if err := WriteStatus(&got, &status); err != nil || got.String() != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got.String(), want)
	}
}

func TestWriteStatusOfNothing(t *testing.T) {
	now := time.Now()
	status := Status{Status: agent.Status{At: now, StartedAt: now, NotReady: "starting"}}
	var got strings.Builder
	WriteStatus(&got, &status)
	for _, want := range []string{"samples are fed only", "found by sweeps alone", "not ready: starting\n",
		"0 processes\n", "dropped: 0"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("no %q in\n%s", want, got.String())
		}
	}
	status.NoSamples = true
	got.Reset()
	WriteStatus(&got, &status)
	assert.Check(t, strings.Contains(got.String(), ", no samples, "), got.String())
}

// The agent's cost is shown where there is room for everything.
func TestCostLeftOut(t *testing.T) {
	status := example()
	page := newPage(nil, &status, 80)
	all := page.lines(0)
	cost := costLine(&status)[0]
	assert.Check(t, slices.Contains(all, cost) && slices.Contains(page.lines(len(all)), cost))
	less := page.lines(len(all) - 1)
	assert.Check(t, len(less) == len(all)-1 && !slices.Contains(less, cost), "%q", less)
}

// What is not known of the agent's cost is left out: all of one that does not tell, its memory, its share of CPU just
// after its start.
func TestCostUnknown(t *testing.T) {
	now := time.Now()
	status := Status{Status: agent.Status{At: now, StartedAt: now}}
	assert.Check(t, len(costLine(&status)) == 0)
	status.Cost = cost.Cost{Processes: 1, CPUSeconds: 1}
	assert.DeepEqual(t, costLine(&status), []string{"the agent with its workers: 1 process"})
}

// Why stacks that are walked by frame pointers lack callers is said, and nothing where they do not.
func TestChainOnly(t *testing.T) {
	lacking := Status{Status: agent.Status{ChainOnly: "the verifier\x1b says so"}}
	got := troubles(&lacking)
	want := `stacks that are walked by frame pointers lack callers: the verifier\x1b says so`
	assert.Check(t, len(got) == 1 && got[0] == want, "%q", got)
	assert.Check(t, len(troubles(new(Status))) == 0)
}

// How stacks are walked is told for every state that unwinding can be in.
func TestUnwinding(t *testing.T) {
	failed := &sampling.UnwindingStatus{Failure: "missing CAP_BPF: grant\x1b it", Waiting: 1}
	for _, test := range []struct {
		unwinder sampling.Unwinder
		status   *sampling.UnwindingStatus
		want     string
	}{
		{sampling.FramePointers, nil, "stacks: walked by frame pointers (--unwinder frame-pointers)"},
		{sampling.AutoUnwinder, new(sampling.UnwindingStatus), "stacks: unwound in 0 processes, by frame pointers in 0"},
		{sampling.AutoUnwinder, &sampling.UnwindingStatus{Needed: true},
			"stacks: walked by frame pointers: the unwinding engine is being loaded"},
		{sampling.FullUnwinder, failed, `stacks: walked by frame pointers: missing CAP_BPF: grant\x1b it`},
		{sampling.AutoUnwinder,
			&sampling.UnwindingStatus{Loaded: true, Unwound: 3, Waiting: 1, Engine: &unwind.Status{}},
			"stacks: unwound in 3 processes, by frame pointers in 1"},
		{sampling.AutoUnwinder,
			&sampling.UnwindingStatus{Loaded: true, Unwound: 3, Native: 2, Engine: &unwind.Status{}},
			"stacks: unwound in 3 processes, by frame pointers in 0, as native code alone in 2"},
		{sampling.AutoUnwinder,
			&sampling.UnwindingStatus{Loaded: true, Engine: &unwind.Status{WorkerRoot: "the agent lacks\x1b CAP_KILL"}},
			"stacks: unwound in 0 processes, by frame pointers in 0; the unwinding worker is root's: " +
				`the agent lacks\x1b CAP_KILL`},
		{sampling.AutoUnwinder,
			&sampling.UnwindingStatus{Loaded: true, Unwound: 3, Engine: &unwind.Status{JavaRefused: "R3\x1b !read_ok"}},
			"stacks: unwound in 3 processes, by frame pointers in 0; stacks of Java end after 116 frames, and where " +
				`methods begin or end, callers may be missing or wrong: R3\x1b !read_ok`},
	} {
		s := Status{Status: agent.Status{SamplesPerSecond: 20, Unwinder: test.unwinder, Unwinding: test.status}}
		got := totals(&s)
		assert.Check(t, got[len(got)-1] == test.want, "%q, want %q", got, test.want)
	}
	for _, line := range totals(new(Status)) {
		assert.Check(t, !strings.Contains(line, "stacks"), "without samples: %q", line)
	}
}

// The totals add up, whatever the counters are.
func TestNumbersAddUp(t *testing.T) {
	counters := make(map[string]uint64)
	(&agent.Counters{}).Each(func(name string, _ uint64) { counters[name] = uint64(len(counters)*len(name) + 1) })
	counters["samples_added"] = 1e6
	got := newSums(counters)
	sum := got.sent + got.late + got.waiting
	for _, samples := range got.dropped {
		sum += samples
	}
	assert.Check(t, got.samples == sum, "%d samples, but %d in all: %+v", got.samples, sum, got)
	want := counters["samples_added"] + counters["sampled_unknown_process"]
	for o := process.OutcomeNotRegistered; o < process.NumOutcomes; o++ {
		if o.IsLoss() && !o.WithoutTrace() {
			want += counters["sampled_"+o.String()] + counters["fed_"+o.String()]
		}
	}
	assert.Check(t, got.samples == want, "%d samples, want %d", got.samples, want)
	counters["samples_added"] = 0 // before the others were read
	if got := newSums(counters); got.waiting != 0 || got.samples == 0 || got.samples > want {
		t.Errorf("%+v", got)
	}
}

// The newest errors are shown, and only some where everything is in error.
func TestTroubles(t *testing.T) {
	status := example()
	for i := range 20 {
		p := status.Processes[1]
		p.PID += 1 + i
		p.LastError = &agent.ProcessError{Reason: "timeout", At: status.At.Add(time.Duration(i-60) * time.Second),
			Message: "hangs"}
		status.Processes = append(status.Processes, p)
	}
	all := troubles(&status)
	if len(all) != 24 || all[21] != `stacks of 812 by frame pointers: process is left out until 12:00:30: the worker `+
		`did not answer\x1b in time` || !strings.HasPrefix(all[0], "last error of 4731, 41s ago") ||
		!strings.HasPrefix(all[20], "last error of 4711, 1m5s ago") {
		t.Errorf("%d errors: %q", len(all), all)
	}
	lines := newPage(nil, &status, 0).lines(0)
	first, last := slices.Index(lines, all[0]), slices.Index(lines, "and of 15 more")
	assert.Check(t, first >= 0 && last == first+maxTroubles-1 && lines[first-1] == "" && lines[last+1] == "",
		"from %d to %d of %q", first, last, lines)
}

// JVMs with a silent agent are rows, a total and advice.
func TestWriteSilent(t *testing.T) {
	agentOf := &javaagent.Agent{Kind: javaagent.EDOT, Version: "1.4.0",
		Reasons: []javaagent.Reason{javaagent.NoServiceName, javaagent.NoExec}}
	view := process.View{PID: 71, State: process.StateSilent, Reason: "no_service_name", Agent: agentOf}
	other := process.View{PID: 72, State: process.StateSilent, Reason: "\x1b[31m"} // of another version
	var page strings.Builder
	assert.NilError(t, WriteStatus(&page, &Status{Status: agent.Status{Silent: []process.View{view, other}}}))
	lines := strings.Split(page.String(), "\n")
	row := strings.Join(strings.Fields(lines[3]), " ")
	assert.Check(t, strings.HasPrefix(row,
		"71 (elastic-otel-javaagent 1.4.0) silent (no_service_name) - "), "%q", row)
	for _, want := range []string{
		"71: elastic-otel-javaagent 1.4.0 has not loaded its native library: set OTEL_SERVICE_NAME: without, EDOT does not " +
			"begin; its temporary directory is mounted noexec: start it with -Djava.io.tmpdir= of another one",
		"0 processes; 2 JVMs whose agent is silent",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in\n%s", want, page.String())
		}
	}
	assert.Check(t, !strings.Contains(page.String(), "\x1b"), "what comes from elsewhere is not escaped")
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 999 * time.Millisecond: "0s", 59 * time.Second: "59s", time.Minute: "1m0s",
		time.Hour - 1: "59m59s", 25 * time.Hour: "1d1h",
	} {
		got := age(d)
		assert.Check(t, got == want, "%v: %s, want %s", d, got, want)
	}
}

// Rates are between two responses of the same agent.
func TestRates(t *testing.T) {
	before, now := example(), example()
	now.At = before.At.Add(4 * time.Second)
	now.Counters["samples_added"] += 180
	now.Counters["samples_sent"] += 100
	now.Counters["sampled_torn"] += 20
	got := ratesBetween(&before, &now).String()
	assert.Check(t, got == "50.0 samples, 25.0 sent", got)
	got = ratesBetween(&now, &now).String()
	assert.Check(t, got == "- samples, - sent", "in no time: %s", got)
	now.StartedAt = now.At
	got = ratesBetween(&before, &now).String()
	assert.Check(t, got == "- samples, - sent", "across a restart: %s", got)
	got = ratesBetween(nil, &now).String()
	assert.Check(t, got == "- samples, - sent", "before anything is measured: %s", got)
}

// Processes are left out first, then the older errors; what is left out is counted.
func TestFitRows(t *testing.T) {
	p := page{head: split("head|title"), processes: split("1|2|3|4|5"), troubles: split("new|old|older"),
		totals: split("processes|samples")}
	checkLines(t, p, map[int]string{
		0:  "head|title|1|2|3|4|5||new|old|older||processes|samples",
		99: "head|title|1|2|3|4|5||new|old|older||processes|samples",
		14: "head|title|1|2|3|4|5||new|old|older||processes|samples",
		13: "head|title|1|2|3|… and 2 more processes||new|old|older||processes|samples",
		10: "head|title|… and 5 more processes||new|old|older||processes|samples",
		9:  "head|title|… and 5 more processes||new|and of 2 more||processes|samples",
		8:  "head|title|… and 5 more processes||and of 3 more||processes|samples",
		7:  "head|title|1|… and 4 more processes||processes|samples",
		6:  "head|title|… and 5 more processes||processes|samples",
		5:  "head|title||processes|samples",
		4:  "head|title||processes",
		1:  "head",
	})
	p.processes, p.troubles = nil, nil
	const nothing = "head|title||processes|samples"
	checkLines(t, p, map[int]string{0: nothing, 5: nothing, 2: "head|title"})
}

func split(text string) []string { return strings.Split(text, "|") }

// checkLines compares the lines of a page for numbers of rows.
func checkLines(t *testing.T, p page, wants map[int]string) {
	t.Helper()
	for rows, want := range wants {
		got := strings.Join(p.lines(rows), "|")
		assert.Check(t, got == want, "%d rows: %s", rows, got)
	}
}

// An agent that hangs is reported after the timeout, and not when the caller cancels the request.
func TestStatusTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	listener, err := net.Listen("unix", path) // never responds
	assert.NilError(t, err)
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error)
	go func() {
		_, err := NewClient(path).Status(ctx)
		asked <- err
	}()
	conn, err := listener.Accept()
	assert.NilError(t, err)
	defer conn.Close()
	cancel()
	err = <-asked
	assert.Check(t, errors.Is(err, context.Canceled) && !errors.Is(err, errNoAgent), "cancelled: %v", err)
	client := NewClient(path)
	client.http.Timeout = time.Nanosecond
	_, err = client.Status(t.Context())
	assert.Check(t, errors.Is(err, errNoAgent) && strings.Contains(err.Error(), "within 15s"),
		"no response in time: %v", err)
}

// expired is a context whose deadline is when the channel is closed.
type expired struct {
	context.Context
	done chan struct{}
}

func (e expired) Done() <-chan struct{} { return e.done }

func (e expired) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// expiring has a context expire when the header of a response has come.
type expiring struct {
	http.RoundTripper
	context expired
}

func (e expiring) RoundTrip(request *http.Request) (*http.Response, error) {
	defer close(e.context.done)
	return e.RoundTripper.RoundTrip(request)
}

// An agent that hangs within its answer is told like one that does not answer. The client ends the
// connection then, which is not what the user is to read.
func TestStatusTimeoutWithinAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	listener, err := net.Listen("unix", path)
	assert.NilError(t, err)
	end := make(chan struct{})
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"processes":`)
		_ = http.NewResponseController(w).Flush()
		<-end
	})}
	go server.Serve(listener)
	t.Cleanup(func() {
		close(end)
		server.Close()
	})
	ctx := expired{t.Context(), make(chan struct{})}
	client := NewClient(path)
	client.http.Transport = expiring{client.http.Transport, ctx}
	if _, err := client.Status(ctx); !errors.Is(err, errNoAgent) || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("no end of the answer in time: %v", err)
	}
}

// Why waits of transactions, or their stacks, are not known is said, and how stacks are walked if not as
// others; nothing where all is as it should be.
func TestWaits(t *testing.T) {
	for want, waits := range map[string]*sampling.WaitsStatus{
		"": {Kept: true, Stacks: true},
		"waits of transactions are not known: why":  {Error: "why"},
		"where transactions wait is not known: why": {Kept: true, StacksError: "why"},
		"stacks of waits are walked by frame pointers: why": {Kept: true, Stacks: true,
			StacksError: "by frame pointers: why"},
	} {
		all := strings.Join(totals(&Status{Status: agent.Status{Waits: waits}}), "\n")
		said := strings.Contains(all, "transactions") || strings.Contains(all, "stacks of")
		assert.Check(t, strings.Contains(all, want) && said == (want != ""), "%q: %s", want, all)
	}
}
