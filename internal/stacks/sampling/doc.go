// Package sampling turns the kernel's counts into samples with named stacks and hands them to
// sinks.
//
//	bpf.Sampler ── every interval: (program, trace, transaction, raw stack) × n
//	     │
//	     ├─ stacks.go: raw stack ──▶ profile.Stack: frames and stack-trace-id
//	     ├─ unwinding.go: which programs an engine unwinds; naming.go: its names for their stacks
//	     ▼
//	Sink of the program ── a profile.Sample
//
// Naming a stack needs what is known of the process's executable memory, and nothing else: no
// process can block it. When that is not enough (nothing is known yet, or the stack has an address
// that a probe of the process may explain), and for samples whose context the kernel could not
// read, the process itself must be read, and it can block the reader. Those samples are pending:
// they wait for the goroutine of the process, which calls ProcessSampler.Serve. So do those whose
// stack an engine has unwound and not named yet: those of one process are named together; while the
// engine is busy, or restarted, they are given back. When there is no time left, or their program is
// left out, they are handed on with what is known without the engine: a stack that is cut.
//
// Every sample that the kernel hands over has exactly one process.SampleOutcome, at the latest when
// its process has ended, or was abandoned (process.Held).
//
// stacks.go is the seam for other sources of stacks: it alone knows how a count of the kernel
// becomes a profile.Stack.
package sampling
