package check

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

func TestSettings(t *testing.T) {
	noPerf := func(m *machine) { m.caps = 0 }
	denied := func(m *machine) {
		m.liveEvents = func() error { return fmt.Errorf("%w: by a test", procscan.ErrDenied) }
	}
	unlocked := func(m *machine) {
		denied(m)
		m.caps &^= 1 << unix.CAP_IPC_LOCK
	}
	hidden := func(m *machine) { m.kernelSymbols = func() error { return errRefused } }
	refused := func(m *machine) { m.memory = func() (access, error) { return access{denied: 3, first: 1}, nil } }
	rate := func(n int) func(*machine) { return func(m *machine) { m.config.SamplesPerSecond = n } }
	large := func(m *machine) { m.cpus = 64 }
	for _, test := range []struct {
		name, value    string
		change         func(*machine)
		status         Status
		detail, remedy string
	}{
		{"kernel.perf_event_paranoid", "2", nil, OK, "2: does not apply", ""},
		{"kernel.perf_event_paranoid", "4", nil, OK, "4: does not apply", ""},
		{"kernel.perf_event_paranoid", "4", denied, Degraded, "4, and perf events are refused",
			"kernel.perf_event_paranoid=2"},
		{"kernel.perf_event_paranoid", "-1", noPerf, OK, "-1: live events need no CAP_PERFMON", ""},
		{"kernel.perf_event_paranoid", "1", noPerf, OK, "need CAP_PERFMON", ""},
		{"kernel.perf_event_mlock_kb", "516", nil, OK, "516 KiB for each CPU; live events lock 140", ""},
		{"kernel.perf_event_mlock_kb", "64", nil, OK, "with CAP_IPC_LOCK", ""},
		{"kernel.perf_event_mlock_kb", "64", func(m *machine) { m.caps = 0 }, OK, "within RLIMIT_MEMLOCK", ""},
		{"kernel.perf_event_mlock_kb", "64", unlocked, Degraded, "64 KiB",
			"kernel.perf_event_mlock_kb=140, or grant the process CAP_IPC_LOCK"},
		{"kernel.perf_event_max_sample_rate", "100000", nil, OK, "100000 a second", ""},
		{"kernel.perf_event_max_sample_rate", "97", rate(97), OK, "97 a second", ""},
		{"kernel.perf_event_max_sample_rate", "96", rate(97), Degraded,
			"96 a second on each CPU; --samples-per-second is 97", "max_sample_rate=97"},
		{"kernel.unprivileged_bpf_disabled", "2", nil, OK, "2", ""},
		{"kernel.kptr_restrict", "1", nil, OK, "1: kernel addresses are visible", ""},
		{"kernel.kptr_restrict", "1", hidden, OK, "visible with CAP_SYSLOG", ""},
		{"kernel.kptr_restrict", "2", hidden, Degraded, "from all processes", "kernel.kptr_restrict=1"},
		{"kernel.yama.ptrace_scope", "", nil, OK, "none", ""},
		{"kernel.yama.ptrace_scope", "2", nil, OK, "does not apply", ""},
		{"kernel.yama.ptrace_scope", "1", noPerf, OK, "needs CAP_SYS_PTRACE", ""},
		{"kernel.yama.ptrace_scope", "3", refused, Missing, "3: no process", "boot"},
		{"net.unix.max_dgram_qlen", "10", nil, OK,
			"takes 11 messages every 20 ms, 550 a second; a process has at most 40 samples", ""},
		{"net.unix.max_dgram_qlen", "10", large, Degraded, "at most 1280 samples a second (20 on each of 64 CPUs)",
			"max_dgram_qlen=25"},
		{"net.unix.max_dgram_qlen", "25", large, OK, "takes 26 messages every 20 ms, 1300 a second", ""},
		{"net.unix.max_dgram_qlen", "10", func(m *machine) { rate(10000)(m); large(m) }, Degraded, "640000 samples",
			"max_dgram_qlen=553"},
		{"net.unix.max_dgram_qlen", "ten", nil, Degraded, "unknown", "sys"},
	} {
		t.Run(test.name+" "+test.value, func(t *testing.T) {
			m := fakeMachine(t, nil)
			m.config.KernelStacks = true
			if test.value != "" {
				path := map[string]string{
					"kernel.yama.ptrace_scope": "sys/kernel/yama/ptrace_scope",
					"net.unix.max_dgram_qlen":  "sys/net/unix/max_dgram_qlen",
				}[test.name]
				if path == "" {
					path = "sys/kernel/" + test.name[len("kernel."):]
				}
				testenv.WriteFile(t, m.proc(path), test.value+"\n")
			}
			if test.change != nil {
				test.change(m)
			}
			found(t, m, test.name).verify(t, test.status, test.detail, test.remedy)
		})
	}
}

// In a procfs without sys (subset=pid) settings are unknown, not absent.
func TestSettingsHidden(t *testing.T) {
	m := fakeMachine(t, nil)
	assert.NilError(t, os.RemoveAll(m.proc("sys")))
	found(t, m, "kernel.yama.ptrace_scope").verify(t, Degraded, "unknown", "procfs")
}
