package messaging

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
)

// SenderPID is the pid that a receiver is shown with a message: as a number (SO_PASSCRED), and as a
// pidfd (SO_PASSPIDFD, Linux 6.5). With a pidfd of the agent, a receiver that has CAP_SYS_PTRACE in
// the initial user namespace could take descriptors out of it (pidfd_getfd), from a container, too.
type SenderPID int32

// kthreadd is the pid of the kernel's thread daemon in the initial pid namespace. It never ends, and
// has no memory and no descriptors.
const kthreadd SenderPID = 2

// ErrSenderShown: messages show the agent's pid.
var ErrSenderShown = errors.New("messages show the agent's pid")

func ownPID() SenderPID { return SenderPID(os.Getpid()) }

// FindSenderPID returns kthreadd if messages may show it, which takes CAP_SYS_ADMIN. Otherwise it
// returns our own pid, and why: an error that is ErrSenderShown. procRoot is a procfs of our own pid
// namespace.
func FindSenderPID(procRoot string) (SenderPID, error) {
	if err := checkKernelThread(procRoot, kthreadd); err != nil {
		return ownPID(), fmt.Errorf("%w: %w", ErrSenderShown, err)
	}
	if err := trySender(kthreadd); err != nil {
		return ownPID(), fmt.Errorf("%w: sending as kthreadd (CAP_SYS_ADMIN): %w", ErrSenderShown, err)
	}
	return kthreadd, nil
}

// checkKernelThread checks that a process is one of the kernel: in the pid namespace of a container
// it is another one.
func checkKernelThread(procRoot string, pid SenderPID) error {
	const kernelThread = 0x00200000 // PF_KTHREAD (include/linux/sched.h)
	text, err := procdir.Stat(path.Join(procRoot, strconv.Itoa(int(pid))), 9)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoKernelThread, err)
	}
	if flags, err := strconv.ParseUint(text, 10, 32); err != nil || flags&kernelThread == 0 {
		return errNoKernelThread
	}
	return nil
}

var errNoKernelThread = errors.New("pid 2 is no thread of the kernel, as in the initial pid namespace")

// trySender sends ourselves a message.
func trySender(pid SenderPID) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	ours := unix.UnixCredentials(&unix.Ucred{Pid: int32(pid), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
	return unix.Sendmsg(fds[0], []byte{0}, ours, nil, unix.MSG_DONTWAIT)
}
