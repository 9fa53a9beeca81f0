package check

import (
	"os"

	"correlator/internal/out/agent"
	"correlator/procscan"
)

func pidNamespace(m *machine) finding {
	const remedy = "run in the host's pid namespace (hostPID: true of the pod, --pid=host of the container)"
	err := procscan.ProbeNamespace(m.config.ProcRoot)
	if err != nil && m.procfs() != nil {
		return finding{Missing, "unknown without a procfs", lossOutside, "see proc-root"}
	}
	if err != nil {
		return finding{Missing, err.Error(), lossOutside, remedy + ", or name its own procfs by --proc-root"}
	}
	name, err := os.Readlink(m.proc("self/ns/pid"))
	if err != nil {
		return m.unknown(err, lossOutside, remedy)
	}
	if name != procscan.InitialPIDNamespace {
		return finding{Degraded, "not the host's", lossOutside + m.config.notReady(), remedy}
	}
	return ok("the host's, as that of the procfs")
}

func userNamespace(m *machine) finding {
	const remedy = "run outside of user namespaces (rootless containers, user-namespaced pods)"
	initial, err := m.inInitialUserNamespace()
	if err != nil {
		return m.unknown(err, lossUnproved, "see proc-root")
	}
	if !initial {
		return finding{Missing, "not the host's: capabilities are effective only inside it",
			lossOutside + m.config.notReady(), remedy}
	}
	return ok("the host's")
}

func (m *machine) inInitialUserNamespace() (bool, error) {
	name, err := os.Readlink(m.proc("self/ns/user"))
	return name == procscan.InitialUserNamespace, err
}

func mountNamespace(m *machine) finding {
	own, err := os.Readlink(m.proc("self/ns/mnt"))
	if err != nil {
		return m.unknown(err, lossUnproved, "see proc-root")
	}
	const harmless = "paths of processes are resolved below their own roots"
	switch first, err := os.Readlink(m.proc("1/ns/mnt")); {
	case err != nil:
		return ok(harmless)
	case first != own:
		return ok("a separate one; " + harmless)
	}
	return ok("that of process 1")
}

func cgroupNamespace(m *machine) finding {
	name, err := os.Readlink(m.proc("self/ns/cgroup"))
	switch {
	case err != nil:
		return m.unknown(err, lossUnproved, "see proc-root")
	case name == procscan.InitialCgroupNamespace:
		return ok("the host's")
	}
	if _, err := m.config.Filter.Resolve(m.config.ProcRoot); err != nil {
		return finding{Missing, "not the host's: " + err.Error(), "the agent does not start: filters would not hold",
			"grant CAP_SYS_ADMIN, run in the host's cgroup namespace (--cgroupns=host), or filter by container ids only"}
	}
	return ok("not the host's; paths of cgroups are as process 1 sees them, or no filter depends on them")
}

// machineID does not show the id, which machine-id(5) calls confidential.
func machineID(m *machine) finding {
	if agent.HostID(m.config.ProcRoot) == "" {
		return finding{Missing, "process 1 has no /etc/machine-id",
			"registrations have no host id, unless --host-id sets one", "systemd-machine-id-setup, or set --host-id"}
	}
	return ok("available for registrations")
}
