package agent

import (
	"testing"

	"correlator/bpf"
	"correlator/internal/demo"
	"correlator/internal/target"
	"correlator/profile"
)

// The threads of a real JVM: what Java code burns in a transaction comes to that transaction, however
// the variable was placed, and whether or not the stacks of that code can be walked.
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
			r := run(t, atRate(997))
			p.Registration(1)
			r.state(p, target.StateRegistered, "")
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
			if n := r.kernel(bpf.UnwindingFailed) + r.kernel(bpf.Malformed); n != 0 {
				t.Errorf("%d samples without stack, or malformed", n)
			}
		})
	}
}

// javaStacks checks what the frames of a JVM's stacks are. The code of the loop that burns CPU is made
// at run time and lies in no file; with frame pointers it leads back to the JVM itself, and from there
// to where the thread began.
func (r *running) javaStacks(p *demo.Process, report demo.Report, framePointers bool) {
	r.t.Helper()
	stacks := r.stacks(report)
	byThread := make(map[int]map[string]uint64) // samples by stack
	var samples, compiled, rooted uint64
	for _, transaction := range report.Transactions {
		if byThread[transaction.Thread] == nil {
			byThread[transaction.Thread] = make(map[string]uint64)
		}
		for text, n := range transaction.Stacks {
			byThread[transaction.Thread][text] += n
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
	r.t.Logf("%d samples, %d in code that was made at run time, %d with the thread's beginning; %d stacks", samples, compiled,
		rooted, len(stacks))
	if compiled < samples/2 {
		r.t.Errorf("of %d samples, %d are in code without a file", samples, compiled)
	}
	if framePointers && rooted < samples*9/10 {
		r.t.Errorf("of %d samples, %d have a stack that reaches the thread's beginning", samples, rooted)
	}
	// Both threads run the same loop: what one is seen with most, the other is seen with, too.
	for _, thread := range []int{1, 2} {
		if most, n := mostFrequent(byThread[thread]); framePointers && byThread[3-thread][most] == 0 {
			r.t.Errorf("stack %s has %d samples of thread %d and none of the other", most, n, thread)
		}
	}
}

func mostFrequent(samples map[string]uint64) (stack string, n uint64) {
	for text, m := range samples {
		if m > n {
			stack, n = text, m
		}
	}
	return stack, n
}
