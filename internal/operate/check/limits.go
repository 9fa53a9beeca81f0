package check

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"correlator/internal/out/live"
)

const (
	// Descriptors that `run` cannot start without: its standard streams, epoll and eventfd of the
	// Go runtime, timers, one to read /proc, two of a worker and what starting it takes meanwhile;
	// socket and iterator of the feed; programs and tables of the sampler, what loading them takes,
	// and a clock for each CPU; one for each other socket that it listens on.
	startDescriptors        = 17
	startDescriptorsFeed    = 3
	startDescriptorsSampler = 19
	// restDescriptors are those of the whole agent without any process, including some for probes.
	restDescriptors = 48
	// descriptorsPerCPU: the sampler's clock, and two for live events.
	descriptorsPerCPU = 3
	// descriptorsPerDestination: its connection, and a second one while it reconnects.
	descriptorsPerDestination = 2
	// descriptorsPerProcess: pidfd and socket; two more for memory if process_vm_readv is refused.
	descriptorsPerProcess = 2
)

// descriptors checks the effective limit of this process, which in a shell is not that of the service: Go
// raises the soft limit to the hard one when it starts.
func descriptors(m *machine) finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return m.unknown(err, lossUnproved, "allow prlimit64 in the seccomp profile")
	}
	each := descriptorsPerProcess
	if m.readv() != nil {
		each *= 2
	}
	rest := restDescriptors + descriptorsPerCPU*m.cpus + descriptorsPerDestination*len(m.config.Export.Destinations)
	if m.config.openCensus() {
		rest += m.config.Export.OpenCensus.Receiver.MaxConnections
	}
	if n := len(m.config.LiveListen); n > 0 {
		rest += n + live.MaxGuests
	}
	needed := rest + each*m.config.MaxProcesses
	have := int(min(limit.Cur, math.MaxInt32))
	remedy := fmt.Sprintf("raise it to %d (LimitNOFILE= of the systemd unit, --ulimit nofile= of the container)",
		needed)
	switch enough := (have - rest) / each; {
	case have < m.config.startDescriptors(m.cpus):
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

func (c *Config) startDescriptors(cpus int) int {
	start := startDescriptors
	if c.feed() {
		start += startDescriptorsFeed
	}
	if c.sampler() {
		start += startDescriptorsSampler
	}
	if c.sampling() {
		start += cpus
	}
	for _, listens := range []bool{c.admin(), c.metrics(), c.receiver(), c.openCensus()} {
		if listens {
			start++
		}
	}
	return start
}
