package procscan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Handle holds one process: whatever is asked through it is answered of that process or with
// ErrGone, never of a later one with the same number. It holds one descriptor, the pidfd. Its
// methods may be called by several goroutines, and any of them may block for as long as the
// process makes the kernel wait (see the package); Alive does not.
type Handle struct {
	id       ProcessID
	procRoot string
	source   Source // the zero value, SourceQuery: not probed, but asked of every descriptor
	pidfd    *os.File
}

// OpenProcess opens the process that id names, ErrGone when it has ended. procRoot must be one
// that NewScanner accepts.
func OpenProcess(procRoot string, id ProcessID) (*Handle, error) {
	fd, err := openPidfd(id.PID)
	if err != nil {
		return nil, err
	}
	// No poller of the Go runtime: os.File is here for its count of users, which keeps Close
	// from taking the number away from a call under way.
	h := &Handle{id: id, procRoot: procRoot, pidfd: os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(id.PID))}
	if err := h.verify(); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// verify is the last two steps of pidfd.go.
func (h *Handle) verify() error {
	if _, err := procfs.NewFS(h.procRoot); err != nil { // is it there at all?
		return err
	}
	started, err := startTime(h.procRoot, h.id.PID)
	if !h.Alive() {
		return ErrGone
	}
	if err != nil {
		return err
	}
	if started != h.id.StartTime {
		return fmt.Errorf("%w: its number is that of a process with start time %d", ErrGone, started)
	}
	return nil
}

// Identity is what the handle was opened with.
func (h *Handle) Identity() ProcessID { return h.id }

// Close releases the pidfd. It may be called more than once.
func (h *Handle) Close() error { return h.pidfd.Close() }

// Alive reports whether the process has not ended yet. It never blocks. It is false after Close.
func (h *Handle) Alive() bool {
	ended := true
	h.Control(func(fd int) { ended = exited(fd) })
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
		return fmt.Errorf("process handle: %w", os.ErrClosed) // there is no other reason
	}
	return nil
}

// open opens a file of the process's directory in procfs. When the process lives afterwards, the
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

func (h *Handle) path(name string) string {
	return filepath.Join(h.procRoot, strconv.Itoa(h.id.PID), name)
}

// OpenRoot opens the process's root directory with O_PATH: the place to resolve its paths from.
// The file refers to that directory also after the process.
func (h *Handle) OpenRoot() (*os.File, error) {
	fd, err := h.open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), h.path("root")), nil
}

// Place is where the paths of a process lead: the same for two only if they have the same root
// directory in the same mount namespace.
type Place struct {
	MountNamespace   string // as the kernel calls it: "mnt:[4026531841]"
	RootDev, RootIno uint64
}

// Place looks where the process is.
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
		return Place{}, fmt.Errorf("looking for the process's root: %w", classify(err))
	}
	return Place{MountNamespace: namespace, RootDev: root.Dev, RootIno: root.Ino}, nil
}

// ExecutableMappings returns the executable mappings of files, by address. There may be none: a
// process at the end of its life has lost its memory already. With ErrTooMany come the first ones
// of a process with more than 4096, which no honest one has.
func (h *Handle) ExecutableMappings() ([]Mapping, error) {
	return h.mappings(executableFiles)
}

// ExecutableMemory returns all executable mappings, by address: those of files, and the memory
// without one that compilers write code to, the vDSO and whatever else the kernel names in
// brackets, without the vsyscall page, which is the kernel's. With ErrTooMany come the first ones
// of a process with more than 32768.
func (h *Handle) ExecutableMemory() ([]Mapping, error) {
	return h.mappings(executableMemory)
}

// Libraries reads again which mappings of the agent's library the process has, as a sweep would:
// ErrNotFound when there are none, and no more than a sweep returns.
func (h *Handle) Libraries() ([]Mapping, error) {
	found, err := h.mappings(agentLibrary)
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

// Maps reports whether the process still has a mapping: the same addresses, and the file of the
// same path. It costs a fraction of reading maps. Of another user's process it takes
// CAP_DAC_READ_SEARCH.
func (h *Handle) Maps(m Mapping) (bool, error) {
	path, err := os.Readlink(h.path(filepath.Join("map_files", mapBounds(m))))
	if !h.Alive() {
		return false, ErrGone
	}
	if errors.Is(err, unix.ENOENT) { // of a process that lives
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading map_files: %w", classify(err))
	}
	path, _ = cutDeleted(strings.ReplaceAll(path, "\n", `\012`))
	return path == m.Path, nil
}

// mapBounds is the name of a mapping in map_files.
func mapBounds(m Mapping) string {
	return strconv.FormatUint(m.Start, 16) + "-" + strconv.FormatUint(m.End, 16)
}
