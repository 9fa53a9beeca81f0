// Package sampling is the way of a sample from the kernel's counts to what an APM agent can be told.
//
//	bpf.Sampler ── every interval: (program, trace, transaction, raw stack) × n
//	     │
//	     ├─ profile: raw stack ──▶ frames ──▶ stack-trace-id; the frames stay in a store
//	     ▼
//	Receiver of the program ── its sender's queue
//
// Naming a stack takes what is known of the process's executable memory, and nothing else: no
// process can make that wait. When it is not enough (nothing is known yet, or the stack has an address
// of which the process may tell more), and for samples whose context the kernel could not read, the
// process itself has to be looked at, and it can make whoever does so wait. Those samples are held: the
// receiver takes them to a goroutine of the process, which hands them in again by its Follower.
//
// Every sample that the kernel hands over has exactly one target.Outcome, at last when its process has
// ended.
package sampling
