package worker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// baseCalls are the system calls that every worker may make: what the Go runtime needs, and libc where it is linked,
// and what reads. Of what is not here, nothing gives a worker more than it has: it cannot trace, signal, execute or
// write to another process, write to a file or change its mode, or connect to anything.
var baseCalls = append([]uint32{
	unix.SYS_BRK, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLONE, unix.SYS_EPOLL_CREATE1,
	unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FUTEX,
	unix.SYS_GETPID, unix.SYS_GETRANDOM, unix.SYS_GETTID, unix.SYS_MADVISE, unix.SYS_MEMBARRIER, unix.SYS_MINCORE,
	unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MUNMAP, unix.SYS_NANOSLEEP, unix.SYS_PRCTL,
	unix.SYS_RESTART_SYSCALL, unix.SYS_RSEQ, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_YIELD, unix.SYS_SET_ROBUST_LIST, unix.SYS_SIGALTSTACK,
	unix.SYS_TGKILL, unix.SYS_WRITE,

	unix.SYS_CAPGET, unix.SYS_CLOSE, unix.SYS_FACCESSAT, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_FSTATFS,
	unix.SYS_GETDENTS64, unix.SYS_GETEGID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETGROUPS, unix.SYS_GETRUSAGE,
	unix.SYS_GETUID, unix.SYS_IOCTL, unix.SYS_LSEEK, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_PIDFD_OPEN,
	unix.SYS_PPOLL, unix.SYS_PREAD64, unix.SYS_PRLIMIT64, unix.SYS_PROCESS_VM_READV, unix.SYS_READ,
	unix.SYS_READLINKAT, unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_STATFS, unix.SYS_SYSINFO, unix.SYS_UNAME,
}, archCalls...)

// CredentialCalls are those with which a thread takes on the rights of a process.
var CredentialCalls = []uint32{unix.SYS_CAPSET, unix.SYS_SETFSGID, unix.SYS_SETFSUID, unix.SYS_SETGROUPS}

// A rule is on an argument of a system call: its lower half, masked, has one of the values; or has none of them.
type rule struct {
	argument int
	mask     uint32
	values   []uint32
	none     bool
}

// all is the mask of a whole argument.
const all = ^uint32(0)

func oneOf(argument int, values ...uint32) rule  { return rule{argument, all, values, false} }
func noneOf(argument int, values ...uint32) rule { return rule{argument, all, values, true} }
func unset(argument int, flags uint32) rule      { return rule{argument, flags, []uint32{0}, false} }
func isSet(argument int, flag uint32) rule       { return rule{argument, flag, []uint32{flag}, false} }

// procmapQuery is PROCMAP_QUERY of include/uapi/linux/fs.h: _IOWR('f', 17, struct procmap_query).
const procmapQuery = 0xc0686611

// rulesOf returns, by system call, what must hold of its arguments if it may be made: one of several lists of rules,
// wholly. wake is the descriptor that the Go runtime writes to, to wake a thread that polls.
//
// A path is opened for writing by openat2, whose flags are in memory where a filter does not see them. But nothing can
// be written then: not by write, since no descriptor gets the number of one of those that are written to, which are
// never closed; nor by a mapping, as none is both shared and writable.
func rulesOf(wake uint32) map[uint32][][]rule {
	written := []uint32{0, 1, 2, wake}
	const mapWrite = unix.PROT_WRITE | unix.PROT_EXEC
	rules := map[uint32][][]rule{
		unix.SYS_BPF: {{oneOf(0, unix.BPF_MAP_CREATE, unix.BPF_MAP_LOOKUP_ELEM, unix.BPF_MAP_UPDATE_ELEM,
			unix.BPF_MAP_DELETE_ELEM, unix.BPF_MAP_GET_NEXT_KEY, unix.BPF_OBJ_GET_INFO_BY_FD,
			unix.BPF_MAP_LOOKUP_AND_DELETE_ELEM, unix.BPF_MAP_FREEZE, unix.BPF_MAP_LOOKUP_BATCH,
			unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH, unix.BPF_MAP_UPDATE_BATCH, unix.BPF_MAP_DELETE_BATCH)}},
		unix.SYS_CLONE: {{isSet(0, unix.CLONE_THREAD)}},
		unix.SYS_CLOSE: {{noneOf(0, append(written, channel)...)}},
		unix.SYS_FCNTL: {{oneOf(1, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_DUPFD_CLOEXEC)}},
		unix.SYS_IOCTL: {{oneOf(1, procmapQuery)}},
		unix.SYS_MMAP: {
			{unset(2, mapWrite)},
			{unset(2, unix.PROT_EXEC), rule{3, unix.MAP_TYPE, []uint32{unix.MAP_PRIVATE}, false}},
		},
		unix.SYS_MPROTECT:  {{unset(2, mapWrite)}},
		unix.SYS_OPENAT:    {{unset(2, unix.O_ACCMODE|unix.O_CREAT|unix.O_TRUNC)}},
		unix.SYS_PRCTL:     {{oneOf(0, unix.PR_SET_VMA, unix.PR_SET_NAME)}},
		unix.SYS_PRLIMIT64: {{oneOf(0, 0)}},
		unix.SYS_SENDMSG:   {{oneOf(0, channel)}},
		unix.SYS_SOCKET:    {{oneOf(0, unix.AF_UNIX)}},
		unix.SYS_TGKILL:    {{oneOf(0, uint32(os.Getpid()))}},
		unix.SYS_WRITE:     {{oneOf(0, written...)}},
	}
	if usesLibc { // it has stacks that it reserved writable; so no mapping of a file may be shared
		rules[unix.SYS_MPROTECT] = [][]rule{{unset(2, unix.PROT_EXEC)}}
		rules[unix.SYS_MMAP] = rules[unix.SYS_MMAP][1:]
	}
	return rules
}

// Offsets in struct seccomp_data of include/uapi/linux/seccomp.h.
const (
	dataNumber    = 0
	dataArch      = 4
	dataArguments = 16 // little-endian u64 each
)

var (
	allow  = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	refuse = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
)

// filterCode returns a filter of system calls. What is neither in the base nor in more fails with EPERM; but clone3,
// whose flags are in memory, with ENOSYS, as before Linux 5.3: libc makes clone instead.
func filterCode(more []uint32, rules map[uint32][][]rule) ([]bpf.RawInstruction, error) {
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
	}
	for _, number := range append(more[:len(more):len(more)], baseCalls...) {
		body := []bpf.Instruction{allow}
		if lists := rules[number]; lists != nil {
			body = nil
			for _, list := range lists {
				body = append(body, listCode(list)...)
			}
			body = append(body, refuse)
		}
		code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(body))})
		code = append(code, body...)
	}
	code = append(code, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}, refuse)
	return bpf.Assemble(code)
}

// listCode allows a call for which all of the rules hold, else it goes on behind.
func listCode(list []rule) []bpf.Instruction {
	code := []bpf.Instruction{allow}
	for _, r := range slices.Backward(list) {
		rest := uint8(len(code))
		head := []bpf.Instruction{
			bpf.LoadAbsolute{Off: dataArguments + 8*uint32(r.argument), Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: r.mask},
		}
		for i, value := range r.values {
			left := uint8(len(r.values) - 1 - i)
			switch {
			case r.none:
				head = append(head, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: left + rest})
			case left > 0:
				head = append(head, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: left})
			default:
				head = append(head, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: rest})
			}
		}
		code = append(head, code...)
	}
	return code
}

// ProbeFilters returns why workers can make every system call of the host: the kernel was built without filters of
// them (CONFIG_SECCOMP_FILTER), or a filter of ours refuses seccomp(2).
func ProbeFilters() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return fmt.Errorf("filtering system calls: %w", errno)
	}
	return nil
}

// restrictCalls restricts this process to the calls that a kind of worker makes, for good, where that is possible.
func restrictCalls(procRoot string, more []uint32) error {
	if ProbeFilters() != nil {
		return nil // as check tells
	}
	wake, err := pollerDescriptor(procRoot)
	if err != nil {
		return err
	}
	code, err := filterCode(more, rulesOf(wake))
	if err != nil {
		return fmt.Errorf("assembling the filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, len(code))
	for i, c := range code {
		filter[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	// Of all threads. No speculation is switched off: the code that runs here is ours.
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("restricting system calls: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("restricting system calls: thread %d has another filter", thread)
	}
	return nil
}

// pollerDescriptor returns the descriptor that the Go runtime writes to, to wake the thread that polls: the eventfd
// that it makes with its first file that can be polled.
func pollerDescriptor(procRoot string) (uint32, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	read.Close()
	write.Close()
	own := path.Join(procRoot, "self/fd")
	entries, err := os.ReadDir(own)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		if link, err := os.Readlink(path.Join(own, entry.Name())); err != nil || link != "anon_inode:[eventfd]" {
			continue
		}
		number, err := strconv.ParseUint(entry.Name(), 10, 32)
		return uint32(number), err
	}
	return 0, errors.New("no descriptor wakes the thread that polls")
}
