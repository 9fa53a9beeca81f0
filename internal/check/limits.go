package check

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// This file is about the limits that were put on us. They are those of the shell when `check` runs there,
// and not of the service.

const (
	// What `run` cannot start without: its streams, the Go runtime's, epoll and eventfd, and one to look
	// around; the feed's socket and iterator; the sampler's programs, tables and what loading them takes, and
	// a clock for each CPU; one for each other socket that it listens on.
	startDescriptors        = 11
	startDescriptorsFeed    = 3
	startDescriptorsSampler = 15
	// restDescriptors are for the whole agent without any process, some of them for looking.
	restDescriptors = 48
	// descriptorsPerCPU: the sampler's clock, two of live events.
	descriptorsPerCPU = 3
	// descriptorsPerDestination: its connection, and a second while that is made anew.
	descriptorsPerDestination = 2
	// descriptorsPerProcess: pidfd and socket; two of memory, where process_vm_readv is refused.
	descriptorsPerProcess = 2

	// restMemory is what an agent has resident beside a thousand processes, 34 MB, its tables in the kernel,
	// 12 MB, with kernel stacks 20, and a reserve; the perf rings come on top.
	restMemory = 64 << 20

	// exportMemory is what connections and the building of requests take, beside what waits in queues.
	exportMemory = 8 << 20

	// leastCPU is 10 ms of each 100 ms (the usual period of a limit): what a look at a process with very many
	// mappings takes. With less the agent stands still until the next period, and samples come late.
	leastCPU = 0.1

	// restThreads is how many threads may hang or work beside one for each process (docs/security.md).
	restThreads = 700
)

func limitChecks(n needs) []check {
	return []check{
		{"RLIMIT_NOFILE", groupLimits, true, func(m *machine) finding { return descriptors(m, n) }},
		{"memory", groupLimits, false, func(m *machine) finding { return memory(m, n) }},
		{"cpu", groupLimits, false, cpu},
		{"pids", groupLimits, false, pids},
	}
}

// descriptors looks at the limit in force: Go raises the soft one to the hard one at start.
func descriptors(m *machine, n needs) finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return m.unknown(err, lossUnproved, "allow prlimit64 in the seccomp profile")
	}
	each := descriptorsPerProcess
	if m.readv() != nil {
		each *= 2
	}
	rest := restDescriptors + descriptorsPerCPU*m.cpus + descriptorsPerDestination*len(n.destinations)
	needed := rest + each*m.config.MaxProcesses
	have := int(min(limit.Cur, math.MaxInt32))
	remedy := fmt.Sprintf("raise it to %d (LimitNOFILE= of the systemd unit, --ulimit nofile= of the container)", needed)
	switch enough := (have - rest) / each; {
	case have < n.startDescriptors(m.cpus):
		return finding{Missing, fmt.Sprintf("%d: starting takes more", have), "nothing can be opened", remedy}
	case enough <= 0:
		return finding{Degraded, fmt.Sprintf("%d, of which the agent itself takes %d", have, rest), "processes are not served", remedy}
	case have < needed:
		return finding{Degraded, fmt.Sprintf("%d: enough for %d processes, not for --max-processes %d", have, enough, m.config.MaxProcesses),
			fmt.Sprintf("no more than %d processes are served", enough), fmt.Sprintf("%s, or say --max-processes %d", remedy, enough)}
	}
	return ok(fmt.Sprintf("%d: --max-processes %d takes %d", have, m.config.MaxProcesses, needed))
}

func (n needs) startDescriptors(cpus int) int {
	start := startDescriptors
	if n.feed {
		start += startDescriptorsFeed
	}
	if n.sampler {
		start += startDescriptorsSampler
	}
	if n.sampling {
		start += cpus
	}
	for _, listens := range []bool{n.admin, n.metrics, n.receiver} {
		if listens {
			start++
		}
	}
	return start
}
