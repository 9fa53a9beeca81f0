package bpf

import (
	"errors"
	"fmt"
	"regexp"

	"golang.org/x/sys/unix"
)

// ReadsInKernel returns an error if programs must not read user memory where they have interrupted kernel
// code. bpf_probe_read_user can stop the machine for good there: copy_from_user_nofault of mm/maccess.c
// takes the lock vmap_area_lock, which the interrupted code may hold. From Linux 5.19, fixed in 6.1.36,
// 6.3.10 and 6.4. What a distribution has fixed in a kernel of another version is not seen. A kernel whose
// version is not known is taken for one of these.
func ReadsInKernel() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("reading the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	version, err := stableVersion(release, unix.ByteSliceToString(name.Version[:]))
	if err != nil {
		return fmt.Errorf("reading the kernel's version: %w", err)
	}
	if freezes(version[0], version[1], version[2]) {
		return &MissingError{
			Feature: "a kernel that does not freeze when eBPF programs read user memory: " + release + " can",
			Remedy:  "boot Linux 6.1.36, 6.3.10, 6.4 or later", Err: errors.ErrUnsupported,
		}
	}
	return nil
}

// debianVersion is the version of the package, without its epoch, in what uname -v prints of Debian's
// kernels, as in "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02)".
var debianVersion = regexp.MustCompile(` Debian (?:\d+:)?(\d+\.\d+\.\d+)`)

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
