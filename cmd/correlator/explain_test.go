package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/admin"
	"correlator/internal/out/explain"
	"correlator/internal/out/keep"
	"correlator/otlp"
	"correlator/profile"
)

type keeper struct {
	*agentProcess
	socket string
}

func startKeeper(t *testing.T, flags ...string) *keeper {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin")
	return &keeper{startAgent(t, nil, append([]string{"--samples-per-second", "97", "--keep", "10m", "--admin-socket",
		socket}, flags...)...), socket}
}

func (k *keeper) explain(code int, args ...string) (stdout, stderr string) {
	k.t.Helper()
	cmd := exec.Command(installed(k.t), append([]string{"explain", "--admin-socket", k.socket}, args...)...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	_ = cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		k.t.Fatalf("explain %v: %v, want exit code %d\n%s%s", args, cmd.ProcessState, code, &out, &failure)
	}
	return out.String(), failure.String()
}

// explanation returns the explanation of an id, or an error where nothing is kept of it.
func (k *keeper) explanation(id string) (e explain.Explanation, err error) {
	k.t.Helper()
	options := explain.Options{Query: keep.Query{ID: id}, Format: explain.JSON}
	var out bytes.Buffer
	if err := explain.Run(k.t.Context(), admin.NewClient(k.socket), &out, io.Discard, options); err != nil {
		return e, err
	}
	err = json.Unmarshal(out.Bytes(), &e)
	assert.NilError(k.t, err, "\n%s", &out)
	return e, nil
}

// until waits until the explanation of an id is as it should be.
func (k *keeper) until(what, id string, done func(e *explain.Explanation) bool) (e explain.Explanation) {
	k.t.Helper()
	testenv.Poll(k.t, deadline, what, func() bool {
		var err error
		e, err = k.explanation(id)
		return err == nil && done(&e) // else it is not sampled yet
	})
	return e
}

func methods(all []*explain.Method) (names []string) {
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func has(e *explain.Explanation, function string) bool {
	return slices.ContainsFunc(methods(e.Methods), func(name string) bool { return strings.Contains(name, function) })
}

// What is kept of a process is explained by its ids, also when it has ended.
func TestExplain(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Manual: true, Busy: 1, Service: "shop\x1b[31m"})
	k := startKeeper(t)
	k.registered(p.PID)
	began := time.Now()
	begun := p.Begin(1)
	trace, id := begun.TraceID.String(), begun.TransactionID.String()
	e := k.until("named stacks", id, func(e *explain.Explanation) bool { return e.Samples >= 20 && has(e, begun.Kind) })
	p.Kill()

	if tx := e.Transactions[0]; len(e.Transactions) != 1 || tx.Trace != trace || tx.ID != id || tx.PID != p.PID ||
		tx.Context != "elastic" || tx.Service != "shop\x1b[31m" || tx.Samples != e.Samples ||
		tx.Wall <= 0 || tx.Wall > time.Since(began) || tx.CPU != time.Duration(tx.Samples)*e.PerSample {
		t.Errorf("%+v", tx)
	}
	th := e.Threads[0]
	assert.Check(t, len(e.Threads) == 1 && th.TID == begun.Thread.TID && th.Samples == e.Samples && th.Name != "",
		"threads: %+v", e.Threads)
	sum := uint64(0)
	for _, m := range e.Methods {
		if m.Caller < 0 {
			sum += m.Samples
		}
	}
	assert.Check(t, sum == e.Samples, "%d samples in methods, of %d", sum, e.Samples)

	out, _ := k.explain(0, trace[:8])
	for _, want := range []string{"transaction " + id + " of trace " + trace, `shop\x1b[31m`, "% of", begun.Kind} {
		assert.Check(t, want == "% of" || strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	for _, args := range [][]string{{}, {"--busiest", "1"},
		{"--slowest", "1", "--service", "shop.*", "--since", "1h"}} {
		out, _ := k.explain(0, args...)
		assert.Check(t, strings.Contains(out, begun.Kind), "explain %v says\n%s", args, out)
	}
	for _, args := range [][]string{{id, "--against", trace[:8]}, // before it and after it are two sides
		{"--slowest", "1", "--against", "--fastest", "1", "--service", "shop.*"}} {
		out, _ := k.explain(0, args...)
		assert.Check(t, strings.Contains(out, "1 of the transactions are in both\n") && strings.Contains(out, "\nB: "),
			"explain %v says\n%s", args, out)
	}
	const noneSelected = "no transaction was sampled that is selected"
	if _, stderr := k.explain(1, "--service", "other"); !strings.Contains(stderr, noneSelected) {
		t.Errorf("of another service: %s", stderr)
	}
	if _, stderr := k.explain(1, strings.Repeat("0", 32)); !strings.Contains(stderr, "no sample of 00000000") ||
		!strings.Contains(stderr, "another host") {
		t.Errorf("of an unknown trace: %s", stderr)
	}

	// The forms of files: labels, a line for each stack, one page.
	dir := t.TempDir()
	_, stderr := k.explain(0, id, "-o", "pprof", "-O", filepath.Join(dir, "p.pb.gz"))
	assert.Check(t, strings.Contains(stderr, "wrote "), stderr)
	written := readProfile(t, filepath.Join(dir, "p.pb.gz"))
	for _, sample := range written.Sample {
		assert.Assert(t, sample.Label["trace_id"][0] == trace && sample.Label["transaction_id"][0] == id &&
			sample.Label["service"][0] == `shop\x1b[31m` && sample.NumLabel["pid"][0] == int64(p.PID),
			"labels %v %v", sample.Label, sample.NumLabel)
	}
	found := functionsOf(written, id)
	assert.Check(t, found[begun.Kind], "its functions are %v", found)
	folded, _ := k.explain(0, id, "-o", "folded")
	assert.Check(t, strings.Contains(folded, ";"+begun.Kind+";") && strings.HasPrefix(folded, `shop\x1b[31m;`),
		"folded:\n%s", folded)
	k.explain(0, id, "-o", "html", "-O", filepath.Join(dir, "p.html"))
	page := testenv.ReadFile(t, filepath.Join(dir, "p.html"))
	if !bytes.Contains(page, []byte(begun.Kind)) || !bytes.Contains(page, []byte(trace)) || len(page) > 600<<10 {
		t.Errorf("a page of %d bytes", len(page))
	}
	counts := k.end()
	// On a busy machine, to look at a process may have taken too long.
	assert.Check(t, counts.sum("trouble_") == counts["trouble_"+process.ReasonTimeout.String()], counts)
}

// explainsAccount checks that each part of a transaction has its time, its stack, and who ended it: the lock's holder
// with its own transaction.
func (k *keeper) explainsAccount(p *demo.Process) {
	t := k.t
	status, err := admin.NewClient(k.socket).Status(t.Context())
	assert.NilError(t, err)
	if !status.Waits.Stacks {
		t.Logf("no stacks of waits: %s", status.Waits.StacksError)
		return
	}
	var truth demo.Accounted
	var a *explain.Account
	var sums map[profile.WaitKind]time.Duration
	var ended map[profile.WaitKind]keep.Waker
	testenv.Poll(t, deadline, "stacks of waits", func() bool { // one can be lost, for good in its transaction
		asked := 0 // stacks come later than the account
		truth = p.Account(1)
		took := map[profile.WaitKind]time.Duration{"lock": truth.Lock, "net": truth.Net, "sleep": truth.Sleep}
		k.until("the whole account", truth.TransactionID.String(), func(e *explain.Explanation) bool {
			if a = e.Transactions[0].Account; a == nil {
				return false
			}
			sums, ended = make(map[profile.WaitKind]time.Duration), make(map[profile.WaitKind]keep.Waker)
			for _, w := range e.Transactions[0].Waits {
				sums[w.Kind] += w.Sum
				if len(w.Frames) > 0 && w.Waker != nil {
					ended[w.Kind] = *w.Waker
				}
			}
			for kind := range took {
				if sums[kind] == 0 || sums[kind]+a.OnCPU+a.Unaccounted+a.Runnable+a.Throttled < took[kind] {
					return false
				}
			}
			asked++
			return a.OnCPU+a.Unaccounted >= truth.CPU && (len(ended) >= len(took) || asked >= 100)
		})
		return len(ended) >= len(took)
	})
	assert.Check(t, a.Wall == a.OnCPU+a.Runnable+a.Throttled+a.Blocked, "%+v", a)
	assert.Check(t, sums["lock"] <= truth.Wall && sums["net"] <= truth.Net && sums["sleep"] <= truth.Sleep,
		"%v, %+v of %+v", sums, a, truth)
	holder := ended["lock"]
	assert.Check(t, holder.Source == profile.ThreadWaker && holder.Thread == "holder" && holder.ID != "" &&
		holder.ID != truth.TransactionID.String() && holder.Trace != truth.TraceID.String(), "%+v", holder)
	assert.Check(t, ended["sleep"].Source == profile.TimerWaker && ended["sleep"].Thread == "", "%+v", ended["sleep"])
}

// A process is explained without an agent and without contexts: its threads' states add up to how long they were seen,
// and its methods have names.
func TestExplainProcess(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Busy: 1, Idle: 1, Transaction: 20 * time.Millisecond, Gap: -1})
	named := func(name string) bool { return strings.Contains(name, "main") || strings.Contains(name, "thread") }
	for length := time.Second; ; length *= 2 { // until there were enough CPU time and switches for all
		command := exec.Command(installed(t), "explain", "--pid", strconv.Itoa(p.PID), "--for", length.String(),
			"-o", "json")
		var failure bytes.Buffer
		command.Stderr = &failure
		out, err := command.Output()
		if err != nil && strings.Contains(failure.String(), "recording waits") {
			testenv.Missing(t, failure.String())
		}
		assert.NilError(t, err, failure.String())
		var e explain.ProcessExplanation
		assert.NilError(t, json.Unmarshal(out, &e))
		assert.Check(t, len(e.Processes) == 1 && e.Processes[0].PID == p.PID, "%s", out)
		for _, th := range e.Threads {
			a := th.Account
			assert.Check(t, a != nil && a.Wall > 0 && a.Wall == a.OnCPU+a.Runnable+a.Throttled+a.Blocked+a.Unaccounted,
				"%+v: %+v", th, a)
		}
		if e.Account.OnCPU > 0 && len(e.Threads) > 2 && slices.ContainsFunc(methods(e.Methods), named) {
			break
		}
		assert.Assert(t, length < deadline, "%s", out)
	}
}

// What a transaction waited for is explained, without a single sample; with --waits off, it is not.
func TestExplainWaits(t *testing.T) {
	needSampler(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	k := startKeeper(t)
	k.registered(p.PID)
	waited := p.WaitIn(1, "net", 50*time.Millisecond)
	id := waited.TransactionID.String()
	e := k.until("the whole account", id, func(e *explain.Explanation) bool {
		a := e.Transactions[0].Account
		return a != nil && a.Wall+a.Unaccounted >= waited.Waited
	})
	tx := e.Transactions[0]
	a := tx.Account
	// That for a CPU may be longer.
	i := slices.IndexFunc(tx.Waits, func(w explain.Wait) bool { return w.Kind == "net" })
	assert.Assert(t, i >= 0, "%+v", tx)
	of := tx.Waits[i]
	assert.Check(t, tx.Trace == waited.TraceID.String() && of.Count == 1 && of.Sum == of.Longest &&
		of.Sum <= waited.Waited, "%v: %+v", waited, tx)
	assert.Check(t, a.Wall == a.OnCPU+a.Runnable+a.Throttled+a.Blocked && a.Blocked >= of.Sum, "%v: %+v", waited, a)
	out, _ := k.explain(0, id)
	assert.Check(t, strings.Contains(out, "\nnetwork "), out)

	k.explainsAccount(p)

	without := startKeeper(t, "--waits", "off")
	without.registered(p.PID)
	waited = p.WaitIn(1, "net", 50*time.Millisecond)
	id = waited.TransactionID.String()
	k.until("an account, by the other agent", id, func(e *explain.Explanation) bool {
		return e.Transactions[0].Account != nil
	})
	// The thread may have been sampled on its way into the wait.
	if e, err := without.explanation(id); err == nil {
		assert.Check(t, e.Samples > 0 && e.Transactions[0].Account == nil && e.Transactions[0].Waits == nil &&
			strings.HasSuffix(e.UnknownWaits, "(--waits off)"), "%+v", e)
	}
}

// A transaction whose span comes in by OTLP has its time, and says so; with what no thread is known of, the sums are
// it.
func TestExplainSpan(t *testing.T) {
	needSampler(t)
	dir := t.TempDir()
	openBackend(t, filepath.Join(dir, "otlp"))
	listen := "unix:" + filepath.Join(dir, "listen")
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	k := startKeeper(t, "--otlp-endpoint", "unix:"+filepath.Join(dir, "otlp"), "--otlp-listen", listen)
	k.registered(p.PID)
	began := time.Now().Add(-time.Second)
	waited := p.WaitIn(1, "net", 50*time.Millisecond)
	took := time.Since(began) + time.Second
	span := spans("shop", 7)
	of := span.ResourceSpans[0].ScopeSpans[0].Spans[0]
	of.TraceId, of.SpanId = waited.TraceID[:], waited.TransactionID[:]
	of.StartTimeUnixNano, of.EndTimeUnixNano = uint64(began.UnixNano()), uint64(began.Add(took).UnixNano())
	client, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{otlp.NewDestination(listen)},
		Version: "test"})
	assert.NilError(t, err)
	client.Enqueue(otlp.NewBatch(otlp.Traces, encoded(t, span), 1, began))
	assert.Check(t, client.Shutdown(t.Context()))
	e := k.until("the span's time", waited.TransactionID.String(), func(e *explain.Explanation) bool {
		a := e.Transactions[0].Account
		return a != nil && a.WallSource == "span" && a.Blocked > 0
	})
	tx := e.Transactions[0]
	a := tx.Account
	assert.Check(t, a.Wall == took && tx.Wall == took && tx.WallSource == "span" &&
		a.NoThread >= 2*time.Second-waited.Waited &&
		a.Wall == a.OnCPU+a.Runnable+a.Throttled+a.Blocked+a.Unaccounted+a.NoThread, "%v: %+v", took, a)
	out, _ := k.explain(0, "--slowest", "1")
	assert.Check(t, strings.Contains(out, "by its span") && strings.Contains(out, "on no known thread"), out)
}

// Contexts of OpenTelemetry's are kept, too, though nothing is exported; spans are apart.
func TestExplainOTel(t *testing.T) {
	needSampler(t)
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 1})
	k := startKeeper(t)
	record := demo.OTelRecord{TraceID: demo.TraceID{1, 2, 3, 4}, SpanID: demo.SpanID{5, 6, 7, 8},
		Attributes: demo.OTelAttribute(demo.OTelAttribute(nil, 0, "0a0b0c0d0e0f1011"), 1, "/orders")}
	w.Begin(1, record)
	w.Busy(1, true)
	of := func(span demo.SpanID) func(*explain.Explanation) bool {
		return func(e *explain.Explanation) bool {
			return slices.ContainsFunc(e.Spans, func(s explain.Span) bool {
				return s.ID == span.String() && s.Samples > 0
			})
		}
	}
	e := k.until("samples of the first span", "01020304", of(record.SpanID))
	if tx := e.Transactions[0]; tx.ID != "0a0b0c0d0e0f1011" || tx.Context != "opentelemetry" ||
		tx.Service != "checkout" || tx.Attributes["http.route"] != "/orders" || tx.PID != w.PID {
		t.Errorf("%+v", tx)
	}
	record.SpanID = demo.SpanID{9}
	w.Begin(1, record)
	e = k.until("samples of both spans", "0a0b0c0d", of(record.SpanID))
	assert.Check(t, len(e.Spans) == 2 && len(e.Transactions) == 1, "%+v", e.Spans)
	out, _ := k.explain(0, record.SpanID.String())
	assert.Check(t, strings.Contains(out, "/orders"), "by the id of a span:\n%s", out)
	k.end()
}

// Java methods have lines.
func TestExplainJVM(t *testing.T) {
	needSampler(t)
	p := demo.StartJVM(t, demo.JVMOptions{Threads: 1, Busy: true, Service: "java"})
	k := startKeeper(t, "--unwinder", "full")
	k.registered(p.PID)
	testenv.Poll(t, deadline, "an unwound process", func() bool { // the first samples are walked by frame pointers
		u := statusAt(t, k.socket).Unwinding
		return u != nil && u.Unwound == 1
	})
	begun := p.Begin(1)
	id := begun.TransactionID.String()
	k.until("Java methods with lines", id, func(e *explain.Explanation) bool {
		return slices.ContainsFunc(e.Methods, func(m *explain.Method) bool {
			return strings.HasPrefix(m.Name, "Demo$Worker") && m.File == "Demo.java" && len(m.Lines) > 0 &&
				2*m.Samples > e.Samples
		})
	})
	out, _ := k.explain(0, id)
	assert.Check(t, strings.Contains(out, "Demo.java:") && strings.Contains(out, "pid "+strconv.Itoa(p.PID)), out)
	t.Log("\n" + out)
	k.end()
}
