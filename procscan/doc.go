// Package procscan finds the processes that map the APM agent's native library, holds on to
// them, and tells when they end.
//
//	Scanner      one sweep of a proc root, or a look at one process         Found
//	Handle       one process, held by a pidfd: its mappings, files, ids, cgroup
//	ExitWatcher  the exits of any number of processes, on one goroutine
//	EventWatcher live: who maps executable files, who runs another program   Event
//
// There is one file per source of data: query.go is the ioctl PROCMAP_QUERY on /proc/PID/maps,
// maps.go the text of that file where the kernel does not answer it, status.go that of
// /proc/PID/status, cgroup.go that of /proc/PID/cgroup, pidfd.go what identifies a process;
// perfring.go and perfrecord.go are the kernel's records of what happens. An event says which
// process to look at, and leads to Scanner.Process.
//
// Every pid is what our own pid namespace calls the process, and the proc root must be a procfs
// of that namespace: pidfd_open knows no other numbers. It may be mounted anywhere.
//
// Processes are hostile. One can make the kernel wait on its behalf: for its memory map's lock
// when maps is read or asked, for a file system of its own (FUSE) when a file is opened or read. No
// file of a process is opened by a sweep; what Handle opens, it opens on the caller's goroutine,
// which should be one that serves this process alone.
package procscan

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotFound: the process lives and maps no library of the agent.
	ErrNotFound = errors.New("no agent library mapped")
	// ErrGone: the process ended, perhaps into a zombie, or was never there.
	ErrGone = errors.New("process is gone")
	// ErrDenied: the kernel does not let us see this of the process (capabilities, hidepid).
	ErrDenied = errors.New("not permitted")
	// ErrStuck: the process makes whoever looks at it hang.
	ErrStuck = errors.New("looking at the process hangs")
	// ErrTooMany: the process maps more than is looked at. What was found before is returned too.
	ErrTooMany = errors.New("too many mappings")
	// ErrReplaced: the file is not, or no longer, the one that the mapping describes.
	ErrReplaced = errors.New("not the file that was mapped")
	// ErrNotRegular: the path leads to something else than a regular file, and was not opened.
	ErrNotRegular = errors.New("not a regular file")
)

// ProcessID names one process for ever: its number is used again, but not in the same clock tick.
type ProcessID struct {
	PID       int
	StartTime uint64 // clock ticks (1/100 s) since boot: field 22 of /proc/PID/stat
}

// Mapping is one line of /proc/PID/maps. It is comparable: two looks at an unchanged mapping give
// equal values.
type Mapping struct {
	Start, End uint64 // addresses in the process; End is the first one behind the mapping
	Offset     uint64 // of Start in the file, in bytes
	// Dev and Ino are those of the inode in its superblock, Dev encoded as unix.Mkdev does. On
	// file systems of many devices (btrfs, overlayfs) stat answers others.
	Dev, Ino uint64
	// Path is the file's path below the root of the mount namespace it was opened in, as maps
	// shows it but without " (deleted)": bytes of any kind, a newline as the four characters \012.
	// (It is below our own root instead for files that this root can reach.) Of memory without a
	// file it is empty or a name that begins with a bracket, "[vdso]"; Dev and Ino are 0, but for
	// shared memory that its process has named, "[anon_shmem:name]".
	Path    string
	Deleted bool // the path was unlinked
}

// classify adds to an error of a file below /proc/PID what it says of the process. Nil stays nil.
func classify(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return classifyDenied(err)
}

// classifyDenied does so where a missing file says nothing of the process.
func classifyDenied(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}

// maxInterruptions bounds how often in a row a call is repeated that a signal interrupted: the Go
// runtime sends itself some, a hundred a second at most. A file system that a process serves
// itself can make any call look interrupted, as often as it likes.
const maxInterruptions = 100

// ignoringEINTR repeats a call that a signal interrupted.
func ignoringEINTR[T any](call func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := call()
		if err != unix.EINTR || try == maxInterruptions {
			return v, err
		}
	}
}

func openFD(path string, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
}
