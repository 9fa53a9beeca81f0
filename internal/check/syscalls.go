package check

import (
	"correlator/procscan"
)

// system is what a probe of system calls found.
func system(err error, works, loss, remedy string) finding {
	if err == nil {
		return ok(works)
	}
	return finding{Missing, err.Error(), loss, remedy}
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
