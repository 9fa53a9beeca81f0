package procscan

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
	"correlator/internal/host/self"
)

// Peer opens the process that connected a Unix socket, given the descriptor of the accepted one:
// connect(2) recorded it. The descriptor of a connection may be another process's by now. ErrGone:
// it has exited, or has no pid in our pid namespace. procRoot is that of OpenProcess, which describes
// the handle that is returned.
//
// With SO_PEERPIDFD (Linux 6.5) the handle is of exactly that process. Before, there is only its
// pid, which another process can have by now: one that started after accepted, the time by which
// the connection had been accepted, is not the peer. (As far as it is known: start times have 10 ms,
// and while the machine is suspended accepted seems to become later.)
func Peer(procRoot string, socket int, accepted time.Time) (*Handle, error) {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of a peer: %w", err)
	}
	if cred.Pid <= 0 { // SO_PEERCRED has 0 for what is outside of our pid namespace
		return nil, fmt.Errorf("%w: it has no pid here", ErrGone)
	}
	fd, err := peerPidfd(socket)
	exact := err == nil
	if errors.Is(err, unix.ENOPROTOOPT) {
		fd, err = openPidfd(int(cred.Pid))
	}
	if err != nil {
		return nil, err
	}
	h := &Handle{procRoot: procRoot, pidfd: os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(int(cred.Pid)))}
	if err := h.identify(int(cred.Pid)); err != nil {
		h.Close()
		return nil, err
	}
	if !exact && startedAfter(h.id.StartTime, accepted) {
		h.Close()
		return nil, fmt.Errorf("%w: its pid is that of a later process", ErrGone)
	}
	return h, nil
}

// peerPidfd returns a pidfd of the process that connected a socket, or ENOPROTOOPT where the kernel
// does not provide one.
func peerPidfd(socket int) (int, error) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD) // always close-on-exec
	})
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return -1, err
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		// ESRCH and EINVAL are for a process that was reaped, ENODATA for a socket without a peer.
		return -1, fmt.Errorf("%w: %w", ErrGone, err)
	case err != nil:
		return -1, fmt.Errorf("opening the pidfd of a peer: %w", err)
	}
	return fd, nil
}

// identify reads the start time of the process of the pidfd, which has this pid.
func (h *Handle) identify(pid int) error {
	if err := procdir.Check(h.procRoot); err != nil { // is there a proc root at all?
		return err
	}
	started, err := startTime(h.procRoot, pid)
	if !h.Alive() {
		return ErrGone
	}
	h.id = ProcessID{PID: pid, StartTime: started}
	return err
}

// startedAfter reports whether a process with this start time, in clock ticks since boot, started
// after a time that was read with its monotonic clock. What passes between the readings of both clocks
// makes that time later, so that no process is refused that started before it.
func startedAfter(started uint64, t time.Time) bool {
	const tick = time.Second / 100 // USER_HZ is 100 on every architecture that we run on
	since := time.Since(t)
	return time.Duration(started)*tick > self.Clock(unix.CLOCK_BOOTTIME)-since
}

// PIDs returns the pids that the process has in the pid namespace of procRoot and in those below it
// of which it is a member, as the line NSpid of /proc/PID/status does: the last one is what the
// process itself takes for its pid. If it is the only one, the process is in the namespace of
// procRoot.
func (h *Handle) PIDs() ([]int, error) {
	text, err := h.status()
	if err != nil {
		return nil, err
	}
	pids, err := parsePIDs(text)
	if err != nil {
		return nil, fmt.Errorf("reading status: %w", err)
	}
	return pids, nil
}

// maxPIDs is the depth of pid namespaces (MAX_PID_NS_LEVEL of the kernel), and the first one.
const maxPIDs = 32 + 1

// parsePIDs parses a line of /proc/PID/status, with a pid for each namespace, the outermost first:
//
//	NSpid:	4242	17	1
func parsePIDs(status []byte) ([]int, error) {
	for line := range bytes.Lines(status) {
		value, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		var pids []int
		for field := range bytes.FieldsSeq(value) {
			pid, err := strconv.ParseUint(string(field), 10, 31)
			if err != nil || pid == 0 || len(pids) == maxPIDs {
				return nil, fmt.Errorf("parsing NSpid: %w: %.100q", errStatus, line)
			}
			pids = append(pids, int(pid))
		}
		if len(pids) == 0 || !bytes.HasSuffix(line, []byte("\n")) {
			return nil, fmt.Errorf("parsing NSpid: %w: %.100q", errStatus, line)
		}
		return pids, nil
	}
	return nil, fmt.Errorf("finding NSpid: %w", errStatus)
}
