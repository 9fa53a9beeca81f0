package check

import (
	"fmt"
	"math"
	"runtime"

	"correlator/procscan/watch"
)

const (
	// restMemory is for what an agent with a thousand processes has resident, 34 MB, and for its
	// tables in the kernel, 12 MB, with kernel stacks 20, and a reserve. The perf rings are added
	// to it.
	restMemory = 64 << 20

	// unwindMemory is for the unwinding worker, 20 MB, 45 while it reads a JVM, and for its tables, 13 MB
	// and 8 for each JVM that is another.
	unwindMemory = 96 << 20

	// exportMemory is for connections and the encoding of requests, in addition to the queues.
	exportMemory = 8 << 20

	// leastCPU is 10 ms of each 100 ms, the usual period of a limit: the time that probing a
	// process with very many mappings takes. With less the agent is throttled until the next
	// period, and samples are late.
	leastCPU = 0.1

	// restThreads is how many threads may block or work beside one for each process, those of workers
	// included
	// (docs/security.md).
	restThreads = 1400
)

// cgroupLimit returns the finding of check for the cgroups of a controller.
func (m *machine) cgroupLimit(controller string, check func(dirs []string) (finding, error)) finding {
	dirs, err := m.cgroupDirs(controller)
	if err == nil {
		var f finding
		if f, err = check(dirs); err == nil {
			return f
		}
	}
	return m.unknown(err, lossUnproved, "see proc-root")
}

func memory(m *machine) finding {
	return m.cgroupLimit("memory", func(dirs []string) (finding, error) {
		limit, err := lowestLimit(dirs, "memory.max", "memory.limit_in_bytes")
		const mib = 1 << 20
		needed := int64(restMemory + m.cpus*watch.EventMemoryBytes())
		if m.config.unwinds() {
			needed += unwindMemory
		}
		if m.config.receiver() || len(m.config.Export.Destinations) > 0 {
			needed += exportMemory + m.config.Export.QueueMemory()
		}
		needed += m.config.Export.OpenCensus.MemoryBytes()
		switch {
		case err != nil:
			return finding{}, err
		case limit >= 1<<50:
			return ok("no limit of the cgroup"), nil
		case limit < needed:
			return finding{Degraded, fmt.Sprintf("%d MiB, with the tables in the kernel", limit/mib),
				"the kernel may kill the agent when memory runs out",
				fmt.Sprintf("allow %d MiB (MemoryMax= of the systemd unit, limits.memory of the pod)",
					(needed+mib-1)/mib)}, nil
		}
		return ok(fmt.Sprintf("%d MiB", limit/mib)), nil
	})
}

func cpu(m *machine) finding {
	return m.cgroupLimit("cpu", func(dirs []string) (finding, error) {
		limit, err := lowestCPU(dirs)
		have := fmt.Sprintf("GOMAXPROCS %d of %d CPUs", runtime.GOMAXPROCS(0), m.cpus)
		switch {
		case err != nil:
			return finding{}, err
		case math.IsInf(limit, 1):
			return ok("no limit of the cgroup; " + have), nil
		case limit < leastCPU:
			return finding{Degraded, fmt.Sprintf("%.2f CPUs; %s", limit, have), "samples may come late",
				fmt.Sprintf("allow %.1f CPUs (CPUQuota= of the systemd unit, limits.cpu of the pod)", leastCPU)}, nil
		}
		return ok(fmt.Sprintf("%.2f CPUs; %s", limit, have)), nil
	})
}

func pids(m *machine) finding {
	return m.cgroupLimit("pids", func(dirs []string) (finding, error) {
		limit, err := lowestLimit(dirs, "pids.max")
		needed := int64(m.config.MaxProcesses + restThreads)
		switch {
		case err != nil:
			return finding{}, err
		case limit == unlimited:
			return ok("no limit of the cgroup"), nil
		case limit < needed:
			return finding{Degraded, fmt.Sprintf("%d threads", limit),
				"hostile processes can exhaust the threads, which ends the agent",
				fmt.Sprintf("allow %d (TasksMax= of the systemd unit), or set a lower --max-processes", needed)}, nil
		}
		return ok(fmt.Sprintf("%d threads; at most %d are used", limit, needed)), nil
	})
}
