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

func capabilityChecks(n needs) []check {
	var list []check
	add := func(c capability, required bool) {
		list = append(list, check{c.name, groupCapabilities, required, c.find})
	}
	add(capability{name: "CAP_SYS_PTRACE", number: unix.CAP_SYS_PTRACE,
		use: "reading other processes' memory and mappings", loss: lossRights + n.notReady}, false)
	if n.eBPF {
		add(capability{name: "CAP_BPF", number: unix.CAP_BPF, admin: true,
			use: "loading eBPF programs", loss: n.lossEBPF()}, n.sampler)
	}
	perfmon := capability{name: "CAP_PERFMON", number: unix.CAP_PERFMON, admin: true, use: "live events",
		loss: lossLive}
	if n.eBPF {
		perfmon.use, perfmon.loss = "tracing programs and live events", n.lossEBPF()
		add(perfmon, n.sampler)
	} else {
		list = append(list, check{perfmon.name, groupCapabilities, false, perfmon.findForEvents})
	}
	add(capability{name: "CAP_CHECKPOINT_RESTORE", number: unix.CAP_CHECKPOINT_RESTORE, admin: true,
		use: "opening libraries that were deleted", loss: lossDeleted}, false)
	add(capability{name: "CAP_DAC_READ_SEARCH", number: unix.CAP_DAC_READ_SEARCH,
		use: "reading other users' mappings and files", loss: lossOthers}, false)
	for _, c := range []capability{
		{name: "CAP_SETUID", number: unix.CAP_SETUID}, {name: "CAP_SETGID", number: unix.CAP_SETGID},
	} {
		c.use, c.loss = "connecting to a socket with the privileges of its process", lossOthers
		add(c, false)
	}
	list = append(list, check{"CAP_SYS_ADMIN", groupCapabilities, false, findSender})
	if n.kernelStacks {
		syslog := capability{name: "CAP_SYSLOG", number: unix.CAP_SYSLOG, use: "kernel addresses", loss: lossSymbols}
		list = append(list, check{syslog.name, groupCapabilities, false, syslog.findForSymbols})
	}
	return list
}

func (c capability) find(m *machine) finding {
	switch {
	case m.caps.has(c.number):
		return ok("for " + c.use)
	case c.admin && m.caps.has(unix.CAP_SYS_ADMIN):
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

// findForEvents is find for CAP_PERFMON where no program is loaded: a low
// kernel.perf_event_paranoid then makes it unnecessary.
func (c capability) findForEvents(m *machine) finding { return c.findUnless(m, m.liveEvents) }

// findForSymbols is find for CAP_SYSLOG: where kernel.kptr_restrict is 0 the kernel may show its
// addresses to all processes.
func (c capability) findForSymbols(m *machine) finding { return c.findUnless(m, m.kernelSymbols) }

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

// capabilities is a set of capabilities, as a bit mask.
type capabilities uint64

// ownCapabilities returns the effective capabilities of the calling thread. All threads of the
// process have the same.
func ownCapabilities() capabilities {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // capabilities 0 to 31, 32 to 63
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return 0 // cannot fail with this version
	}
	return capabilities(sets[1].Effective)<<32 | capabilities(sets[0].Effective)
}

func (c capabilities) has(capability int) bool { return c&(1<<capability) != 0 }

// privileged reports whether a capability is in effect in the initial user namespace. It is assumed
// to be if the namespace is unknown.
func (m *machine) privileged(capability int) bool {
	initial, err := m.inInitialUserNamespace()
	return m.caps.has(capability) && (initial || err != nil)
}
