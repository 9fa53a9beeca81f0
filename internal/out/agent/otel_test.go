package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/profile"
)

// sampleKeeper is an Exporter that keeps samples, by all but their stack and times.
type sampleKeeper struct {
	untraced bool

	mu      sync.Mutex
	samples map[keptSample]uint64
}

type keptSample struct {
	service               profile.Service
	pid, tid              int
	context               profile.ContextKind
	trace                 [16]byte
	span, transaction     [8]byte
	attributes            string
	executable, container string
}

func (k *sampleKeeper) Sampled(s *profile.Sample) {
	var attributes []string
	for key, value := range s.Attributes.All() {
		attributes = append(attributes, fmt.Sprintf("%s=%q", key, value))
	}
	key := keptSample{
		service: s.Resource.Service, pid: s.Resource.PID, tid: s.TID, context: s.Context, trace: s.TraceID,
		span: s.SpanID, transaction: s.TransactionID, attributes: fmt.Sprint(attributes),
		executable: s.Resource.ExecutableName, container: s.Resource.ContainerID,
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.samples == nil {
		k.samples = make(map[keptSample]uint64)
	}
	k.samples[key] += s.Count
}

func (k *sampleKeeper) TakesSamples() bool { return true }

func (k *sampleKeeper) TakesUntraced() bool { return k.untraced }

// find returns the samples for which a function returns true.
func (k *sampleKeeper) find(is func(keptSample) bool) map[keptSample]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := maps.Clone(k.samples)
	maps.DeleteFunc(found, func(s keptSample, _ uint64) bool { return !is(s) })
	return found
}

// await waits until there are samples for which a function returns true, and returns one of them.
func (k *sampleKeeper) await(t *testing.T, what string, is func(keptSample) bool) (sample keptSample) {
	t.Helper()
	testenv.Poll(t, deadline, what, func() bool {
		for sample = range k.find(is) {
			return true
		}
		return false
	})
	return sample
}

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

// Whom a sample belongs to comes from the thread's record, who the process is from its context. The
// process has no socket, and is sent nothing.
func TestOTelContexts(t *testing.T) {
	for _, o := range []demo.OTelOptions{
		{}, {Dynamic: true, InPlace: true}, {Musl: true}, {Form: demo.OTelGD},
		{Form: demo.OTelIE, Program: demo.OTelLinked}, {Program: demo.OTelPIE}, {Program: demo.OTelStatic, Musl: true},
	} {
		t.Run(fmt.Sprintf("%s%s musl=%v", o.Program, o.Form, o.Musl), func(t *testing.T) {
			keeper := new(sampleKeeper)
			r := runWith(t, keeper, func(*Agent) {}, atRate(997), contextAttributes)
			o.Threads = 2
			w := demo.StartOTel(t, o)
			thread := w.Begin(1, newRecord(7, "/pay/:id"))
			w.Begin(2, newRecord(8, "/cart"))
			w.Busy(1, true)
			w.Busy(2, true)
			other := keeper.await(t, "samples", func(s keptSample) bool { return s.attributes == otelAttributes(8, "/cart") })
			got := keeper.await(t, "samples", func(s keptSample) bool { return s.tid == thread.TID })
			want := keptSample{
				service: profile.Service{Name: "checkout", Environment: "prod", SDKLanguage: "cpp",
					InstanceID: "123d8444-2c7e-46e3-89f6-6217880f7123"},
				pid: w.PID, tid: thread.TID, context: profile.OTelContext,
				trace: newRecord(7, "").TraceID, span: newRecord(7, "").SpanID, transaction: [8]byte{7: 7},
				attributes: otelAttributes(7, "/pay/:id"), executable: "otel",
			}
			assert.Check(t, got == want && other.tid != got.tid && other.trace == newRecord(8, "").TraceID,
				"got %+v and %+v, want %+v", got, other, want)
			view := r.state(&demo.Process{PID: w.PID}, process.StateAttached, "")
			assert.Check(t, slices.Equal(view.Contexts, []string{"opentelemetry"}) && view.OTel.TLS != "" &&
				view.TLSText() == view.OTel.TLS,
				"%+v, %+v", view, view.OTel)
			r.end()
			r.sampledAdded()
			all := keeper.find(func(s keptSample) bool { return true })
			assert.Check(t, len(all) == 2, "%+v", all)
			added := r.Counters().Messages.Added.Load()
			assert.Check(t, added == 0, "%d samples are for a sender", added)
		})
	}
}

func otelAttributes(n int, route string) string {
	return fmt.Sprintf("[datadog.local_root_span_id=%q http.route=%q]", fmt.Sprintf("%016x", n), route)
}

// What a process publishes is followed: an update, the end, another one, another program, a child
// that publishes its own.
func TestOTelContextLife(t *testing.T) {
	keeper := new(sampleKeeper)
	r := runWith(t, keeper, func(*Agent) {}, atRate(997), contextAttributes)
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 1})
	of := &demo.Process{PID: w.PID}
	work := func(n int, route string) {
		t.Helper()
		w.Begin(1, newRecord(n, route))
		w.Busy(1, true)
	}
	named := func(name string, n int) func(keptSample) bool {
		return func(s keptSample) bool { return s.service.Name == name && s.trace == newRecord(n, "").TraceID }
	}
	work(1, "/a")
	keeper.await(t, "samples", named("checkout", 1))

	w.SetResource("service.name", "basket")
	w.SetKeys("datadog.local_root_span_id", "unwanted", "http.route")
	w.Publish()
	keeper.await(t, "samples of the updated context", named("basket", 1))
	record := newRecord(2, "not a route")
	record.Attributes = demo.OTelAttribute(record.Attributes, 2, "/b")
	w.Begin(1, record)
	got := keeper.await(t, "samples with the new key map", named("basket", 2))
	assert.Check(t, got.attributes == otelAttributes(2, "/b"), got.attributes)

	w.Withdraw()
	r.gone(of)
	w.Begin(1, newRecord(3, ""))
	w.Publish()
	r.state(of, process.StateAttached, "")
	keeper.await(t, "samples after another publication", named("basket", 3))

	w.Restart()
	work(4, "/c")
	keeper.await(t, "samples of the next program", named("checkout", 4))

	child := w.Fork(true, true)
	r.state(&demo.Process{PID: child}, process.StateAttached, "")
	w.Busy(1, false)
	w.Exec("/bin/sleep", "1000")
	r.gone(of)
	w.Kill()
	r.end()
	r.sampledAdded()
	mixed := keeper.find(named("basket", 4))
	assert.Check(t, len(mixed) == 0, "%+v", mixed)
}

// What a thread works on is nothing while its record is not valid, has no ids, or is not there: its
// samples are exported without a trace, if that is wanted.
func TestOTelWithoutTrace(t *testing.T) {
	keeper := &sampleKeeper{untraced: true}
	r := runWith(t, keeper, func(*Agent) {}, atRate(997), contextAttributes)
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
		keeper.await(t, "samples of thread "+strconv.Itoa(i), func(s keptSample) bool {
			return s.tid == threads[i].TID
		})
	}
	r.end()
	r.sampledAdded()
	for sample := range keeper.find(func(s keptSample) bool { return s.pid == w.PID }) {
		assert.Check(t, sample.trace == [16]byte{} && sample.attributes == "[]", "%+v", sample)
	}
	for _, outcome := range []bpf.KernelOutcome{bpf.NotValid, bpf.ZeroIDs, bpf.NoSlot} {
		assert.Check(t, r.kernel(outcome) != 0, "no samples are %v", outcome)
	}
}

// Threads whose process says nothing of them, or by a schema that cannot be read, take part as what
// they are: of a process that is known.
func TestOTelSchemas(t *testing.T) {
	for _, c := range []struct {
		options demo.OTelOptions
		schema  process.ThreadSchema
	}{
		{demo.OTelOptions{NoThreads: true}, process.SchemaNone},
		{demo.OTelOptions{Schema: "go_pprof_labels_v1"}, process.SchemaGoLabels},
		{demo.OTelOptions{Schema: "something\x1b[2J"}, process.SchemaOther},
	} {
		t.Run(c.schema.String(), func(t *testing.T) {
			keeper := &sampleKeeper{untraced: true}
			r := runWith(t, keeper, func(*Agent) {}, atRate(997))
			c.options.Threads = 1
			w := demo.StartOTel(t, c.options)
			w.Begin(1, newRecord(1, ""))
			w.Busy(1, true)
			sample := keeper.await(t, "samples", func(s keptSample) bool { return s.pid == w.PID })
			assert.Check(t, sample.service.Name == "checkout" && sample.trace == [16]byte{}, "%+v", sample)
			if read := r.Counters().Contexts[c.schema].Load(); read != 1 {
				t.Errorf("%d contexts of schema %v were read", read, c.schema)
			}
		})
	}
}

// A process that nothing is wanted of, or whose context cannot be read, is not probed again and again:
// only as often as sweeps ask for it, and a few times more.
func TestOTelProbedSeldom(t *testing.T) {
	for _, c := range []struct {
		name     string
		exporter Exporter
		options  demo.OTelOptions
		excluded string
		spoil    bool
		state    process.State
	}{
		{"served", new(sampleKeeper), demo.OTelOptions{}, "", false, process.StateAttached},
		{"nothing is exported", noExporter{}, demo.OTelOptions{}, "", false, process.StateAttached},
		{"left out", new(sampleKeeper), demo.OTelOptions{}, "checkout", false, process.StateFiltered},
		{"no variable", new(sampleKeeper), demo.OTelOptions{Hold: true}, "", false, process.StateAttached},
		{"neither", noExporter{}, demo.OTelOptions{Hold: true}, "", false, process.StateAttached},
		{"no signature", new(sampleKeeper), demo.OTelOptions{}, "", true, process.StateNoStorage},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runWith(t, c.exporter, func(*Agent) {}, atRate(97), func(cfg *Config) {
				var err error
				cfg.Filter.ExcludeServices, err = process.ParsePatterns(c.excluded)
				assert.NilError(t, err)
			})
			w := demo.StartOTel(t, c.options)
			if c.options.Hold {
				w.Publish()
			}
			of := &demo.Process{PID: w.PID}
			if c.spoil {
				r.state(of, process.StateAttached, "")
				w.SpoilHeader("signature", 1)
			}
			r.state(of, c.state, "")
			const sweeps = 30
			swept, probed := r.Counters().Sweeps.Load(), r.Counters().Probes.Load()
			testenv.Poll(t, deadline, "sweeps", func() bool { return r.Counters().Sweeps.Load() >= swept+sweeps })
			probes := r.Counters().Probes.Load() - probed
			assert.Check(t, probes <= 3*sweeps, "%d probes in %d sweeps", probes, sweeps)
		})
	}
}
