package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// How a pid is tied to a process, here and in Handle:
//
//  1. A pidfd is opened for the pid. It refers for good to the process P that has the pid
//     at this moment.
//  2. Files below /proc/PID are opened and read: start time, maps and others.
//  3. The pidfd is polled, to see whether P has exited.
//
// A pid becomes free only after its process has exited and was reaped. So when P has not exited at
// 3, the pid was P's from 1 to 3 without a gap, and all that was opened at 2 is of P. A descriptor
// opened at 2 also stays P's: an inode of procfs refers to its process as a pidfd does, and reading
// it returns ESRCH, or nothing, after P has exited.
//
// That P is the process that a ProcessID names follows from its start time: the pid would have to
// be assigned twice within one clock tick, while the kernel assigns all others up to pid_max before
// it starts again. (A process with CAP_CHECKPOINT_RESTORE can choose pids, and so could make two
// processes with one ProcessID. Then the pidfd still holds one of them, and all that is read later
// is read from that one.)

// openPidfd opens the process with this pid in our pid namespace. ErrGone: there is none, or the id
// is that of a thread.
func openPidfd(pid int) (int, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.PidfdOpen(pid, 0) }) // always close-on-exec
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		// The last two are for a thread: EINVAL before Linux 6.9, ENOENT since.
		return -1, fmt.Errorf("%w: %w", ErrGone, err)
	case err != nil:
		return -1, fmt.Errorf("opening pidfd: %w", err)
	}
	return fd, nil
}

// exited reports whether the process of a pidfd has exited: all its threads, reaped or not. It
// returns true when polling fails, since callers rely on the process being alive.
func exited(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := ignoringEINTR(func() (int, error) { return unix.Poll(fds, 0) })
	return err != nil || n != 0
}

// maxStatBytes holds the text of /proc/PID/stat: 50 numbers of 20 digits, and a name of 64 bytes.
const maxStatBytes = 2048

// startTimeBytes holds it up to the start time: 21 numbers of 20 digits, and the name.
const startTimeBytes = 512

var errStat = errors.New("unexpected text")

// startTime reads field 22 of /proc/PID/stat. A sweep does so for each target, and package procfs
// takes more than twice as long.
func startTime(procRoot string, pid int) (uint64, error) {
	fd, err := openFD(procRoot+"/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY)
	if err != nil {
		return 0, fmt.Errorf("reading start time: %w", classify(err))
	}
	defer unix.Close(fd)
	text := make([]byte, startTimeBytes)
	n, err := fdReader(fd).Read(text) // one read returns all that there is room for
	if err != nil {
		return 0, fmt.Errorf("reading start time: %w", classify(err))
	}
	started, err := statField(text[:n], 22)
	if err != nil {
		return 0, fmt.Errorf("reading start time: %w", err)
	}
	return started, nil
}

// statField counts from field 3, after the last parenthesis: field 2 is the command's name, which a
// process chooses and which may hold ") ".
func statField(stat []byte, number int) (uint64, error) {
	field := 3
	for value := range bytes.FieldsSeq(stat[bytes.LastIndexByte(stat, ')')+1:]) {
		if field == number {
			return strconv.ParseUint(string(value), 10, 64)
		}
		field++
	}
	return 0, errStat
}
