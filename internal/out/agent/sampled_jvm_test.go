package agent

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/profile"
)

// The threads of a real JVM: what Java code burns in a transaction comes to that transaction,
// however the variable was placed, and whether or not the stacks of that code can be walked.
func TestSampledJVM(t *testing.T) {
	dynamic := demo.Placement{Env: []string{"GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0"}}
	for name, o := range map[string]demo.JVMOptions{
		"static":                 {FramePointers: true},
		"dynamic":                {FramePointers: true, Placement: dynamic},
		"without frame pointers": {},
	} {
		t.Run(name, func(t *testing.T) {
			o.Busy, o.Threads = true, 2
			p := demo.StartJVM(t, o)
			r := run(t, atRate(997), roomy)
			p.Registration(1)
			r.state(p, process.StateRegistered, "")
			for range 2 { // transactions for each thread
				traces := []demo.TraceID{p.Begin(1).TraceID, p.Begin(2).TraceID}
				p.ReportWhen("samples of both threads", func(report demo.Report) bool {
					first, _ := report.Transaction(traces[0])
					second, _ := report.Transaction(traces[1])
					return first.Samples >= 300 && second.Samples >= 300
				})
			}
			p.End(1)
			p.End(2)
			before := p.Report()
			r.javaStacks(p, before, o.FramePointers)
			r.end()
			r.sampledAdded()
			report := p.Quit()
			clean(t, report)
			r.samplesAreCPU(report, 0)
			if report.Samples != r.Counters().Messages.Sent.Load() {
				t.Errorf("%d samples sent, %d arrived in time", r.Counters().Messages.Sent.Load(), report.Samples)
			}
			n := r.kernel(bpf.UnwindingFailed) + r.kernel(bpf.Malformed)
			assert.Check(t, n == 0, "%d samples without stack, or malformed", n)
		})
	}
}

// javaStacks checks what the frames of a JVM's stacks are. The code of the loop that burns CPU is
// made at run time and lies in no file; with frame pointers it leads back to the JVM itself, and
// from there to where the thread began.
func (r *running) javaStacks(p *demo.Process, report demo.Report, framePointers bool) {
	r.t.Helper()
	stacks := r.stacks(report)
	var samples, compiled, rooted uint64
	for _, transaction := range report.Transactions {
		for text, n := range transaction.Stacks {
			samples += n
			frames := stacks[text]
			if frames[0].Kind() == profile.AnonymousFrame {
				compiled += n
			}
			if root := frames[len(frames)-1]; len(frames) > 5 && root.Kind() == profile.NativeFrame {
				rooted += n
			}
		}
	}
	r.t.Logf("%d samples, %d in code that was made at run time, %d with the thread's beginning; %d stacks", samples,
		compiled,
		rooted, len(stacks))
	if compiled < samples/2 {
		r.t.Errorf("of %d samples, %d are in code without a file", samples, compiled)
	}
	if framePointers && rooted < samples*9/10 {
		r.t.Errorf("of %d samples, %d have a stack that reaches the thread's beginning", samples, rooted)
	}
	// The loop has some addresses, and the compiler makes it again some times: that many stacks
	// there are, however many samples are taken.
	if framePointers && uint64(len(stacks)) > samples/10 {
		r.t.Errorf("%d samples have %d different stacks", samples, len(stacks))
	}
}
