package check

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"correlator/internal/out/live"
)

const (
	// Descriptors that `run` cannot start without: its standard streams, epoll and eventfd of the
	// Go runtime, and one to read /proc; socket and iterator of the feed; programs and tables of
	// the sampler, what loading them takes, and a clock for each CPU; one for each other socket
	// that it listens on.
	startDescriptors        = 11
	startDescriptorsFeed    = 3
	startDescriptorsSampler = 15
	// restDescriptors are those of the whole agent without any process, including some for probes.
	restDescriptors = 48
	// descriptorsPerCPU: the sampler's clock, and two for live events.
	descriptorsPerCPU = 3
	// descriptorsPerDestination: its connection, and a second one while it reconnects.
	descriptorsPerDestination = 2
	// descriptorsPerProcess: pidfd and socket; two more for memory if process_vm_readv is refused.
	descriptorsPerProcess = 2
)

// limitChecks returns checks of the limits of this process, which in a shell are not those of the
// service.
func limitChecks(n needs) []check {
	return []check{
		{"RLIMIT_NOFILE", groupLimits, true, func(m *machine) finding { return descriptors(m, n) }},
		{"memory", groupLimits, false, func(m *machine) finding { return memory(m, n) }},
		{"cpu", groupLimits, false, cpu},
		{"pids", groupLimits, false, pids},
	}
}

// descriptors checks the effective limit: Go raises the soft limit to the hard one when it starts.
func descriptors(m *machine, n needs) finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return m.unknown(err, lossUnproved, "allow prlimit64 in the seccomp profile")
	}
	each := descriptorsPerProcess
	if m.readv() != nil {
		each *= 2
	}
	rest := restDescriptors + descriptorsPerCPU*m.cpus + descriptorsPerDestination*len(n.destinations) +
		n.openCensus
	if len(n.live) > 0 {
		rest += len(n.live) + live.MaxGuests
	}
	needed := rest + each*m.config.MaxProcesses
	have := int(min(limit.Cur, math.MaxInt32))
	remedy := fmt.Sprintf("raise it to %d (LimitNOFILE= of the systemd unit, --ulimit nofile= of the container)",
		needed)
	switch enough := (have - rest) / each; {
	case have < n.startDescriptors(m.cpus):
		return finding{Missing, fmt.Sprintf("%d: starting takes more", have), "nothing can be opened", remedy}
	case enough <= 0:
		return finding{Degraded, fmt.Sprintf("%d, of which the agent itself takes %d", have, rest),
			"processes are not served", remedy}
	case have < needed:
		return finding{Degraded,
			fmt.Sprintf("%d: enough for %d processes, not for --max-processes %d", have, enough, m.config.MaxProcesses),
			fmt.Sprintf("no more than %d processes are served", enough),
			fmt.Sprintf("%s, or set --max-processes %d", remedy, enough)}
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
	for _, listens := range []bool{n.admin, n.metrics, n.receiver, n.openCensus > 0} {
		if listens {
			start++
		}
	}
	return start
}
