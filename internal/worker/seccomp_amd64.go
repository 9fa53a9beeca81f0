package worker

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archCalls are older calls that arm64 does not have, of libc; and calls that have other names there.
var archCalls = []uint32{
	unix.SYS_ACCESS, unix.SYS_ARCH_PRCTL, unix.SYS_GETRLIMIT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_READLINK,
	unix.SYS_STAT,
}
