// Package attach has the processes that the correlator is attached to, or may be: one Table of them.
//
//	found ──▶ candidate ──▶ attached ──▶ gone
//
//	procscan, live events ──▶ lifecycle ──▶ Table ──▶ one Entry for each process
//	                                                    │  its values: a Column for each package
//	                                                    │  its hooks:  what is undone at its end
//	                                                    ▼
//	                                          stacks, out: told by the Entry
//
// An Entry is a process (pid and start time) from when it is found until nothing of it is left. It has one
// owner, the goroutine that lifecycle runs for it. All that is known of a process hangs on its Entry, and
// goes with it:
//
//   - What has to be undone is registered when it is done, with Entry.OnEnd. Entry.End calls these
//     functions once, the last one first, like deferred calls: what was made later uses what was made
//     before. That is also how a process is given up that could be set up only in part.
//   - What a package wants to find again, by pid or for all processes, it keeps in a Column of the Table
//     instead of a map of its own. Nothing has to be removed from it.
//
// A process is found from Entry.Show to Entry.Hide, which End calls if nobody did before: once Hide has
// returned, nobody uses what a Column was asked for. Its end may take longer: the process can make what
// closes its files hang. Table.Wait waits for all.
//
// Below this package:
//
//	lifecycle       finds processes, and takes each from found to gone; admission when there are too many
//	process         what one process publishes, by two standards; whose it is
//	processcontext  decodes OTEL_CTX
//	mempoll         notices that published memory changes, of all processes together
//
// A process passes three rooms: attach finds it and reads what it publishes, stacks samples it, out is what
// that is done for. The imports go the other way: out gives lifecycle a Handler, and a Sampler of stacks.
package attach
