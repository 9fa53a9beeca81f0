package procscan

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
)

// The initial namespaces of a kernel, as links in /proc/PID/ns show them: the numbers of
// include/linux/proc_ns.h (uapi/linux/nsfs.h since 6.18), which are the same on every machine.
const (
	InitialPIDNamespace    = "pid:[4026531836]"    // PROC_PID_INIT_INO
	InitialUserNamespace   = "user:[4026531837]"   // PROC_USER_INIT_INO
	InitialCgroupNamespace = "cgroup:[4026531835]" // PROC_CGROUP_INIT_INO
)

// ProbeHostView returns why this process, with its rights, sees less than all processes of the host
// in the procfs at procRoot, which must be of its own pid namespace, and what to do about it. It is
// nil when it sees all.
func ProbeHostView(procRoot string) error {
	pid, err := os.Readlink(path.Join(procRoot, "self/ns/pid"))
	if err != nil {
		return fmt.Errorf("reading our own pid namespace: %w", err)
	}
	user, err := os.Readlink(path.Join(procRoot, "self/ns/user"))
	if err != nil {
		return fmt.Errorf("reading our own user namespace: %w", err)
	}
	// Not every kernel has Yama, and not every procfs its settings.
	scope, err := os.ReadFile(path.Join(procRoot, "sys/kernel/yama/ptrace_scope"))
	noAttach := err == nil && strings.TrimSpace(string(scope)) == yamaNoAttach
	own, _ := self.Effective() // what cannot be told does not count
	return hostView(pid, user, own.Has(unix.CAP_SYS_PTRACE), noAttach)
}

// yamaNoAttach is YAMA_SCOPE_NO_ATTACH of security/yama/yama_lsm.c, the value of
// kernel.yama.ptrace_scope with which nobody may read the memory of another process.
const yamaNoAttach = "3"

// hostView is ProbeHostView for a process in these namespaces, with CAP_SYS_PTRACE or without, and
// with Yama's strictest mode or without.
func hostView(pid, user string, mayTrace, noAttach bool) error {
	var missing []string
	if pid != InitialPIDNamespace {
		missing = append(missing, "processes outside of our pid namespace, which is not the host's, are not seen: "+
			"run in the host's (hostPID: true of the pod, --pid=host of the container)")
	}
	switch {
	case user != InitialUserNamespace:
		missing = append(missing, "processes outside of our user namespace, which is not the host's, cannot be read: "+
			"run outside of user namespaces (rootless containers, user-namespaced pods)")
	case !mayTrace:
		missing = append(missing, "processes of other users cannot be read, nor seen where /proc is mounted with "+
			"hidepid: grant the process CAP_SYS_PTRACE")
	}
	if noAttach {
		missing = append(missing, "memory of processes cannot be read where kernel.yama.ptrace_scope is 3: "+
			"boot with 2 or less, it cannot be lowered from 3")
	}
	if missing == nil {
		return nil
	}
	return errors.New(strings.Join(missing, "; "))
}
