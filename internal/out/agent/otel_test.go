package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/profile"
)

// newRecord is a thread's work number n, in a route.
func newRecord(n int, route string) demo.OTelRecord {
	r := demo.OTelRecord{
		TraceID: demo.TraceID([]byte(fmt.Sprintf("trace %-10d", n))),
		SpanID:  demo.SpanID([]byte(fmt.Sprintf("span%-4d", n))),
	}
	r.Attributes = demo.OTelAttribute(nil, 0, fmt.Sprintf("%016x", n))
	r.Attributes = demo.OTelAttribute(r.Attributes, 1, route)
	return r
}

func contextAttributes(c *Config) {
	c.Attributes = []string{"datadog.local_root_span_id", "http.route"}
}

func otelAttributes(n int, route string) string {
	return fmt.Sprintf("[datadog.local_root_span_id=%q http.route=%q]", fmt.Sprintf("%016x", n), route)
}

// Processes that publish by OpenTelemetry's standards alone are sampled, and nothing is for a sender.
func TestOTelContexts(t *testing.T) {
	r := run(t, atRate(997), contextAttributes)
	r.parts(map[string]func(*running){"samples": (*running).otelSamples, "life": (*running).otelLife})
	added := r.Counters().Messages.SamplesQueued.Load()
	assert.Check(t, added == 0, "%d samples are for a sender", added)
}

// Whom a sample belongs to comes from the thread's record, who the process is from its context. The
// process has no socket, and is sent nothing. (TestOTelContexts of package bpf has all kinds of rules.)
func (r *running) otelSamples() {
	for _, o := range []demo.OTelOptions{
		{}, {Dynamic: true, InPlace: true}, {Form: demo.OTelIE, Program: demo.OTelLinked},
		{Program: demo.OTelStatic, Musl: true},
	} {
		r.t.Run(fmt.Sprintf("%s%s musl=%v", o.Program, o.Form, o.Musl), func(t *testing.T) {
			r := r.in(t)
			o.Threads = 2
			w := demo.StartOTel(t, o)
			thread := w.Begin(1, newRecord(7, "/pay/:id"))
			w.Begin(2, newRecord(8, "/cart"))
			w.Busy(1, true)
			w.Busy(2, true)
			isOwn := func(s keptSample) bool { return s.pid == w.PID }
			other := r.kept.await(t, "samples", func(s keptSample) bool {
				return isOwn(s) && s.attributes == otelAttributes(8, "/cart")
			})
			got := r.kept.await(t, "samples", func(s keptSample) bool { return isOwn(s) && s.tid == thread.TID })
			want := keptSample{
				service: profile.Service{Name: "checkout", Environment: "prod", SDKLanguage: "cpp",
					InstanceID: "123d8444-2c7e-46e3-89f6-6217880f7123"},
				pid: w.PID, tid: thread.TID, context: profile.OTelContext,
				trace: newRecord(7, "").TraceID, span: newRecord(7, "").SpanID, transaction: [8]byte{7: 7},
				attributes: otelAttributes(7, "/pay/:id"), executable: "otel",
			}
			assert.Check(t, got == want && other.tid != got.tid && other.trace == newRecord(8, "").TraceID,
				"got %+v and %+v, want %+v", got, other, want)
			p := &demo.Process{PID: w.PID}
			view := r.state(p, process.StateAttached, "")
			assert.Check(t, slices.Equal(view.Contexts, []string{"opentelemetry"}) && view.OTel.TLS != "" &&
				view.TLSText() == view.OTel.TLS, "%+v, %+v", view, view.OTel)
			w.Kill()
			r.gone(p)
			all := r.kept.find(isOwn)
			assert.Check(t, len(all) == 2, "%+v", all)
		})
	}
}

// What a process publishes is followed: an update, the end, another one, another program, a child
// that publishes its own.
func (r *running) otelLife() {
	t := r.t
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 1})
	p := &demo.Process{PID: w.PID}
	work := func(n int, route string) {
		t.Helper()
		w.Begin(1, newRecord(n, route))
		w.Busy(1, true)
	}
	named := func(name string, n int) func(keptSample) bool {
		return func(s keptSample) bool {
			return s.pid == w.PID && s.service.Name == name && s.trace == newRecord(n, "").TraceID
		}
	}
	work(1, "/a")
	r.kept.await(t, "samples", named("checkout", 1))

	w.SetResource("service.name", "basket")
	w.SetKeys("datadog.local_root_span_id", "unwanted", "http.route")
	w.Publish()
	r.kept.await(t, "samples of the updated context", named("basket", 1))
	record := newRecord(2, "not a route")
	record.Attributes = demo.OTelAttribute(record.Attributes, 2, "/b")
	w.Begin(1, record)
	got := r.kept.await(t, "samples with the new key map", named("basket", 2))
	assert.Check(t, got.attributes == otelAttributes(2, "/b"), got.attributes)

	w.Withdraw()
	r.gone(p)
	w.Begin(1, newRecord(3, ""))
	w.Publish()
	r.state(p, process.StateAttached, "")
	r.kept.await(t, "samples after another publication", named("basket", 3))

	w.Restart()
	work(4, "/c")
	r.kept.await(t, "samples of the next program", named("checkout", 4))

	child := w.Fork(true, true)
	r.state(&demo.Process{PID: child}, process.StateAttached, "")
	w.Busy(1, false)
	w.Exec("/bin/sleep", "1000")
	r.gone(p)
	w.Kill()
	r.recounted()
	mixed := r.kept.find(named("basket", 4))
	assert.Check(t, len(mixed) == 0, "%+v", mixed)
}

// What a thread works on is nothing while its record is not valid, has no ids, or is not there: its
// samples are exported without a trace, if that is wanted. So are those of threads whose process says
// nothing of them, or by a schema that cannot be read.
func TestOTelWithoutTrace(t *testing.T) {
	r := runWith(t, &keeper{untraced: true}, atRate(997), contextAttributes)
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 4})
	threads := w.Threads()
	valid := newRecord(1, "/a").Bytes()
	for i, spoil := range []func([]byte){
		1: func(b []byte) { b[24] = 2 },
		2: func(b []byte) { clear(b[:24]) },
		3: func(b []byte) { clear(b[16:24]) },
	} {
		if spoil != nil {
			record := slices.Clone(valid)
			spoil(record)
			w.SetRecord(i, record)
		}
	}
	w.Clear(4)
	for i := 1; i <= 4; i++ {
		w.Busy(i, true)
		r.kept.await(t, fmt.Sprintf("samples of thread %d", i), func(s keptSample) bool {
			return s.tid == threads[i].TID
		})
	}
	for _, c := range []struct {
		options demo.OTelOptions
		schema  process.ThreadSchema
	}{
		{demo.OTelOptions{NoThreads: true}, process.SchemaNone},
		{demo.OTelOptions{Schema: "go_pprof_labels_v1"}, process.SchemaGoLabels},
		{demo.OTelOptions{Schema: "something\x1b[2J"}, process.SchemaOther},
	} {
		c.options.Threads = 1
		w := demo.StartOTel(t, c.options)
		w.Begin(1, newRecord(1, ""))
		w.Busy(1, true)
		sample := r.kept.await(t, "samples", func(s keptSample) bool { return s.pid == w.PID })
		assert.Check(t, sample.service.Name == "checkout", "%+v", sample)
		read := r.Counters().Contexts[c.schema].Load()
		assert.Check(t, read == 1, "%d contexts of schema %v were read", read, c.schema)
	}
	r.end()
	r.added()
	wrong := r.kept.find(func(s keptSample) bool { return s.trace != [16]byte{} || s.attributes != "[]" })
	assert.Check(t, len(wrong) == 0, "%+v", wrong)
	for _, outcome := range []bpf.KernelOutcome{bpf.NotValid, bpf.ZeroIDs, bpf.NoSlot} {
		assert.Check(t, r.kernel(outcome) > 0, "no samples are %v", outcome)
	}
}

// Where all processes are sampled, those that publish nothing are, too, those that begin later among them; one that
// begins to publish is registered with, and its samples have traces.
func TestAllProcesses(t *testing.T) {
	r := runWith(t, &keeper{untraced: true}, atRate(997), sweepOnce, func(c *Config) {
		c.Filter.All = true
		c.Filter.IncludeServices, _ = process.ParsePatterns("first|second|demo")
	})
	start := func(name string) *demo.Process {
		return demo.Start(t, demo.Options{Hold: true, Manual: true, Busy: 1,
			Placement: demo.Placement{Env: []string{"OTEL_SERVICE_NAME=" + name}}})
	}
	first := start("first")
	of := func(p *demo.Process, traced bool) func(keptSample) bool {
		return func(s keptSample) bool { // it may have been sampled as what executed it
			return s.pid == p.PID && s.executable == "demo" && (s.trace != [16]byte{}) == traced
		}
	}
	sample := r.kept.await(t, "samples", of(first, false))
	assert.Check(t, sample.service.Name == "first", "%+v", sample)
	assert.Check(t, len(r.state(first, process.StateAttached, "").Contexts) == 0)
	second := start("second")
	r.kept.await(t, "samples", of(second, false))
	testenv.Poll(t, deadline, "samples that are for the exporter alone", func() bool {
		return r.statusOf(second).Exported > 0
	})
	first.Load()
	first.Publish()
	first.Begin(1)
	r.kept.await(t, "samples with a trace", of(first, true))
	r.state(first, process.StateRegistered, "")
	r.end()
	r.added()
}

// A process that nothing is wanted of, or whose context cannot be read, is not probed again and again:
// only as often as sweeps ask for it, and a few times more.
func TestOTelProbedSeldom(t *testing.T) {
	for name, exporter := range map[string]Exporter{"exported": new(keeper), "nothing is exported": nil} {
		t.Run(name, func(t *testing.T) {
			r := runWith(t, exporter, atRate(97), func(cfg *Config) {
				cfg.Filter.ExcludeServices = patterns(t, "left-out")
			})
			served, held, out := demo.StartOTel(t, demo.OTelOptions{}), demo.StartOTel(t, demo.OTelOptions{Hold: true}),
				demo.StartOTel(t, demo.OTelOptions{})
			held.Publish() // without the variable
			out.SetResource("service.name", "left-out")
			out.Publish()
			processes := map[*demo.OTel]process.State{served: process.StateAttached, held: process.StateAttached,
				out: process.StateFiltered}
			if exporter != nil {
				spoilt := demo.StartOTel(t, demo.OTelOptions{})
				r.state(&demo.Process{PID: spoilt.PID}, process.StateAttached, "")
				spoilt.SpoilHeader("signature", 1)
				processes[spoilt] = process.StateNoStorage
			}
			for w, state := range processes {
				r.state(&demo.Process{PID: w.PID}, state, "")
			}
			sweeps, probes := r.Counters().Sweeps.Load(), r.Counters().Probes.Load()
			r.swept(15)
			probes, sweeps = r.Counters().Probes.Load()-probes, r.Counters().Sweeps.Load()-sweeps+1
			most := 3 * sweeps * uint64(len(processes))
			assert.Check(t, probes <= most, "%d probes in %d sweeps, want %d at most", probes, sweeps, most)
		})
	}
}

// A process with both kinds of contexts: while a thread's slot has a trace, that counts, for messages
// and for the exporter; while it has none, the record, for the exporter alone. Either is of use
// without the other.
func TestBothContexts(t *testing.T) {
	r := run(t, atRate(997), contextAttributes)
	var processes []*bothContexts
	for _, flavor := range []demo.Flavor{demo.Glibc, demo.Musl} {
		p := &bothContexts{running: r, record: newRecord(1, "/a"), Process: demo.Start(t, demo.Options{Flavor: flavor,
			Service: "both", Busy: 1, Transaction: 50 * time.Millisecond, Gap: 50 * time.Millisecond, OTel: true})}
		p.SetOTelRecord(1, &p.record)
		p.live()
		p.StopThreads()
		processes = append(processes, p)
	}
	r.end()
	r.added()
	var ofRecords, notSent uint64
	for _, p := range processes {
		of, not := p.verify()
		ofRecords, notSent = ofRecords+of, notSent+not
	}
	assert.Check(t, r.Counters().Sampling.Outcomes[process.OutcomeOTel].Load() == ofRecords)
	assert.Check(t, notSent == dropped(&r.Counters().Messages), "%d samples exported and not sent", notSent)
}

// bothContexts is a process with both kinds of contexts, and one record.
type bothContexts struct {
	*running
	*demo.Process
	record demo.OTelRecord
}

// await waits for samples of the record.
func (p *bothContexts) await(what string, more uint64, service string) {
	p.running.t.Helper()
	count := func() (sum uint64) {
		for _, n := range p.kept.find(func(s keptSample) bool {
			return s.pid == p.PID && s.trace == p.record.TraceID && (service == "" || s.service.Name == service)
		}) {
			sum += n
		}
		return sum
	}
	before := count()
	testenv.Poll(p.running.t, deadline, what, func() bool { return count() >= before+more })
}

// live has the process publish by both standards, by either, and by both again.
func (p *bothContexts) live() {
	r := p.running
	r.sampledReport(p.Process, 50)
	p.await("samples between transactions", 50, "")
	r.contexts(p.Process, process.StateRegistered, "elastic", "opentelemetry")

	p.WithdrawOTel()
	r.contexts(p.Process, process.StateRegistered, "elastic")
	r.sampledReport(p.Process, p.Report().Samples+50)

	p.PublishOTel("other")
	r.contexts(p.Process, process.StateRegistered, "elastic", "opentelemetry")
	p.await("samples of the other service", 20, "other")
	assert.Check(r.t, p.Report().Registrations == 1)

	p.Withdraw()
	r.contexts(p.Process, process.StateAttached, "opentelemetry")
	p.await("samples without a slot", 50, "")

	p.Publish()
	r.contexts(p.Process, process.StateRegistered, "elastic", "opentelemetry")
	p.SetOTelRecord(1, nil)
	r.sampledReport(p.Process, p.Report().Samples+50)
}

// verify checks, after the end, what the exporter has of the process. It returns how many samples are of the
// record, and how many of transactions were not sent.
func (p *bothContexts) verify() (ofRecord, notSent uint64) {
	t, report := p.running.t, p.Quit()
	clean(t, report)
	byTrace := make(map[[16]byte]uint64)
	for sample, n := range p.kept.find(func(s keptSample) bool { return s.pid == p.PID }) {
		byTrace[sample.trace] += n
		if sample.trace != p.record.TraceID {
			assert.Check(t, sample.attributes == "[]" && sample.context == profile.ElasticContext, "%+v", sample)
			continue
		}
		assert.Check(t, sample.span == p.record.SpanID && sample.transaction == [8]byte{7: 1} &&
			sample.attributes == otelAttributes(1, "/a") && sample.context == profile.OTelContext &&
			(sample.service.Name == "both" || sample.service.Name == "other"), "%+v", sample)
	}
	ofRecord = byTrace[p.record.TraceID]
	delete(byTrace, p.record.TraceID)
	// What was exported of transactions was sent, or dropped when there was no socket.
	for _, transaction := range report.Transactions {
		got, sent := byTrace[transaction.TraceID], transaction.Samples+transaction.LateSamples
		assert.Check(t, got >= sent, "%d samples of %v exported, %d sent", got, transaction.TraceID, sent)
		notSent += got - sent
		delete(byTrace, transaction.TraceID)
	}
	assert.Check(t, len(byTrace) == 0, "samples of traces that are none of the process: %v", byTrace)
	return ofRecord, notSent
}
