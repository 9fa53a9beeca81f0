package memread

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ProbeReadv checks that the kernel has process_vm_readv, by reading no bytes of our own process.
// Without it a Process is read through /proc/PID/mem, which takes one more descriptor, and a call
// for each read.
func ProbeReadv() error {
	_, err := unix.ProcessVMReadv(os.Getpid(), nil, nil, 0)
	return os.NewSyscallError("process_vm_readv", err)
}

// ProbeAccess checks that the memory of pid may be read; the error is ErrDenied or ErrGone, as from
// Read. It reads at address 0, so nothing of the memory is disclosed.
func ProbeAccess(procRoot string, pid int) error {
	p := Open(procRoot, pid)
	defer p.Close()
	_, err := p.Read(0, make([]byte, 1))
	if errors.Is(err, ErrUnmapped) {
		return nil
	}
	return err
}
