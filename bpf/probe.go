package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// The probes of this file check what [OpenSampler] and [OpenThreads] need, by using it briefly. The
// error is a [MissingError] when the machine or the process lacks it. They leave nothing behind.

// ProbeTypes reads the kernel's type information.
func ProbeTypes() error {
	_, err := kernelTypes(btf.NewCache())
	return err
}

// ProbeIterator loads a task iterator, and reports whether this kernel can walk one process (Linux
// 6.1) instead of all.
func ProbeIterator() (filters bool, err error) {
	i, err := openIdentities()
	if err != nil {
		return false, err
	}
	return i.filters, i.close()
}

// ProbeRingBuffer creates a ring buffer of the smallest size.
func ProbeRingBuffer() error {
	spec := &ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())}
	var ring *ebpf.Map
	err := Permitted(func() (err error) {
		ring, err = ebpf.NewMap(spec)
		return err
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return missingRingBuffer(err)
	}
	if err != nil {
		return fmt.Errorf("making a ring buffer: %w", err)
	}
	return ring.Close()
}

// ProbeClock opens the clock of each online CPU in turn. None of them ticks.
func ProbeClock() error {
	cpus, err := procscan.ReadCPUs(procscan.OnlineCPUs)
	if err != nil {
		return err
	}
	for _, cpu := range cpus {
		fd, err := openCPUClock(cpu, time.Second)
		if errors.Is(err, unix.ENODEV) { // it has just gone
			continue
		}
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

// ProbePinDir checks that a sampler could use dir as its PinDir, without creating anything. It
// locks an existing directory briefly, as a sampler does.
func ProbePinDir(dir string) error {
	if err := checkBPFFS(dir); err != nil {
		return err
	}
	existing, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer existing.Close()
	if err := existing.CheckWritable(); err != nil {
		return err
	}
	if whole, err := filepath.Abs(dir); err != nil || existing.Path("") != whole {
		return err
	}
	lock, err := lockPinDir(existing)
	if err != nil {
		return err
	}
	defer lock.Close()
	return (&pinDir{Dir: existing}).checkTable()
}
