// Package host is the room of what the agent needs of the machine that it runs on. Nothing here knows
// a process of others, a stack or a trace.
//
//	safedir    directories in which nobody else can exchange a name
//	sockfile   Unix sockets bound at a path, one server each
//	connlimit  accepts the connections of a server, and shares them among its peers
//	seconds    durations as numbers of seconds in JSON
//	share      budgets, turns and rates by key: who may have how much
//	label      names of enumerated values
//	metric     what packages count, sent to Prometheus
//	asynclog   a log that never blocks its caller and that no peer can fill
//	kallsyms   the kernel's symbols, the bounds of its text and of its modules
//	terminal   tables, widths, a status line, escaping of hostile text
//	textcut    texts cut at a character's edge
//	systemd    readiness and watchdog messages to the service manager
//	procdir    fields and lists of a procfs, also for workers
//	self       what this process may do, and has used
//	resident   how much of our program is mapped
//	timerfd    timers that do not keep the Go runtime's monitor thread awake
package host
