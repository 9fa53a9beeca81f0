// Package worker runs what a foreign process can make hang in processes of its own: the same
// program, executed anew.
//
// A system call that waits for a file system which a process serves (FUSE, a dead network mount)
// cannot be interrupted once the server has read the request, not even by SIGKILL. A thread in such
// a call keeps its whole process from ending, with all descriptors open. So it must not be one of
// the agent's threads. A worker holds nothing but its channel to the agent; it can be abandoned.
//
//	Kind       what a worker does: its name, its capabilities, its function
//	Spawner    starts workers of one kind
//	Process    one worker, as the agent sees it
//	Wait       the time that it has for a request
//	Conn       the channel, as the worker sees it
//	Pool       workers that serve one request at a time, with deadlines and bounds by user
//	Blame      who makes workers hang
//
// A worker has no descriptors but the channel and /dev/null, only the capabilities of its Kind, no
// way to more of them (no_new_privs), bounded memory, and is killed by the kernel when the agent
// ends. Another kind is a Kind given to Early, or to Main, and to NewSpawner.
package worker
