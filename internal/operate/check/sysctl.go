package check

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/procscan"
	"correlator/procscan/watch"
)

// setting returns the probe of a number that sysctl(8) sets.
func setting(name string, need func(*Config) bool, read func(m *machine, value int) finding) probe {
	return probe{name, groupSettings, need, nil, func(m *machine) finding {
		value, err := m.sysctl(name)
		switch {
		case errors.Is(err, errNoSysctl):
			return ok("the kernel has none")
		case errors.Is(err, errSysctlsHidden):
			return ok(errSysctlsHidden.Error())
		case err != nil:
			return m.unknown(err, lossUnproved, "mount a procfs with its sys directory")
		}
		return read(m, value)
	}}
}

func unprivilegedBPF(_ *machine, value int) finding {
	return ok(fmt.Sprintf("%d: does not apply to CAP_BPF", value))
}

// errNoSysctl is of a setting that does not exist, because the kernel was built or runs without
// what it sets.
var errNoSysctl = errors.New("not there")

// errSysctlsHidden is of all settings in a procfs that has only processes.
var errSysctlsHidden = errors.New("hidden in a procfs with subset=pid")

// sysctl returns the value of a numeric setting. The error is errNoSysctl if only this one does not
// exist, and errSysctlsHidden if none is visible.
func (m *machine) sysctl(name string) (int, error) {
	path := m.proc("sys", strings.ReplaceAll(name, ".", "/"))
	text, err := readText(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, rootErr := os.Stat(m.proc("sys/kernel")); rootErr == nil {
			return 0, fmt.Errorf("%s is %w", name, errNoSysctl)
		}
	}
	if mount, mountErr := m.procMount(); err != nil && mountErr == nil && mount.SuperOptions["subset"] == "pid" {
		return 0, errSysctlsHidden
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// perfEventParanoid does not apply to CAP_PERFMON, except in the kernels of some distributions.
func perfEventParanoid(m *machine, value int) finding {
	err := m.liveEvents()
	privileged := m.privileged(unix.CAP_PERFMON) || m.privileged(unix.CAP_SYS_ADMIN)
	switch {
	case privileged && value > 2 && errors.Is(err, procscan.ErrDenied):
		return finding{Degraded, fmt.Sprintf("%d, and perf events are refused", value), lossLive,
			"sysctl -w kernel.perf_event_paranoid=2"}
	case privileged:
		return ok(fmt.Sprintf("%d: does not apply to CAP_PERFMON", value))
	case value <= 0:
		return ok(fmt.Sprintf("%d: live events need no CAP_PERFMON", value))
	}
	return ok(fmt.Sprintf("%d: perf events of all processes need CAP_PERFMON", value))
}

// lockedMemory returns how many bytes a perf ring of each CPU may lock, 0 if unknown.
func (m *machine) lockedMemory() int {
	kilobytes, err := m.sysctl("kernel.perf_event_mlock_kb")
	if err != nil {
		return 0
	}
	return kilobytes << 10
}

// perfEventMlock checks a limit for each CPU and user. What the perf rings of a user lock above it
// counts towards RLIMIT_MEMLOCK, unless CAP_IPC_LOCK is in effect.
func perfEventMlock(m *machine, value int) finding {
	needed := watch.EventMemoryBytes() >> 10
	detail := fmt.Sprintf("%d KiB for each CPU; live events lock %d", value, needed)
	switch {
	case value >= needed:
		return ok(detail)
	case m.caps.Has(unix.CAP_IPC_LOCK):
		return ok(detail + ", with CAP_IPC_LOCK")
	case m.liveEvents() == nil:
		return ok(detail + ", within RLIMIT_MEMLOCK")
	}
	return finding{Degraded, detail, lossLive,
		fmt.Sprintf("sysctl -w kernel.perf_event_mlock_kb=%d, or grant the process CAP_IPC_LOCK", needed)}
}

func maxSampleRate(m *machine, value int) finding {
	rate := m.config.SamplesPerSecond
	detail := fmt.Sprintf("%d a second on each CPU; --samples-per-second is %d", value, rate)
	if value >= rate {
		return ok(detail)
	}
	return finding{Degraded, detail, "most samples are missed",
		fmt.Sprintf("sysctl -w kernel.perf_event_max_sample_rate=%d (the kernel lowers it when perf interrupts "+
			"take too long, see kernel.perf_cpu_time_max_percent), or take fewer samples", rate)}
}

func kptrRestrict(m *machine, value int) finding {
	switch {
	case m.kernelSymbols() == nil:
		return ok(fmt.Sprintf("%d: kernel addresses are visible", value))
	case value >= 2:
		return finding{Degraded, fmt.Sprintf("%d hides kernel addresses from all processes", value), lossSymbols,
			"sysctl -w kernel.kptr_restrict=1"}
	}
	return ok(fmt.Sprintf("%d: kernel addresses are visible with CAP_SYSLOG", value))
}

// ptraceScope checks a setting that cannot be changed any more once it is 3.
func ptraceScope(m *machine, value int) finding {
	switch {
	case value >= 3 && m.refused():
		return finding{Missing, fmt.Sprintf("%d: no process may read the memory of another", value),
			"no process is served" + m.config.notReady(),
			"boot with kernel.yama.ptrace_scope 2 or less: it cannot be lowered from 3"}
	case value >= 3:
		return finding{Degraded, fmt.Sprintf("%d: no process may read the memory of another", value), lossUnproved,
			"boot with kernel.yama.ptrace_scope 2 or less: it cannot be lowered from 3"}
	case value > 0 && !m.caps.Has(unix.CAP_SYS_PTRACE):
		return ok(fmt.Sprintf("%d: reading another process's memory needs CAP_SYS_PTRACE", value))
	}
	return ok(fmt.Sprintf("%d: does not apply to CAP_SYS_PTRACE", value))
}

const (
	// agentPollsPerSecond is how often the Java agent reads all messages that have arrived: every
	// 20 ms.
	agentPollsPerSecond = 50
	// longestQueue is the number of messages that the send buffer has room for (messaging:
	// sendBufferBytes), less one.
	longestQueue = 553
)

// queueLength checks the length of datagram queues, which take one message more. Samples of the
// same stack in the same transaction that wait together are one message, so this is the worst case:
// a process that uses all CPUs, and whose samples all differ.
func queueLength(m *machine, value int) finding {
	capacity := (value + 1) * agentPollsPerSecond
	most := m.config.SamplesPerSecond * m.cpus
	detail := fmt.Sprintf("%d in this network namespace: an agent takes %d messages every 20 ms, %d a second; "+
		"a process has at most %d samples a second (%d on each of %d CPUs)",
		value, value+1, capacity, most, m.config.SamplesPerSecond, m.cpus)
	if most <= capacity {
		return ok(detail)
	}
	needed := min((most+agentPollsPerSecond-1)/agentPollsPerSecond-1, longestQueue)
	return finding{Degraded, detail,
		fmt.Sprintf("a process with more than %d different samples a second loses those above", capacity),
		fmt.Sprintf("sysctl -w net.unix.max_dgram_qlen=%d in the network namespace of the service, before it starts",
			needed)}
}
