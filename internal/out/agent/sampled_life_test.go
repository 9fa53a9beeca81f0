package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// patient has the agent hold what waits for so long that nothing becomes late in a test, and fetch
// samples so rarely that there is something to wait whenever sampling ends.
func patient(c *Config) { c.SamplesDelay, c.ReportInterval = 30*time.Second, 400*time.Millisecond }

// Sampling begins when a process has published and ends when it has withdrawn, and of what was
// taken in between nothing is lost: what waits without a socket goes to the next one.
func TestSampledStorageComesAndGoes(t *testing.T) {
	p := demo.Start(t, demo.Options{Hold: true, Busy: 2, Gap: -1})
	r := run(t, atRate(997), patient)
	p.Load()
	r.state(p, process.StateNoStorage, "")
	p.Publish()
	r.sampledReport(p, 300)
	p.Withdraw()
	r.state(p, process.StateNoStorage, "")
	messages := &r.Counters().Messages
	testenv.Poll(t, deadline, "samples to wait for a socket",
		func() bool { return messages.Added.Load() > messages.Sent.Load() })
	r.notSampled()
	before := p.Report()
	p.Republish(filepath.Join(p.Dir, "second.socket"), "")
	p.Registration(2)
	testenv.Poll(t, deadline, "what waited to be sent",
		func() bool { return messages.Added.Load() == messages.Sent.Load() })
	r.sampledReport(p, before.Samples+300)
	r.stacksTrue(p, p.Report())
	r.end()
	report := p.Quit()
	clean(t, report)
	r.sampledAdded()
	if sent := messages.Sent.Load(); sent != report.Samples || sent != messages.Added.Load() {
		t.Errorf("%d samples correlated, %d sent, %d arrived", messages.Added.Load(), sent, report.Samples)
	}
}

// A library that was loaded again needs another rule. It can be another library, whose variable is
// placed otherwise, and nobody may have seen the moment at which there was none.
func TestSampledLibraryReloaded(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1})
	r := run(t, atRate(997))
	registrations := 1
	for _, fixture := range []string{"", "glibc-dtpmod-local", "glibc-tlsdesc-local"} {
		if fixture != "" {
			data, err := os.ReadFile(demo.Fixture(t, demo.Machine+"-"+fixture))
			assert.NilError(t, err)
			library := filepath.Join(p.Dir, demo.LibraryName(false))
			assert.NilError(t, os.WriteFile(library, data, 0o600))
			p.Unload()
			assert.NilError(t, p.Command(nil, "load", library))
			p.Publish()
			registrations++
		}
		p.Registration(registrations)
		r.state(p, process.StateRegistered, "")
		r.sampledReport(p, p.Report().Samples+300)
		r.stacksTrue(p, p.Report())
	}
	r.end()
	clean(t, p.Quit())
	r.sampledAdded()
}

// What a process is after an exec is not sampled by the rule of what it was before. When it takes
// part again it is sampled again, by a rule of its own.
func TestSampledExec(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1})
	r := run(t, atRate(997), sweepOnce)
	r.sampledReport(p, 100)
	for try := 0; r.kernel(bpf.Stale) == 0; try++ {
		assert.Assert(t, try != 5, "no sample was found to be of another program")
		p.Restart(false)
		p.Registration(1)
		r.stacksTrue(p, r.sampledReport(p, 300))
		r.recounted(1)
	}
	harmless(t, p.Report())

	loop := filepath.Join(p.Dir, "loop")
	assert.NilError(t, os.WriteFile(loop, []byte("while :; do :; done\n"), 0o600))
	p.Exec("sh", loop)
	r.gone(p)
	r.notSampled()
	t.Logf("%d samples of other programs", r.kernel(bpf.Stale))
	p.Kill()
	r.end()
	r.sampledAdded()
}

// harmless checks that a process was sent nothing wrong since an exec. It may have been sent traces
// that the program before had, which it does not know.
func harmless(t *testing.T, report demo.Report) {
	t.Helper()
	assert.Check(t, report.Torn == 0 && report.Malformed == 0,
		"torn %d, malformed %d: want none of these", report.Torn, report.Malformed)
}

// Processes that end at any moment, with samples at all stages of their way, disturb nobody, and
// each sample is accounted for.
func TestSampledDeath(t *testing.T) {
	neighbor := demo.Start(t, demo.Options{Busy: 1, Transaction: 200 * time.Millisecond})
	r := run(t, atRate(997), roomy)
	registered := neighbor.Registration(1).ReadNs
	for i := range 15 {
		p := demo.Start(t, demo.Options{Busy: 2})
		if i%3 > 0 {
			p.Registration(1)
		}
		if i%3 > 1 {
			r.sampledReport(p, 1)
		}
		if i%2 == 0 {
			p.Kill()
		} else {
			p.Quit()
		}
	}
	r.sampledReport(neighbor, 500)
	neighbor.StopThreads()
	r.end()
	report := neighbor.Quit()
	clean(t, report)
	r.samplesAreCPU(report, registered)
	r.sampledAdded()
}

// An end in full flight: what was taken until then is counted, and what can be is sent, whether it
// was in the kernel's tables or on its way through the ring buffer.
func TestSampledShutdown(t *testing.T) {
	for _, o := range []demo.Options{
		{Busy: 2, Transaction: 20 * time.Millisecond},
		{Busy: 2, Rewrite: demo.RewriteCycle, PageOut: true},
	} {
		p := demo.Start(t, o)
		r := run(t, atRate(bpf.MaxSamplesPerSecond), patient)
		r.sampledReport(p, 1)
		r.end()
		r.sampledAdded()
		report := p.Quit()
		clean(t, report)
		correlated := r.Counters().Sampling.Outcomes[process.OutcomeCorrelated].Load()
		assert.Check(t, correlated == report.Samples, "%d samples correlated, %d arrived", correlated, report.Samples)
	}
}
