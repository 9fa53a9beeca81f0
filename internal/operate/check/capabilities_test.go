package check

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestCapabilities(t *testing.T) {
	with := func(m *machine, capabilities ...int) *machine {
		m.caps = 0
		for _, c := range capabilities {
			m.caps |= 1 << c
		}
		return m
	}
	m := fakeMachine(t, nil)
	m.config.KernelStacks = true
	for name, number := range map[string]int{
		"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_BPF": unix.CAP_BPF, "CAP_PERFMON": unix.CAP_PERFMON,
		"CAP_CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
		"CAP_SETUID": unix.CAP_SETUID, "CAP_SETGID": unix.CAP_SETGID, "CAP_SYSLOG": unix.CAP_SYSLOG,
	} {
		m.kernelSymbols = func() error { return errRefused }
		found(t, with(m, number), name).verify(t, OK, "for ", "")
		found(t, with(m), name).verify(t, Missing, "not in effect", name)
		admin := found(t, with(m, unix.CAP_SYS_ADMIN), name)
		included := name == "CAP_BPF" || name == "CAP_PERFMON" ||
			name == "CAP_CHECKPOINT_RESTORE"
		assert.Check(t, included == (admin.status == OK), "%s by CAP_SYS_ADMIN: %+v", name, admin)
	}
	m.kernelSymbols = func() error { return nil }
	found(t, with(m), "CAP_SYSLOG").verify(t, OK, "not needed", "")

	// If no program is loaded, CAP_PERFMON is not needed where live events work without it.
	m.config.SamplesPerSecond, m.config.FeedSocket = 0, ""
	found(t, with(m), "CAP_PERFMON").verify(t, OK, "not needed", "")
	m.liveEvents = func() error { return errRefused }
	found(t, with(m), "CAP_PERFMON").verify(t, Missing, "not in effect", "CAP_PERFMON")
}
