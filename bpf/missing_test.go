package bpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

// circumstances are what a process can lack, each tested on a thread that prepare has changed, in one of these new
// processes: in that of another, more may be known of the kernel.
var circumstances = []struct {
	process string
	name    string
	prepare func() error
	feature string // of the MissingError; empty: opening succeeds
	remedy  string // part of it

	withoutAdmin bool // the sampler cannot be opened where perf events need CAP_SYS_ADMIN
}{{
	process: "permissions",
	name:    "no capabilities",
	prepare: func() error { return keepCapabilities() },
	feature: "CAP_BPF and CAP_PERFMON",
	remedy:  "grant the process CAP_BPF and CAP_PERFMON",
}, {
	process: "permissions",
	name:    "no CAP_BPF",
	prepare: func() error { return keepCapabilities(unix.CAP_PERFMON) },
	feature: "CAP_BPF",
	remedy:  "grant the process CAP_BPF",
}, {
	process: "permissions",
	name:    "no CAP_PERFMON",
	prepare: func() error { return keepCapabilities(unix.CAP_BPF) },
	feature: "CAP_PERFMON",
	remedy:  "grant the process CAP_PERFMON",
}, {
	process: "permissions",
	name:    "bpf refused by seccomp",
	prepare: func() error { return failBPF(unix.EPERM) },
	feature: "permission to use bpf(2)",
	remedy:  "allow it in the seccomp profile",
}, {
	process:      "permissions",
	name:         "CAP_BPF and CAP_PERFMON only",
	prepare:      func() error { return keepCapabilities(unix.CAP_BPF, unix.CAP_PERFMON) },
	withoutAdmin: true,
}, {
	process: "permissions",
	name:    "CAP_SYS_ADMIN only",
	prepare: func() error { return keepCapabilities(unix.CAP_SYS_ADMIN) },
}, {
	// Kernels before 5.11 charge eBPF to this limit, which is raised.
	process: "permissions",
	name:    "no locked memory",
	prepare: func() error {
		return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{})
	},
}, {
	process: "user namespace",
	name:    "user namespace",
	prepare: func() error { return nil },
	feature: "capabilities in the initial user namespace",
	remedy:  "outside of user namespaces",
}, {
	process: "files",
	name:    "no kernel BTF",
	prepare: func() error { return hide("/sys/kernel/btf") },
	feature: "kernel type information (/sys/kernel/btf/vmlinux)",
	remedy:  "CONFIG_DEBUG_INFO_BTF",
}, {
	process: "files",
	name:    "no sysfs",
	prepare: func() error { return hide("/sys") },
	feature: "kernel type information (/sys/kernel/btf/vmlinux)",
	remedy:  "mount /sys",
}, {
	process: "files",
	name:    "no procfs",
	prepare: func() error { return hide("/proc") },
	feature: "ourselves in /proc (/proc/self/mountinfo)",
	remedy:  "mount -t proc proc /proc",
}, {
	process: "no bpf",
	name:    "no bpf system call",
	prepare: func() error { return failBPF(unix.ENOSYS) },
	feature: "the bpf system call",
	remedy:  "CONFIG_BPF_SYSCALL",
}}

func TestMissing(t *testing.T) {
	testenv.NeedRoot(t)
	if inner := os.Getenv(innerVariable); inner != "" {
		for _, c := range circumstances {
			if c.process != inner {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				runtime.LockOSThread()   // never unlocked: the thread ends with the test
				raiseLockedMemoryLimit() // before Linux 5.11 it counts, and without CAP_SYS_RESOURCE it stays
				assert.NilError(t, c.prepare())
				if c.withoutAdmin && testenv.PerfNeedsAdmin(t) {
					_, err := OpenSampler(SamplerOptions{SamplesPerSecond: 1})
					verifyMissingError(t, err, "", "permission to use perf_event_open(2)",
						"kernel.perf_event_paranoid to be 2 or less, or CAP_SYS_ADMIN")
					return
				}
				verifyMissing(t, c.feature, c.remedy)
			})
		}
		return
	}
	openThreads(t).Close() // skips the test if something is missing
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	outputs := make(map[string]string)
	for _, c := range circumstances {
		if outputs[c.process] == "" {
			attr := new(syscall.SysProcAttr)
			if c.process == "user namespace" {
				attr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
			}
			outputs[c.process] = runAgain(t, c.process, "^TestMissing$", attr)
		}
		passed := "--- PASS: TestMissing/" + strings.ReplaceAll(c.name, " ", "_") + " "
		assert.Check(t, strings.Contains(outputs[c.process], passed), "no %q:\n%s", passed, outputs[c.process])
	}
}

func verifyMissing(t *testing.T, feature, remedy string) {
	threads, err := OpenThreads()
	if feature == "" {
		assert.NilError(t, err)
		defer threads.Close()
		assert.Check(t, len(process(t, threads, os.Getpid())) != 0, "we have no threads")
		verifyWorks(t)
		return
	}
	verifyMissingError(t, err, "loading task iterator: ", feature, remedy)
	_, err = OpenSampler(SamplerOptions{SamplesPerSecond: 1})
	verifyMissingError(t, err, "loading identity iterator: ", feature, remedy)
}

// verifyWorks checks that a sampler can do its work.
func verifyWorks(t *testing.T) {
	t.Helper()
	s, err := OpenSampler(SamplerOptions{SamplesPerSecond: 1000})
	assert.NilError(t, err)
	defer s.Close()
	testenv.Poll(t, waiting, "samples", func() bool { counters := readCounters(t, s); return counters.Taken() > 0 })
	identity, err := s.Identify(os.Getpid())
	assert.NilError(t, err)
	_, err = s.SetTarget(identity, TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static}})
	assert.Check(t, err)
	drainAll(t, s)
}

func verifyMissingError(t *testing.T, err error, prefix, feature, remedy string) {
	t.Helper()
	assert.Check(t, errors.Is(err, errors.ErrUnsupported), "%v is not ErrUnsupported", err)
	var missing *MissingError
	assert.Assert(t, errors.As(err, &missing), "%v is not a MissingError", err)
	assert.Check(t, missing.Feature == feature, "missing %q, not %q", missing.Feature, feature)
	assert.Check(t, strings.Contains(missing.Remedy, remedy), "remedy %q does not contain %q", missing.Remedy, remedy)
	want := fmt.Sprintf("%smissing %s: %s", prefix, missing.Feature, missing.Remedy)
	assert.Check(t, err.Error() == want, "text %q, not %q", err, want)
}

// keepCapabilities drops all capabilities of the calling thread but these.
func keepCapabilities(capabilities ...int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	for _, capability := range capabilities {
		sets[capability/32].Effective |= 1 << (capability % 32)
		sets[capability/32].Permitted |= 1 << (capability % 32)
	}
	return unix.Capset(&header, &sets[0])
}

// hide mounts an empty directory over dir, in a mount namespace of the calling thread.
func hide(dir string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "")
}

// failBPF makes bpf(2) fail with errno on the calling thread.
func failBPF(errno syscall.Errno) error { return failCall(unix.SYS_BPF, errno) }

// failCall makes a system call fail with errno on the calling thread.
func failCall(number uint32, errno syscall.Errno) error {
	return testenv.RefuseCalls(map[uint32]syscall.Errno{number: errno})
}

// Linux 5.2 to 5.7 have type information but no task iterators.
func TestMissingIterator(t *testing.T) {
	spec, err := decompress(threadsObject)
	assert.NilError(t, err)
	for _, test := range []struct {
		function string // the only one that the kernel has
		missing  bool
	}{
		{function: "bpf_iter_task", missing: false},
		{function: "bpf_iter_bpf_map", missing: true},
	} {
		returns := &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}}
		kernel := specOf(t, &btf.Func{Name: test.function, Type: returns, Linkage: btf.StaticFunc})
		err := findIterators(spec, kernel)
		assert.Check(t, errors.Is(err, errors.ErrUnsupported) == test.missing, "kernel with %s: %v", test.function, err)
		const want = "missing the kernel's eBPF task iterator: boot Linux 5.8 or later"
		assert.Check(t, !test.missing || err.Error() == want, "text %q, not %q", err, want)
	}
}

// Without CAP_SYS_RESOURCE the limit can be raised only to the hard limit, which is not an error.
func TestRaiseLockedMemoryLimit(t *testing.T) {
	var before, after unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 0, Max: before.Max}))
	raiseLockedMemoryLimit()
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &after))
	assert.Check(t, after.Cur == after.Max && after.Max >= before.Max, "raised to %d of %d", after.Cur, after.Max)
}
