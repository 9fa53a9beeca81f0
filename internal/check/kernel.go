package check

import (
	"errors"
	"fmt"
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

// tried is what a probe of package bpf found.
func tried(err error, works, loss string) finding {
	var missing *bpf.MissingError
	switch {
	case err == nil:
		return ok(works)
	case errors.As(err, &missing):
		return finding{Missing, "needs " + missing.Feature, loss, missing.Remedy}
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return finding{Missing, err.Error(), loss, "see RLIMIT_NOFILE below"}
	}
	return finding{Missing, err.Error(), loss, "see lockdown and lsm below; else report this line, with uname -r, as a bug"}
}

// system is what a probe of system calls found.
func system(err error, works, loss, remedy string) finding {
	if err == nil {
		return ok(works)
	}
	return finding{Missing, err.Error(), loss, remedy}
}

func taskIterator(n needs) finding {
	filters, err := bpf.ProbeIterator()
	if err == nil && !filters {
		return finding{Degraded, "walks the threads of all processes only",
			"each look at a process walks all threads of the host", "boot Linux 6.1 or later"}
	}
	return tried(err, "walks the threads of one process", n.lossEBPF())
}

func sampler(m *machine) finding {
	works := fmt.Sprintf("loads, and attaches to %d CPUs", m.cpus)
	if m.config.SamplesPerSecond == 0 {
		works = "loads"
	}
	return tried(m.sampler(), works, lossSampler)
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

func procmapQuery(m *machine) finding {
	const remedy = "boot Linux 6.11 or later, and allow the ioctl in the seccomp profile"
	source, err := procscan.ProbeSource(m.config.ProcRoot)
	switch {
	case err != nil:
		return m.unknown(err, lossUnproved, "see proc-root")
	case source != procscan.SourceQuery:
		return finding{Degraded, "not answered: the text of maps is read instead", "sweeps take several times the CPU", remedy}
	}
	return ok("the kernel tells mappings without writing text")
}

func readv(m *machine) finding {
	if err := m.readv(); err != nil {
		return finding{Degraded, err.Error() + ": memory is read through /proc/PID/mem instead",
			"reading memory takes more CPU, and two descriptors more for each process",
			"allow process_vm_readv in the seccomp profile, or boot a kernel built with CONFIG_CROSS_MEMORY_ATTACH"}
	}
	return ok("reads memory without /proc/PID/mem")
}
