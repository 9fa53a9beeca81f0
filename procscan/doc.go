// Package procscan finds the processes that map the APM agent's native library, or memory with an
// OpenTelemetry process context, and holds on to them. Package watch reports live what they map and
// execute, and when they end.
//
//	Scanner      sweeps a proc root, or probes one process   Found
//	Handle       one process, held by a pidfd: its mappings, files, credentials, cgroup
//
// There is one file per source of data: query.go is the ioctl PROCMAP_QUERY on /proc/PID/maps,
// maps.go the text of that file where the kernel lacks the ioctl, status.go that of
// /proc/PID/status, cgroup.go that of /proc/PID/cgroup, pidfd.go what identifies a process, peer.go which one is at the
// other end of a socket.
//
// Every pid is one of our own pid namespace, and the proc root must be a procfs of that namespace:
// pidfd_open takes no other numbers. It may be mounted anywhere.
//
// Processes are hostile. One can make the kernel wait: for the lock of its memory map when maps is
// read or queried, for a file system that it serves itself (FUSE) when a file is opened or read. A
// sweep opens no file of a process; Handle opens files on the caller's goroutine, which should
// serve this process alone.
package procscan

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotFound: the process is alive and maps neither the agent's library nor a process context.
	ErrNotFound = errors.New("no agent library and no process context mapped")
	// ErrGone: the process has exited, is a zombie, or never existed.
	ErrGone = errors.New("process is gone")
	// ErrDenied: the kernel refuses access to this file of the process (capabilities, hidepid).
	ErrDenied = errors.New("not permitted")
	// ErrStuck: probing the process hangs.
	ErrStuck = errors.New("probing the process hangs")
	// ErrTooMany: the process has more mappings than are read. Those read so far are returned too.
	ErrTooMany = errors.New("too many mappings")
	// ErrLong: arguments, open files or a variable of the process are more than is read. What was
	// read is returned, too.
	ErrLong = errors.New("more than is read")
	// errReplaced: the file is not, or is no longer, the one that is mapped.
	errReplaced = errors.New("not the file that was mapped")
	// ErrNotRegular: the path is not that of a regular file, and was not opened.
	ErrNotRegular = errors.New("not a regular file")
)

// ProcessID identifies one process for good: a pid is reused, but not within one clock tick.
type ProcessID struct {
	PID       int
	StartTime uint64 // clock ticks (1/100 s) since boot: field 22 of /proc/PID/stat
}

// Mapping is one line of /proc/PID/maps. It is comparable: an unchanged mapping has the same value
// each time it is read.
type Mapping struct {
	Start, End uint64 // addresses in the process; End is the first one after the mapping
	Offset     uint64 // of Start in the file, in bytes
	// Dev and Ino are those of the inode in its superblock, Dev encoded as unix.Mkdev does. On file
	// systems of many devices (btrfs, overlayfs) stat returns others.
	Dev, Ino uint64
	// Path is the file's path below the root of the mount namespace it was opened in, as maps shows
	// it but without " (deleted)": bytes of any kind, a newline as the four characters \012. (It is
	// below our own root instead for files that this root can reach.) Of memory without a file it
	// is empty or a name that begins with a bracket, "[vdso]"; Dev and Ino are 0, but for shared
	// memory that its process has named, "[anon_shmem:name]".
	Path    string
	Deleted bool // the path was unlinked
}

// classify wraps an error from a file below /proc/PID with what it means for the process. Nil stays
// nil.
func classify(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return classifyDenied(err)
}

// classifyDenied does so where a missing file does not mean that the process is gone.
func classifyDenied(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}

// maxInterruptions bounds how often in a row a call is repeated after EINTR: the Go runtime sends
// itself a hundred signals a second at most. A file system that a process serves itself can return
// EINTR from any call, as often as it likes.
const maxInterruptions = 100

// ignoringEINTR repeats a call while it returns EINTR.
func ignoringEINTR[T any](call func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := call()
		if !errors.Is(err, unix.EINTR) || try == maxInterruptions {
			return v, err
		}
	}
}

func openFD(path string, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
}
