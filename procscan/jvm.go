package procscan

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
	"correlator/internal/host/sorting"
)

const (
	// jvmTurns is in how many calls of JVMs each process is looked at whose executable is not named
	// java: a program may have loaded libjvm.so into itself (jsvc, Tanuki's wrapper).
	jvmTurns = 16

	// maxArgumentBytes is how much of a command line is looked at, twice MAX_ARG_STRLEN: class paths of
	// hundreds of files have tens of kilobytes.
	maxArgumentBytes = 256 << 10

	// maxOpenFiles is how many open files are looked at. A JVM opens the files of its agents first, and
	// procfs lists descriptors in order.
	maxOpenFiles = 16 << 10

	// stNoExec is ST_NOEXEC of include/linux/statfs.h.
	stNoExec = 0x8
)

// JVMs returns the processes that run a Java virtual machine and map neither the agent's library nor
// a process context, by pid. Those whose executable is named java are found by each call, which costs
// all others a readlink; of the others, a sixteenth is searched for libjvm.so, another one with each
// turn, and every one with turn -1. Those that the caller knows, by an earlier call, are always looked
// at. unseen are those of them that still run and could not be looked at, in their order.
//
// A process delays the others by a tenth of a second at most, see Sweep. What cannot be read is left
// out: sweeps report it. An error means that it ended early, as that of Sweep. It may be called at any
// time, by any goroutine.
func (s *Scanner) JVMs(turn int, known []ProcessID) (jvms, unseen []ProcessID, err error) {
	all, err := procdir.IDs(s.procRoot)
	if err != nil {
		return nil, slices.Clone(known), fmt.Errorf("listing processes: %w", err)
	}
	knownPIDs := make(map[int]bool, len(known))
	for _, id := range known {
		knownPIDs[id.PID] = true
	}
	pids := make([]int, 0, len(all))
	for _, pid := range all {
		if turn < 0 || pid%jvmTurns == turn%jvmTurns || knownPIDs[pid] || s.isJava(pid) {
			pids = append(pids, pid)
		}
	}
	var mu sync.Mutex // a look that hangs may end at any time
	var found []ProcessID
	seen := make(map[int]bool, len(known)) // of knownPIDs
	look := func(pid int) (Found, error) {
		id, err := s.silentJVM(pid)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			found = append(found, id)
			err = ErrNotFound // the watchdog goes on
		}
		if knownPIDs[pid] && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrGone)) {
			seen[pid] = true
		}
		return Found{ProcessID: id}, err
	}
	err = s.hurry(pids, look)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range known {
		if started, err := startTime(s.procRoot, id.PID); !seen[id.PID] && err == nil && started == id.StartTime {
			unseen = append(unseen, id)
		}
	}
	sorting.Sort(found, func(a, b ProcessID) int { return cmp.Compare(a.PID, b.PID) })
	return slices.Clone(found), unseen, err
}

// JVM is JVMs for one process: it returns its id, or an error as Process does.
func (s *Scanner) JVM(pid int) (ProcessID, error) {
	r := s.watchdog.run([]int{pid}, func(pid int) (Found, error) {
		id, err := s.silentJVM(pid)
		return Found{ProcessID: id}, err
	})
	if r.err != nil {
		return ProcessID{}, fmt.Errorf("probing process %d: %w", pid, r.err)
	}
	return r.found.ProcessID, nil
}

// isJava reports whether the executable of a process is named java. It does not wait for the process.
func (s *Scanner) isJava(pid int) bool {
	executable, err := os.Readlink(s.procRoot + "/" + strconv.Itoa(pid) + "/exe")
	if err != nil { // a kernel thread, or it is gone or hidden
		return false
	}
	executable, _ = cutDeleted(executable)
	return path.Base(executable) == "java"
}

// silentJVM returns the id of a process that is one of JVMs, or ErrNotFound.
func (s *Scanner) silentJVM(pid int) (ProcessID, error) {
	id := ProcessID{PID: pid}
	jvm, err := s.any(pid, javaMachine)
	if err != nil {
		return id, err
	}
	served := false
	if jvm {
		served, err = s.any(pid, agentLibrary, processContexts)
	}
	switch {
	case err != nil:
		return id, err
	case !jvm || served:
		return id, ErrNotFound
	}
	id.StartTime, err = startTime(s.procRoot, pid)
	return id, err
}

// CommandLine returns the arguments of the process, those in the first 256 KiB; with ErrLong if there are more. The
// process can write there: they may be any bytes but zeros.
func (h *Handle) CommandLine() ([]string, error) {
	text, err := h.read("cmdline", maxArgumentBytes+1)
	if err != nil {
		return nil, err
	}
	if len(text) > maxArgumentBytes {
		text, err = text[:bytes.LastIndexByte(text[:maxArgumentBytes], 0)+1], ErrLong
	}
	var arguments []string
	for argument := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		arguments = append(arguments, string(argument))
	}
	return arguments, err
}

// OpenFiles calls yield with the paths of what the process has open, by descriptor, until it
// returns false; of the first 16384, then with ErrLong if there are more. A path is as /proc/PID/fd
// shows it: also "socket:[1]", "/x (deleted)".
func (h *Handle) OpenFiles(yield func(path string) bool) error {
	return h.openFiles(maxOpenFiles, yield)
}

func (h *Handle) openFiles(most int, yield func(path string) bool) error {
	fd, err := h.open("fd", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("opening fd: %w", err)
	}
	dir := os.NewFile(uintptr(fd), h.path("fd"))
	defer dir.Close()
	names, err := dir.Readdirnames(most + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading fd: %w", classify(err))
	}
	buffer := make([]byte, unix.PathMax)
	for i, name := range names {
		if i == most {
			return ErrLong
		}
		n, err := ignoringEINTR(func() (int, error) { return unix.Readlinkat(fd, name, buffer) })
		if errors.Is(err, unix.ENOENT) { // closed meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("reading fd/%s: %w", name, classifyDenied(err))
		}
		if !yield(string(buffer[:n])) {
			break
		}
	}
	return nil
}

// maxOptionFile is how much a file of options may have: as many bytes as arguments are read.
const maxOptionFile = maxArgumentBytes

// OptionFile returns the contents of a file that the process was given by its path, from its working
// directory if that is relative. The file system of the file is checked as by OpenBelow.
func (h *Handle) OptionFile(name string) (string, error) {
	if !path.IsAbs(name) {
		directory, err := os.Readlink(h.path("cwd"))
		if err != nil {
			return "", fmt.Errorf("reading cwd: %w", classifyDenied(err))
		}
		if directory, err = h.belowRoot(directory); err != nil {
			return "", err
		}
		name = path.Join(directory, name)
	}
	root, err := h.OpenRoot()
	if err != nil {
		return "", fmt.Errorf("opening root: %w", err)
	}
	defer root.Close()
	creds, err := h.Credentials()
	if err != nil {
		return "", err
	}
	file, stat, err := OpenBelow(h.procRoot, root, name, 0)
	if err != nil {
		return "", fmt.Errorf("opening %q below the process's root: %w", name, classifyDenied(err))
	}
	defer file.Close()
	if !creds.mayRead(&stat) { // we could, but it is not for those who chose the path
		return "", fmt.Errorf("opening %q below the process's root: %w", name, ErrDenied)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxOptionFile+1))
	if err == nil && len(text) > maxOptionFile {
		err = fmt.Errorf("more than %d bytes", maxOptionFile)
	}
	return string(text), err
}

// NoExec reports whether the file system at a path of the process, whose symbolic links are confined
// to its root, is mounted so that no library can be mapped from it. It may block as that file system
// likes.
func (h *Handle) NoExec(path string) (bool, error) {
	root, err := h.OpenRoot()
	if err != nil {
		return false, fmt.Errorf("opening root: %w", err)
	}
	defer root.Close()
	fd, err := LookupBelow(root, path, 0)
	if err != nil {
		return false, fmt.Errorf("opening %q below the process's root: %w", path, classifyDenied(err))
	}
	defer unix.Close(fd)
	var statfs unix.Statfs_t
	if err := unix.Fstatfs(fd, &statfs); err != nil {
		return false, fmt.Errorf("reading the file system of %q: %w", path, err)
	}
	return statfs.Flags&stNoExec != 0, nil
}
