package check

import (
	"correlator/messaging"
	"correlator/procscan"
)

func openat2(*machine) finding {
	return syscallFinding(messaging.Supported(), "resolves paths below a root",
		"no path of a process can be opened safely", "boot Linux 5.6 or later, and allow openat2 in the seccomp profile")
}

func pidfd(*machine) finding {
	return syscallFinding(procscan.ProbePidfd(), "pidfd_open works", "no process can be identified safely",
		"boot Linux 5.3 or later, and allow pidfd_open in the seccomp profile")
}

func syscallFinding(err error, works, loss, remedy string) finding {
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
		return finding{Degraded, "unavailable: /proc/PID/maps is parsed instead", "sweeps take several times the CPU",
			remedy}
	}
	return ok("the kernel returns mappings in binary form")
}

func readv(m *machine) finding {
	if err := m.readv(); err != nil {
		return finding{Degraded, err.Error() + ": memory is read through /proc/PID/mem instead",
			"reading memory takes more CPU, and two more descriptors for each process",
			"allow process_vm_readv in the seccomp profile, or boot a kernel built with CONFIG_CROSS_MEMORY_ATTACH"}
	}
	return ok("reads memory without /proc/PID/mem")
}
