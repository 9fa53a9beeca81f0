package check

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/procscan/watch"
)

// This file tries what the kernel must be able to do, and must let us do.

func kernelChecks(n needs) []check {
	var list []check
	add := func(name string, required bool, run func(*machine) finding) {
		list = append(list, check{name, groupKernel, required, run})
	}
	if n.eBPF {
		add("btf", n.sampler, func(*machine) finding {
			return tried(bpf.ProbeTypes(), "the kernel tells its types", n.lossEBPF())
		})
		add("task-iterator", n.sampler, func(*machine) finding { return taskIterator(n) })
	}
	if n.sampler {
		add("ring-buffer", true, func(*machine) finding {
			return tried(bpf.ProbeRingBuffer(), "the kernel makes one", lossSampler)
		})
	}
	if n.sampling {
		add("perf-cpu-clock", true, func(*machine) finding {
			return tried(bpf.ProbeClock(), "opens on each online CPU", lossSampler)
		})
	}
	if n.sampler {
		add("sampler", true, sampler)
	}
	add("live-events", false, liveEvents)
	if n.kernelStacks {
		add("kernel-symbols", false, kernelSymbols)
	}
	add("procmap-query", false, procmapQuery)
	add("openat2", true, func(*machine) finding {
		return system(messaging.Supported(), "resolves paths below a root", "no path of a process is opened safely",
			"boot Linux 5.6 or later, and allow openat2 in the seccomp profile")
	})
	add("pidfd", true, func(*machine) finding {
		return system(procscan.ProbePidfd(), "pidfd_open works", "no process can be held on to",
			"boot Linux 5.3 or later, and allow pidfd_open in the seccomp profile")
	})
	add("process_vm_readv", false, readv)
	add("process-memory", false, processMemory)
	return list
}

func liveEvents(m *machine) finding {
	err := m.liveEvents()
	if err == nil {
		return ok("the kernel records what processes map and execute")
	}
	remedy := "allow perf_event_open in the seccomp profile and the security module"
	initial, linkErr := m.inInitialUserNamespace()
	switch {
	case m.procfs() != nil:
		return m.unknown(err, lossLive, "")
	case linkErr == nil && !initial:
		remedy = "see user-namespace"
	case errors.Is(err, errors.ErrUnsupported):
		remedy = "boot a kernel built with CONFIG_PERF_EVENTS"
	case !m.caps.has(unix.CAP_PERFMON) && !m.caps.has(unix.CAP_SYS_ADMIN):
		remedy = grant("CAP_PERFMON")
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		remedy = "see RLIMIT_NOFILE below"
	case m.lockedMemory() < watch.EventMemoryBytes() && !m.caps.has(unix.CAP_IPC_LOCK):
		remedy = "see kernel.perf_event_mlock_kb below"
	}
	first, _, _ := strings.Cut(err.Error(), "\n") // of as many as there are CPUs
	return finding{Missing, first, lossLive, remedy}
}

func kernelSymbols(m *machine) finding {
	err := m.kernelSymbols()
	if err == nil {
		return ok("kallsyms tells where the kernel lies, and its notes the build id")
	}
	return finding{Missing, err.Error(), lossSymbols, "see CAP_SYSLOG and kernel.kptr_restrict"}
}
