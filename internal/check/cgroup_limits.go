package check

import (
	"fmt"
	"math"
	"runtime"

	"correlator/procscan/watch"
)

// ofCgroup is a limit of a controller, which is there or not.
func (m *machine) ofCgroup(controller string, found func(dirs []string) (finding, error)) finding {
	dirs, err := m.cgroupDirs(controller)
	if err == nil {
		var f finding
		if f, err = found(dirs); err == nil {
			return f
		}
	}
	return m.unknown(err, lossUnproved, "see proc-root")
}

func memory(m *machine, n needs) finding {
	return m.ofCgroup("memory", func(dirs []string) (finding, error) {
		limit, err := lowestLimit(dirs, "memory.max", "memory.limit_in_bytes")
		const mib = 1 << 20
		needed := int64(restMemory + m.cpus*watch.EventMemoryBytes())
		if n.receiver || len(n.destinations) > 0 {
			needed += exportMemory + m.config.Export.QueueBytes
		}
		switch {
		case err != nil:
			return finding{}, err
		case limit >= 1<<50:
			return ok("no limit of our cgroup"), nil
		case limit < needed:
			return finding{Degraded, fmt.Sprintf("%d MiB, with the tables in the kernel", limit/mib), "the kernel may kill the agent for want of memory",
				fmt.Sprintf("allow %d MiB (MemoryMax= of the systemd unit, limits.memory of the pod)", (needed+mib-1)/mib)}, nil
		}
		return ok(fmt.Sprintf("%d MiB", limit/mib)), nil
	})
}

func cpu(m *machine) finding {
	return m.ofCgroup("cpu", func(dirs []string) (finding, error) {
		limit, err := lowestCPU(dirs)
		have := fmt.Sprintf("GOMAXPROCS %d of %d CPUs", runtime.GOMAXPROCS(0), m.cpus)
		switch {
		case err != nil:
			return finding{}, err
		case math.IsInf(limit, 1):
			return ok("no limit of our cgroup; " + have), nil
		case limit < leastCPU:
			return finding{Degraded, fmt.Sprintf("%.2f CPUs; %s", limit, have), "samples may come late",
				fmt.Sprintf("allow %.1f CPUs (CPUQuota= of the systemd unit, limits.cpu of the pod)", leastCPU)}, nil
		}
		return ok(fmt.Sprintf("%.2f CPUs; %s", limit, have)), nil
	})
}

func pids(m *machine) finding {
	return m.ofCgroup("pids", func(dirs []string) (finding, error) {
		limit, err := lowestLimit(dirs, "pids.max")
		needed := int64(m.config.MaxProcesses + restThreads)
		switch {
		case err != nil:
			return finding{}, err
		case limit == unlimited:
			return ok("no limit of our cgroup"), nil
		case limit < needed:
			return finding{Degraded, fmt.Sprintf("%d threads", limit), "hostile processes can make the agent end for want of threads",
				fmt.Sprintf("allow %d (TasksMax= of the systemd unit), or say a lower --max-processes", needed)}, nil
		}
		return ok(fmt.Sprintf("%d threads; at most %d are used", limit, needed)), nil
	})
}
