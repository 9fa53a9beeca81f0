package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/messaging/feed"
)

// Processes are served wherever the variable was placed, however the library was linked, and as whom
// and where they run: each thread that works on a transaction gets a sample on it.
func (r *running) wherever() {
	t := r.t
	options := make(map[string]demo.Options)
	for _, flavor := range demo.Flavors() {
		options[flavor.String()] = demo.Options{Flavor: flavor}
	}
	linked := []string{"dtpmod-local", "dtpmod-nosections", "tlsdesc-lld", "tlsdesc-lld-local", "tlsdesc-local",
		"tlsdesc-nosections"}
	if demo.Machine == "x86_64" { // on AArch64 nobody makes such
		linked = append(linked, "dtpmod-lld-local", "tlsdesc-sysvhash")
	}
	for _, name := range linked {
		options[name] = demo.Options{Library: demo.Fixture(t, demo.Machine+"-glibc-"+name)}
	}
	options["mount namespace"] = demo.Options{Placement: demo.Placement{PrivateTmp: true}}
	options["pid namespace"] = demo.Options{Placement: demo.Placement{PIDNamespace: true}}
	options["another user"] = demo.Options{Placement: demo.Placement{UID: 4711, GID: 4712}}
	options["auto mode"] = demo.Options{Auto: true}
	for name, o := range options {
		t.Run(name, func(t *testing.T) {
			r := r.in(t)
			o.Manual, o.Idle, o.Service, o.Environment = true, 2, "shop", "production"
			p := demo.Start(t, o)
			registration := p.Registration(1)
			assert.Check(t, registration.SamplesDelayMillis == 300 && registration.HostID == testHostID,
				"registered with %+v", registration)
			view := r.state(p, process.StateRegistered, "")
			assert.Check(t, view.ServiceName == "shop" && view.ServiceEnvironment == "production" &&
				view.SocketPath == p.Socket && view.Library == p.Library, "%+v", view)
			if o.PIDNamespace {
				assert.Check(t, p.Threads()[0].TID == 1) // it calls itself so
				clean(t, p.Quit())
				return
			}
			for thread := range 3 { // the main thread and the others
				r.served(p, thread, [16]byte{1, byte(thread)})
			}
			clean(t, p.Quit())
			r.gone(p)
		})
	}
}

// The threads of a JVM are served, however the variable was placed.
func (r *running) servedJVM() {
	for name, placement := range map[string]demo.Placement{
		"static":  {},
		"dynamic": {Env: []string{"GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0"}},
	} {
		r.t.Run(name, func(t *testing.T) {
			r := r.in(t)
			p := demo.StartJVM(t, demo.JVMOptions{Service: "java-shop", Threads: 3, Placement: placement})
			p.Registration(1)
			view := r.state(p, process.StateRegistered, "")
			assert.Check(t, view.ServiceName == "java-shop" && view.Libc == "glibc" && view.TLS == name, "%+v", view)
			for thread := range 4 {
				r.served(p, thread, [16]byte{1, byte(thread)})
			}
			clean(t, p.Quit())
		})
	}
}

// Samples that come to no transaction have an outcome each, and are not sent.
func (r *running) fedOutcomes() {
	t := r.t
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Untouched: 1})
	unsampled := demo.Start(t, demo.Options{Manual: true, Idle: 1, Unsampled: true})
	unpublished := demo.Start(t, demo.Options{Hold: true})
	unpublished.Load()
	p.Registration(1)
	unsampled.Registration(1)
	r.state(unpublished, process.StateNoStorage, "")
	threads := p.Threads()
	p.Begin(1)
	p.End(1)
	r.comesTo(p.PID, threads[1].TID, process.OutcomeNoTrace)
	r.comesTo(p.PID, threads[2].TID, process.OutcomeNoSlot)
	r.comesTo(p.PID, 1, process.OutcomeNoThread) // the init process's thread, not ours
	r.comesTo(unsampled.PID, unsampled.Begin(1).Thread.TID, process.OutcomeUnsampled)
	fed := &r.Counters().Fed
	unknown := fed[process.OutcomeUnknownProcess].Load()
	r.sample(1, 1, [16]byte{5})
	r.outcome(process.OutcomeUnknownProcess, unknown+1)
	stale, withoutTrace := fed[process.OutcomeStale].Load(), fed[process.OutcomeNoTrace].Load()
	notRegistered := fed[process.OutcomeNotRegistered].Load()
	for i, record := range []feed.Record{
		{Count: 7, TimeNs: 1}, // taken just after boot
		{Count: 1, TimeNs: bpf.Now() - uint64(2*process.MaxContextAge)},
	} {
		record.PID, record.TID, record.StackTraceID = uint32(p.PID), uint32(threads[1].TID), [16]byte{6, byte(i)}
		r.send(record)
	}
	r.outcome(process.OutcomeStale, stale+8)
	r.counters.FeedSamples.Add(5)
	r.registration(p).wait([]fedSample{{tid: threads[1].TID, count: 5}}) // as if they had waited
	r.outcome(process.OutcomeStale, stale+13)
	r.send(feed.Record{PID: uint32(p.PID), TID: 1, StackTraceID: [16]byte{7}, Count: 1, HasContext: true})
	r.outcome(process.OutcomeNoTrace, withoutTrace+1) // no trace has the id zero
	// Records with context of a process that never published where to send them are not kept.
	r.send(feed.Record{PID: uint32(unpublished.PID), TID: 1, StackTraceID: [16]byte{1}, Count: 4, HasContext: true,
		TraceID: [16]byte{1}})
	r.outcome(process.OutcomeNotRegistered, notRegistered+4)
	for _, p := range []*demo.Process{p, unsampled} {
		report := p.Quit()
		assert.Check(t, report.Samples == 0 && report.Messages == 1, "want the registration alone: %+v", report)
	}
}

// Samples of traces that are not sampled are sent when asked for, those that are taken and those that
// are fed, and not otherwise.
func TestUnsampled(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 1, Unsampled: true, Gap: -1})
	fed := demo.Start(t, demo.Options{Manual: true, Idle: 1, Unsampled: true})
	r := run(t, atRate(997))
	p.Registration(1)
	testenv.Poll(t, deadline, "samples", func() bool { return r.kernel(bpf.Unsampled) > 100 })
	r.end()
	r.added()
	assert.Check(t, r.Counters().Sampling.Outcomes.Sum() == 0)
	assert.Check(t, p.Report().Messages == 1, "want the registration alone")

	r = run(t, atRate(997), func(c *Config) { c.Unsampled = true })
	r.stacksTrue(p, r.sampledReport(p, 100))
	fed.Registration(2)
	r.served(fed, 1, [16]byte{2})
	r.end()
	r.added()
	assert.Check(t, r.kernel(bpf.Correlated) == 0, "samples of traces that are sampled")
	clean(t, p.Quit())
}

// Where a process can bind its socket, and what of its own leads there, is served.
func (r *running) socketPaths() {
	t := r.t
	const longest = 107 // sun_path less its zero byte
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{PrivateTmp: true}})
	_, err := os.Stat(p.Socket)
	assert.Assert(t, err != nil, "%s exists for us, too", p.Socket)
	p.Registration(1)
	path := filepath.Join(p.Dir, strings.Repeat("s", longest-len(p.Dir)-1))
	p.Republish(path, "")
	p.Registration(2)
	testenv.Poll(t, deadline, "the socket's path in the status", func() bool {
		return r.state(p, process.StateRegistered, "").SocketPath == path
	})
	r.served(p, 1, [16]byte{1})

	// A longer one no process can bind, but have: by another name, to which a link of its own leads.
	short, long := filepath.Join(p.Dir, "short"), filepath.Join(p.Dir, strings.Repeat("l", 200))
	p.Republish(short, "")
	p.Registration(3)
	assert.NilError(t, os.Rename(p.HostPath(short), p.HostPath(long)))
	p.Hostile("socket-symlink", long)
	p.Registration(4)
	r.served(p, 1, [16]byte{2})
	clean(t, p.Quit())
}
