package unwind

import (
	"fmt"
	"regexp"

	"golang.org/x/sys/unix"

	"correlator/bpf"
)

// checkCapability returns an error unless this process has a capability.
func checkCapability(name string, capability int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	if sets[capability/32].Effective&(1<<(capability%32)) == 0 {
		return &bpf.MissingError{Feature: name, Remedy: "grant the process " + name, Err: unix.EPERM}
	}
	return nil
}

// chainDescriptors is more than the programs and tables of a chain need, some 40, and what is opened to load them.
const chainDescriptors = 64

// checkDescriptors returns an error unless there are chainDescriptors. The library that loads programs takes a
// table that it cannot make for want of one for a feature that the kernel lacks, and remembers that for ever
// (cilium/ebpf v0.22, haveMapMutabilityModifiers).
func checkDescriptors() error {
	for range chainDescriptors {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("loading the unwinding programs takes %d descriptors: %w", chainDescriptors, err)
		}
		defer unix.Close(fd)
	}
	return nil
}

// checkKernel refuses kernels with a bug by which reading user memory in a BPF program can freeze the
// machine: from 5.19, fixed in 6.1.36, 6.3.10 and 6.4 (copy_from_user_nofault in mm/maccess.c).
func checkKernel() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("reading the kernel's version: %w", err)
	}
	release, build := unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Version[:])
	version, err := stableVersion(release, build)
	if err != nil {
		return fmt.Errorf("reading the kernel's version: %w", err)
	}
	if freezes(version[0], version[1], version[2]) {
		return fmt.Errorf("this kernel, %s, can freeze when BPF programs read user memory (fixed in 6.1.36, 6.3.10 and 6.4)",
			release)
	}
	return nil
}

// debianVersion is the version of the package in what uname -v prints of Debian's kernels, as in "#1
// SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02)".
var debianVersion = regexp.MustCompile(` Debian (\d+\.\d+\.\d+)`)

// stableVersion returns the version of the stable kernel that a kernel was built from, by what uname
// -r and -v print. Debian until 12 writes 0 for the last number of all releases, as in
// "6.1.0-50-amd64".
func stableVersion(release, build string) (version [3]int, err error) {
	if debian := debianVersion.FindStringSubmatch(build); debian != nil {
		release = debian[1]
	}
	n, err := fmt.Sscanf(release, "%d.%d.%d", &version[0], &version[1], &version[2])
	if n < 2 {
		return version, fmt.Errorf("parsing %q: %w", release, err)
	}
	return version, nil
}

func freezes(major, minor, patch int) bool {
	switch {
	case major == 5:
		return minor >= 19
	case major != 6:
		return false
	}
	return minor == 0 || minor == 1 && patch < 36 || minor == 2 || minor == 3 && patch < 10
}
