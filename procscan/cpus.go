package procscan

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OnlineCPUs is the file in which the kernel lists the online CPUs, such as "0-2,5".
const OnlineCPUs = "/sys/devices/system/cpu/online"

// maxCPUListBytes is a page: the kernel returns no more from a file of sysfs, and all of it at
// once.
const maxCPUListBytes = 4096

// ReadCPUs returns the CPUs that such a file lists, in ascending order. The file is of sysfs, or a regular one. It is
// read every second by raw system calls, which cannot block: ordinary ones wake the monitor thread of the Go runtime.
func ReadCPUs(path string) ([]int, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", path, err)
	}
	cwd := unix.AT_FDCWD
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(cwd), uintptr(unsafe.Pointer(name)),
		unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return nil, fmt.Errorf("opening %s: %w", path, errno)
	}
	list := make([]byte, maxCPUListBytes)
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(list))), maxCPUListBytes)
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	if errno != 0 {
		return nil, fmt.Errorf("reading %s: %w", path, errno)
	}
	cpus, err := parseCPUs(strings.TrimSpace(string(list[:n])))
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", path, err)
	}
	return cpus, nil
}

// parseCPUs parses a list of numbers and ranges.
func parseCPUs(list string) (cpus []int, err error) {
	const maxCPU = 1 << 13 // the largest CONFIG_NR_CPUS
	for item := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(item, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 32)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseUint(high, 10, 32)
		if err != nil {
			return nil, err
		}
		if first > last || last >= maxCPU {
			return nil, fmt.Errorf("range %q", item)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
