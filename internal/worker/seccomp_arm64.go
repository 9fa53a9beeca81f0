package worker

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archCalls are calls that have other names on x86-64.
var archCalls = []uint32{unix.SYS_FSTATAT}
