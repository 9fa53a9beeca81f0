package procscan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// The probes of this file are what NewScanner asks for, one by one. They leave nothing behind.

// ProbeProcRoot checks that a procfs is mounted at procRoot.
func ProbeProcRoot(procRoot string) error {
	var statfs unix.Statfs_t
	if err := unix.Statfs(procRoot, &statfs); err != nil {
		return fmt.Errorf("opening proc root %s: %w", procRoot, err)
	}
	if statfs.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("opening proc root %s: no procfs is mounted there", procRoot)
	}
	return nil
}

// ProbeNamespace checks that the procfs at procRoot is one of our own pid namespace.
func ProbeNamespace(procRoot string) error {
	fs, err := procfs.NewFS(procRoot)
	if err == nil {
		err = ownNamespace(fs)
	}
	if err != nil {
		return fmt.Errorf("opening proc root %s: %w", procRoot, err)
	}
	return nil
}

// ownNamespace checks that a procfs is one of our own pid namespace. In one of a namespace above,
// we have a number there and one in each namespace down to our own; elsewhere we have none.
func ownNamespace(fs procfs.FS) error {
	self, err := fs.Self()
	if err != nil {
		return fmt.Errorf("looking for ourselves (is it of another pid namespace?): %w", err)
	}
	status, err := self.NewStatus()
	if err != nil {
		return fmt.Errorf("looking for ourselves: %w", err)
	}
	if len(status.NSpids) > 1 {
		return errors.New("it shows another pid namespace than ours (a container needs the host's: hostPID)")
	}
	return nil
}

// ProbePidfd checks that the kernel has pidfds.
func ProbePidfd() error {
	pidfd, err := openPidfd(os.Getpid())
	if err != nil {
		return fmt.Errorf("looking for pidfd_open (Linux 5.3, not forbidden by seccomp): %w", err)
	}
	return unix.Close(pidfd)
}

// ProbeSource says where the mappings of processes are read from, by asking for one of our own.
func ProbeSource(procRoot string) (Source, error) {
	fd, err := openFD(filepath.Join(procRoot, "self", "maps"), unix.O_RDONLY)
	if err != nil {
		return SourceText, fmt.Errorf("opening proc root %s: opening our own maps: %w", procRoot, err)
	}
	defer unix.Close(fd)
	if _, _, err := new(mapsQuery).next(fd, queryCoveringOrNext|queryExecutable, 0); err != nil {
		return SourceText, nil
	}
	return SourceQuery, nil
}

// EventMemoryBytes is the memory that an EventWatcher locks for each CPU.
func EventMemoryBytes() int {
	page := os.Getpagesize()
	return page + max(page, ringBytes) + 2*page // the ring's, the alarm's
}

// probeTimeout is far more than the record of a mapping takes to get here: some 2 ms.
const probeTimeout = 2 * time.Second

// ProbeEvents opens an EventWatcher for a moment, and maps a page of our own program, to see whether the
// kernel tells of it. The errors are those of OpenEventWatcher.
func ProbeEvents(procRoot string) error {
	w, err := OpenEventWatcher()
	if err != nil {
		return err
	}
	told, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- w.Run(func(e Event) {
			if e.Kind != EventMapping && e.Kind != EventLibrary || e.PID != os.Getpid() {
				return
			}
			select {
			case told <- struct{}{}:
			default:
			}
		})
	}()
	if err = mapOwnProgram(procRoot); err == nil {
		select {
		case <-told:
		case <-time.After(probeTimeout):
			err = fmt.Errorf("no record of a mapping in %v", probeTimeout)
		}
	}
	return errors.Join(err, w.Close(), <-ended)
}

// mapOwnProgram maps a page of our program as code, and unmaps it.
func mapOwnProgram(procRoot string) error {
	program, err := os.Open(filepath.Join(procRoot, "self", "exe"))
	if err != nil {
		return fmt.Errorf("opening our own program: %w", err)
	}
	defer program.Close()
	page, err := unix.Mmap(int(program.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mapping our own program: %w", err)
	}
	return unix.Munmap(page)
}
