package memread

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ProbeReadv reports whether there is process_vm_readv, by reading nothing of ourselves. Without it
// a Process is read by way of /proc/PID/mem, which takes a descriptor more, and a call for each
// read.
func ProbeReadv() error {
	_, err := unix.ProcessVMReadv(os.Getpid(), nil, nil, 0)
	return os.NewSyscallError("process_vm_readv", err)
}

// ProbeAccess reports whether a Process of pid may be read, with ErrDenied and ErrGone as its reads
// have them. Nothing is learnt of its memory: the address that is asked for is the null pointer's.
func ProbeAccess(procRoot string, pid int) error {
	p := Open(procRoot, pid)
	defer p.Close()
	_, err := p.Read(0, make([]byte, 1))
	if errors.Is(err, ErrUnmapped) {
		return nil
	}
	return err
}
