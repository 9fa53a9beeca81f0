package check

import (
	"os"

	"golang.org/x/sys/unix"
)

// capability is one that `run` uses.
type capability struct {
	name   string
	number int
	admin  bool   // CAP_SYS_ADMIN stands in for it
	use    string // what for
	loss   string // without
}

func capabilityChecks(n needs) []check {
	var list []check
	add := func(c capability, required bool) {
		list = append(list, check{c.name, groupCapabilities, required, c.find})
	}
	add(capability{name: "CAP_SYS_PTRACE", number: unix.CAP_SYS_PTRACE,
		use: "reading other processes' memory and mappings", loss: lossRights}, false)
	if n.eBPF {
		add(capability{name: "CAP_BPF", number: unix.CAP_BPF, admin: true, use: "loading eBPF programs", loss: n.lossEBPF()}, n.sampler)
	}
	perfmon := capability{name: "CAP_PERFMON", number: unix.CAP_PERFMON, admin: true, use: "live events", loss: lossLive}
	if n.eBPF {
		perfmon.use, perfmon.loss = "programs that trace, and live events", n.lossEBPF()
		add(perfmon, n.sampler)
	} else {
		list = append(list, check{perfmon.name, groupCapabilities, false, perfmon.findForEvents})
	}
	add(capability{name: "CAP_CHECKPOINT_RESTORE", number: unix.CAP_CHECKPOINT_RESTORE, admin: true,
		use: "opening libraries that were deleted", loss: lossDeleted}, false)
	add(capability{name: "CAP_DAC_READ_SEARCH", number: unix.CAP_DAC_READ_SEARCH,
		use: "looking at other users' mappings and files", loss: lossOthers}, false)
	for _, c := range []capability{{name: "CAP_SETUID", number: unix.CAP_SETUID}, {name: "CAP_SETGID", number: unix.CAP_SETGID}} {
		c.use, c.loss = "connecting to a socket with the rights of its process", lossOthers
		add(c, false)
	}
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

// findForEvents is for CAP_PERFMON where no program is loaded, so that a low kernel.perf_event_paranoid
// replaces it.
func (c capability) findForEvents(m *machine) finding { return c.findUnless(m, m.liveEvents) }

// findForSymbols is for CAP_SYSLOG: where kernel.kptr_restrict is 0 the kernel may show its addresses to all.
func (c capability) findForSymbols(m *machine) finding { return c.findUnless(m, m.kernelSymbols) }

func (c capability) findUnless(m *machine, works func() error) finding {
	f := c.find(m)
	if f.status != OK && works() == nil {
		return ok("not in effect, and not needed for " + c.use)
	}
	return f
}

// grant is the remedy for a capability, as package bpf words it.
func grant(name string) string {
	if os.Geteuid() != 0 {
		return "run as root, or grant the process " + name
	}
	return "grant the process " + name
}

// capabilities are those in effect, a bit for each.
type capabilities uint64

// ownCapabilities are those of the calling thread, and so of all: none of ours has others.
func ownCapabilities() capabilities {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // capabilities 0 to 31, 32 to 63
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return 0 // cannot fail with this version
	}
	return capabilities(sets[1].Effective)<<32 | capabilities(sets[0].Effective)
}

func (c capabilities) has(capability int) bool { return c&(1<<capability) != 0 }

// privileged says whether a capability is in effect, and counts for the whole machine.
func (m *machine) privileged(capability int) bool {
	initial, err := m.inInitialUserNamespace()
	return m.caps.has(capability) && (initial || err != nil)
}
