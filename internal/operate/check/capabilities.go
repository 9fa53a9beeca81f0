package check

import (
	"os"

	"golang.org/x/sys/unix"

	"correlator/messaging"
	"correlator/procscan"
)

// capability is one that `run` uses.
type capability struct {
	name   string
	number int
	admin  bool   // CAP_SYS_ADMIN includes it
	use    string // what it is for
	loss   string // without it
}

var (
	checkpointRestore = capability{name: "CAP_CHECKPOINT_RESTORE", number: unix.CAP_CHECKPOINT_RESTORE, admin: true,
		use: "opening libraries that were deleted", loss: lossDeleted}
	dacReadSearch = capability{name: "CAP_DAC_READ_SEARCH", number: unix.CAP_DAC_READ_SEARCH,
		use: "reading other users' mappings and files", loss: lossOthers}
	setuid = capability{name: "CAP_SETUID", number: unix.CAP_SETUID, use: connecting, loss: lossOthers}
	setgid = capability{name: "CAP_SETGID", number: unix.CAP_SETGID, use: connecting, loss: lossOthers}
)

const connecting = "connecting to a socket with the privileges of its process"

func ptrace(m *machine) finding {
	c := capability{name: "CAP_SYS_PTRACE", number: unix.CAP_SYS_PTRACE,
		use: "reading other processes' memory and mappings", loss: lossRights + m.config.notReady()}
	return c.find(m)
}

func capBPF(m *machine) finding {
	c := capability{name: "CAP_BPF", number: unix.CAP_BPF, admin: true, use: "loading eBPF programs",
		loss: m.config.lossEBPF()}
	return c.find(m)
}

// perfmon checks CAP_PERFMON. Where no program is loaded, a low kernel.perf_event_paranoid makes it
// unnecessary.
func perfmon(m *machine) finding {
	c := capability{name: "CAP_PERFMON", number: unix.CAP_PERFMON, admin: true, use: "live events", loss: lossLive}
	if !m.config.eBPF() {
		return c.findUnless(m, m.liveEvents)
	}
	c.use, c.loss = "tracing programs and live events", m.config.lossEBPF()
	return c.find(m)
}

// syslog checks CAP_SYSLOG: where kernel.kptr_restrict is 0 the kernel may show its addresses to all
// processes.
func syslog(m *machine) finding {
	c := capability{name: "CAP_SYSLOG", number: unix.CAP_SYSLOG, use: "kernel addresses", loss: lossSymbols}
	return c.findUnless(m, m.kernelSymbols)
}

func (c capability) find(m *machine) finding {
	switch {
	case m.caps.Has(c.number):
		return ok("for " + c.use)
	case c.admin && m.caps.Has(unix.CAP_SYS_ADMIN):
		return ok("by CAP_SYS_ADMIN, for " + c.use)
	}
	return finding{Missing, "not in effect, for " + c.use, c.loss, grant(c.name)}
}

// findSender tries whether messages can show another sender than the agent.
func findSender(m *machine) finding {
	_, err := messaging.FindSenderPID(m.config.ProcRoot)
	if err == nil {
		return ok("messages show kthreadd as their sender")
	}
	remedy := grant("CAP_SYS_ADMIN")
	if name, err := os.Readlink(m.proc("self/ns/pid")); err == nil && name != procscan.InitialPIDNamespace {
		remedy = "see pid-namespace" // there is no kthreadd
	} else if initial, err := m.inInitialUserNamespace(); err == nil && !initial {
		remedy = "see user-namespace"
	}
	return finding{Degraded, err.Error(), lossSender, remedy}
}

// findUnless is find for a capability that is not needed if a probe succeeds.
func (c capability) findUnless(m *machine, probe func() error) finding {
	f := c.find(m)
	if f.status != OK && probe() == nil {
		return ok("not in effect, and not needed for " + c.use)
	}
	return f
}

// grant returns the remedy for a missing capability, in the words of package bpf.
func grant(name string) string {
	if os.Geteuid() != 0 {
		return "run as root, or grant the process " + name
	}
	return "grant the process " + name
}

// privileged reports whether a capability is in effect in the initial user namespace. It is assumed
// to be if the namespace is unknown.
func (m *machine) privileged(capability int) bool {
	initial, err := m.inInitialUserNamespace()
	return m.caps.Has(capability) && (initial || err != nil)
}
