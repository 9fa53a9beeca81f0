package procscan

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
)

// Handle holds one process: its methods return facts about that process or ErrGone, never about a
// later one with the same pid. It holds one descriptor, the pidfd. Its methods are safe for
// concurrent use, and may block as long as the process makes the kernel wait (see the package);
// Alive does not.
type Handle struct {
	id       ProcessID
	procRoot string
	source   Source // the zero value, SourceQuery: not probed, but tried on every descriptor
	pidfd    *os.File
}

// OpenProcess opens the process that id names; the error is ErrGone when it has exited. procRoot
// must be one that NewScanner accepts. The caller must Close the handle.
func OpenProcess(procRoot string, id ProcessID) (*Handle, error) {
	h, err := OpenPID(procRoot, id.PID)
	if err == nil && h.id != id {
		h.Close()
		err = fmt.Errorf("%w: its pid is that of a process with start time %d", ErrGone, h.id.StartTime)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// OpenPID is OpenProcess of the process that has a pid now.
func OpenPID(procRoot string, pid int) (*Handle, error) {
	fd, err := openPidfd(pid)
	if err != nil {
		return nil, err
	}
	// The Go runtime does not poll it: os.File is used for its reference count, which keeps Close
	// from closing the descriptor during a call.
	h := &Handle{procRoot: procRoot, pidfd: os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(pid))}
	if h.id, err = h.readID(pid); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// readID takes the last two steps of pidfd.go.
func (h *Handle) readID(pid int) (ProcessID, error) {
	if err := procdir.Check(h.procRoot); err != nil { // is there a proc root at all?
		return ProcessID{}, err
	}
	started, err := startTime(h.procRoot, pid)
	if !h.Alive() {
		err = ErrGone
	}
	return ProcessID{PID: pid, StartTime: started}, err
}

// Identity returns the id that the handle was opened with.
func (h *Handle) Identity() ProcessID { return h.id }

// Close releases the pidfd. It may be called more than once.
func (h *Handle) Close() error { return h.pidfd.Close() }

// Alive reports whether the process has not exited. It never blocks. It returns false after Close.
func (h *Handle) Alive() bool {
	ended := true
	_ = h.Control(func(fd int) { ended = exited(fd) }) // fails after Close
	return !ended
}

// Control calls use with the pidfd, which Close leaves open until use returns. After Close it
// returns os.ErrClosed.
func (h *Handle) Control(use func(fd int)) error {
	conn, err := h.pidfd.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { use(int(fd)) })
	}
	if err != nil {
		return fmt.Errorf("process handle: %w", os.ErrClosed) // Control fails for no other reason
	}
	return nil
}

// open opens a file of the process's directory in procfs. If the process is alive afterwards, the
// file is its own (pidfd.go).
func (h *Handle) open(name string, flags int) (int, error) {
	fd, err := openFD(h.path(name), flags)
	if !h.Alive() {
		if err == nil {
			unix.Close(fd)
		}
		return -1, ErrGone
	}
	return fd, classify(err)
}

// read returns what a file of the process's directory in procfs has, of so many bytes at most.
func (h *Handle) read(name string, most int64) ([]byte, error) {
	fd, err := h.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	defer unix.Close(fd)
	text, err := io.ReadAll(io.LimitReader(fdReader(fd), most))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, classify(err))
	}
	return text, nil
}

// path returns the path of a file of the process's directory in procfs. What threads share is found
// by one that lives: the first one may have ended.
func (h *Handle) path(name string) string {
	if name == "status" || strings.HasPrefix(name, "task/") { // of the first one, and of any
		return path.Join(h.procRoot, strconv.Itoa(h.id.PID), name)
	}
	return path.Join(procdir.Dir(h.procRoot, h.id.PID), name)
}

// withMapFile calls use with the path in map_files of a mapping, which only directories of processes
// and those of the ids of threads have. If that thread has ended meanwhile, the error is errReplaced.
func (h *Handle) withMapFile(m Mapping, use func(path string) error) error {
	tid := procdir.LivingThread(h.procRoot, h.id.PID)
	err := use(path.Join(h.procRoot, strconv.Itoa(tid), "map_files", mapBounds(m)))
	if tid != h.id.PID && !procdir.HasThread(h.procRoot, h.id.PID, tid) {
		return errReplaced
	}
	return err
}

// OpenRoot opens the process's root directory with O_PATH, from which its paths can be resolved.
// The file refers to that directory even after the process has exited, and leads to all that is on
// the same mount. Other mounts below it are unmounted with the last process of the mount namespace
// (put_mnt_ns and umount_tree in fs/namespace.c): whoever needs one later must hold a file on it.
func (h *Handle) OpenRoot() (*os.File, error) {
	fd, err := h.open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), h.path("root")), nil
}

// Place is what the paths of a process are relative to: equal for two processes that have the same
// root directory in the same mount namespace.
type Place struct {
	MountNamespace   string // as the kernel names it: "mnt:[4026531841]"
	RootDev, RootIno uint64
}

// Place reads the process's mount namespace and root directory.
func (h *Handle) Place() (Place, error) {
	namespace, err := os.Readlink(h.path("ns/mnt"))
	var root unix.Stat_t
	if err == nil {
		err = unix.Stat(h.path("root"), &root)
	}
	if !h.Alive() {
		return Place{}, ErrGone
	}
	if err != nil {
		return Place{}, fmt.Errorf("reading the process's root: %w", classify(err))
	}
	return Place{MountNamespace: namespace, RootDev: root.Dev, RootIno: root.Ino}, nil
}

// ExecutableMappings returns the executable mappings of files, by address. There may be none: an
// exiting process has released its memory already. Of a process with more than 40960, which no
// honest one has, or more than 32768 of files that were deleted, it returns the first ones and ErrTooMany.
func (h *Handle) ExecutableMappings() ([]Mapping, error) {
	return h.mappings(executableFiles)
}

// ExecutableMemory returns all executable mappings, by address: those of files, anonymous memory to
// which compilers write code, the vDSO and others that the kernel names in brackets, without the
// vsyscall page, which is the kernel's. Of a process with more than 40960, or more than 32768 of memory and
// files that were deleted, it returns the first ones and ErrTooMany.
func (h *Handle) ExecutableMemory() ([]Mapping, error) {
	return h.mappings(executableMemory)
}

// FileMemory returns all mappings of files, executable or not, by address. Of a process with more than
// 40960 it returns the first ones and ErrTooMany.
func (h *Handle) FileMemory() ([]Mapping, error) { return h.mappings(fileMemory) }

// Libraries reads the process's mappings of the agent's library, as a sweep does: ErrNotFound when
// there are none, and no more than a sweep returns.
func (h *Handle) Libraries() ([]Mapping, error) { return h.find(agentLibrary) }

// ProcessContexts reads the process's mappings of a process context (OTEL_CTX), by address, the first
// four: ErrNotFound when there are none. Their names are all that is known of them; what they hold is
// to be read from the memory of the process, since that of a file holds nothing.
func (h *Handle) ProcessContexts() ([]Mapping, error) { return h.find(processContexts) }

// find returns the first mappings that are selected.
func (h *Handle) find(what selection) ([]Mapping, error) {
	found, err := h.mappings(what)
	if err != nil && !errors.Is(err, ErrTooMany) {
		return nil, err
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	return found, nil
}

func (h *Handle) mappings(what selection) ([]Mapping, error) {
	fd, err := h.open("maps", unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening maps: %w", err)
	}
	defer unix.Close(fd)
	found, err := new(mappingReader).read(fd, h.source, what, what.limit())
	if err != nil {
		return found, fmt.Errorf("reading maps: %w", err)
	}
	return found, nil
}

// Maps reports whether the process still has a mapping with the same addresses and a file of the
// same path. It costs a fraction of reading maps. For another user's process it needs
// CAP_DAC_READ_SEARCH.
func (h *Handle) Maps(m Mapping) (bool, error) {
	var path string
	err := h.withMapFile(m, func(link string) (err error) {
		path, err = os.Readlink(link)
		return err
	})
	if !h.Alive() {
		return false, ErrGone
	}
	if errors.Is(err, unix.ENOENT) { // the process is alive
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading map_files: %w", classify(err))
	}
	path, _ = cutDeleted(strings.ReplaceAll(path, "\n", `\012`))
	return path == m.Path, nil
}

// mapBounds returns the name of a mapping in map_files.
func mapBounds(m Mapping) string {
	return strconv.FormatUint(m.Start, 16) + "-" + strconv.FormatUint(m.End, 16)
}
