package unwind

import (
	"fmt"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/host/self"
)

// checkCapability returns an error unless this process has a capability.
func checkCapability(name string, capability int) error {
	own, err := self.Effective()
	if err != nil {
		return err
	}
	if !own.Has(capability) {
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
