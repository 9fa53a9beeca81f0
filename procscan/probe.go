package procscan

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
)

// The probes of this file are what NewScanner requires, one by one. They leave nothing open.

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
	if err := ownNamespace(procRoot); err != nil {
		return fmt.Errorf("opening proc root %s: %w", procRoot, err)
	}
	return nil
}

// ownNamespace checks that a procfs is one of our own pid namespace. In that of a parent namespace,
// we have a pid there and one in each namespace down to our own; in any other we have none.
func ownNamespace(procRoot string) error {
	pids, err := procdir.Status(path.Join(procRoot, "self"), "NSpid")
	if err != nil {
		return fmt.Errorf("looking for ourselves (is it of another pid namespace?): %w", err)
	}
	if len(pids) > 1 {
		return errors.New("it shows another pid namespace than ours (a container needs the host's: hostPID)")
	}
	return nil
}

// ProbePidfd checks that the kernel has pidfds.
func ProbePidfd() error {
	pidfd, err := openPidfd(os.Getpid())
	if err != nil {
		return fmt.Errorf("calling pidfd_open (needs Linux 5.3, and seccomp that allows it): %w", err)
	}
	return unix.Close(pidfd)
}

// ProbeSource returns how the mappings of processes are read, by querying one of our own.
func ProbeSource(procRoot string) (Source, error) {
	fd, err := openFD(path.Join(procRoot, "self", "maps"), unix.O_RDONLY)
	if err != nil {
		return SourceText, fmt.Errorf("opening proc root %s: opening our own maps: %w", procRoot, err)
	}
	defer unix.Close(fd)
	if _, _, err := new(mapsQuery).next(fd, queryCoveringOrNext|queryExecutable, 0); err != nil {
		return SourceText, nil
	}
	return SourceQuery, nil
}
