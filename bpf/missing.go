package bpf

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
)

// MissingError is something that eBPF needs and this machine or process lacks. It wraps
// [errors.ErrUnsupported] and Err.
type MissingError struct {
	Feature string // what is missing, as in "CAP_BPF"
	Remedy  string // what to do about it, as an imperative
	Err     error  // what it was inferred from; not part of the text
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("missing %s: %s", e.Feature, e.Remedy)
}

func (e *MissingError) Unwrap() []error {
	return []error{errors.ErrUnsupported, e.Err}
}

func missingBTF(err error) error {
	return &MissingError{
		Feature: "kernel type information (/sys/kernel/btf/vmlinux)",
		Remedy:  "mount /sys, or boot a kernel built with CONFIG_DEBUG_INFO_BTF",
		Err:     err,
	}
}

// ownMounts is what the eBPF library reads to look for BPF tokens, before it loads anything.
const ownMounts = "/proc/self/mountinfo"

func missingProc(err error) error {
	return &MissingError{
		Feature: "ourselves in /proc (" + ownMounts + ")",
		Remedy:  "mount -t proc proc /proc, also where --proc-root names another procfs",
		Err:     err,
	}
}

func missingIterator(name string, err error) error {
	return &MissingError{
		Feature: "the kernel's eBPF " + name + " iterator",
		Remedy:  "boot Linux 5.8 or later",
		Err:     err,
	}
}

func missingRingBuffer(err error) error {
	return &MissingError{
		Feature: "the kernel's eBPF ring buffer",
		Remedy:  "boot Linux 5.8 or later",
		Err:     err,
	}
}

func missingSyscall(err error) error {
	return &MissingError{
		Feature: "the bpf system call",
		Remedy:  "boot a kernel built with CONFIG_BPF_SYSCALL; sandboxes such as gVisor have none",
		Err:     err,
	}
}

// initialUserNamespace is the target of /proc/self/ns/user in the initial user namespace:
// PROC_USER_INIT_INO of include/linux/proc_ns.h, the same number on every machine.
const initialUserNamespace = "user:[4026531837]"

// missingRight returns which rights the process lacks, nil when none: of the capabilities, in the
// initial user namespace.
func missingRight(err error, capabilities ...capability) error {
	if name, linkErr := os.Readlink("/proc/self/ns/user"); linkErr == nil && name != initialUserNamespace {
		return &MissingError{
			Feature: "capabilities in the initial user namespace",
			Remedy:  "run outside of user namespaces (rootless containers, user-namespaced pods)",
			Err:     err,
		}
	}
	if names := missingCapabilities(capabilities); len(names) > 0 {
		missing := strings.Join(names, " and ")
		remedy := "grant the process " + missing
		if os.Geteuid() != 0 {
			remedy = "run as root, or " + remedy
		}
		return &MissingError{Feature: missing, Remedy: remedy, Err: err}
	}
	return nil
}

// missingPermission is for a process that has all rights and is refused all the same.
func missingPermission(err error) error {
	return &MissingError{
		Feature: "permission to use bpf(2)",
		Remedy: "allow it in the seccomp profile and the security module; before Linux 5.11, " +
			"raise the locked memory limit, RLIMIT_MEMLOCK (" + lockedMemoryLimit() + ")",
		Err: err,
	}
}

// ErrLockedDown: kernel_lockdown(7) forbids eBPF programs to read the kernel's memory.
var ErrLockedDown = errors.New("eBPF programs may not read the kernel's memory")

func missingKernelReads(err error) error {
	return &MissingError{
		Feature: "permission of eBPF programs to read the kernel's memory (lockdown=confidentiality)",
		Remedy:  "boot with lockdown=integrity, or none",
		Err:     fmt.Errorf("%w: %w", ErrLockedDown, err),
	}
}

// lockedDown reports whether kernel_lockdown(7) is in the mode confidentiality: programs have no
// bpf_probe_read_kernel then, which all kernels with task iterators have else. The eBPF library
// (v0.22) replaces the call by one of bpf_probe_read, and so takes the refusal of recent kernels,
// which names that, for another error than a missing function: EINVAL.
func lockedDown() bool {
	err := features.HaveProgramHelper(ebpf.PerfEvent, asm.FnProbeReadKernel)
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL)
}

func missingPerf(err error) error {
	return &MissingError{
		Feature: "the software CPU clock of perf_event_open(2)",
		Remedy:  "boot a kernel built with CONFIG_PERF_EVENTS",
		Err:     err,
	}
}

// missingPerfPermission is for a process that may not open a perf event for all processes of a CPU.
func missingPerfPermission(err error) error {
	if missing := missingRight(err, capPerfmon); missing != nil {
		return missing
	}
	return &MissingError{
		Feature: "permission to use perf_event_open(2)",
		Remedy: "allow it in the seccomp profile and the security module; some distributions' kernels also " +
			"want kernel.perf_event_paranoid to be 2 or less, or CAP_SYS_ADMIN",
		Err: err,
	}
}

func missingBPFFS(dir string, err error) error {
	return &MissingError{
		Feature: "a bpf file system at " + dir,
		Remedy:  "mount -t bpf bpf /sys/fs/bpf, and name a directory below that",
		Err:     err,
	}
}

func lockedMemoryLimit() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return err.Error()
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return "now unlimited"
	}
	return fmt.Sprintf("now %d KiB", limit.Cur/1024)
}

// capability is one that loading a tracing program or counting on a CPU needs.
type capability struct {
	name   string
	number int
}

var (
	capBPF     = capability{"CAP_BPF", unix.CAP_BPF}
	capPerfmon = capability{"CAP_PERFMON", unix.CAP_PERFMON}
)

// missingCapabilities returns the names of those capabilities that the calling thread does not
// have. CAP_SYS_ADMIN includes all.
func missingCapabilities(needed []capability) []string {
	own, err := self.Effective()
	if err != nil || own.Has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	var names []string
	for _, c := range needed {
		if !own.Has(c.number) {
			names = append(names, c.name)
		}
	}
	return names
}
