package receiver

import (
	"math"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"correlator/opencensus/spans"
	"correlator/procscan"
)

// maxExecutableName is the longest name of a file on Linux (NAME_MAX).
const maxExecutableName = 255

// peer is the process that connected.
type peer struct {
	uid uint32
	// connected is its pid in our pid namespace, as the kernel noted when it connected; 0: it has none.
	connected int
	pid       int // the same, if it could be examined; 0: nothing else is known
	own       int // in its own pid namespace

	containerID, executableName string
}

// unknownUser is the uid of a peer of which the kernel does not tell. No user has it.
const unknownUser = math.MaxUint32

// identify returns what is known of the process that connected the socket, which was accepted by
// that time. What has been read belongs to that process if it is still alive afterwards.
func identify(procRoot string, socket int, accepted time.Time) peer {
	p := peer{uid: unknownUser}
	if cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		p.uid, p.connected = cred.Uid, int(cred.Pid)
	}
	h, err := procscan.Peer(procRoot, socket, accepted)
	if err != nil {
		return p
	}
	defer h.Close()
	pids, err := h.PIDs()
	if err != nil {
		return p
	}
	known := peer{
		uid: p.uid, connected: p.connected, pid: h.Identity().PID, own: pids[len(pids)-1],
	}
	if cgroup, _, err := h.Cgroup(nil); err == nil {
		known.containerID = cgroup.ContainerID
	}
	if path, err := h.Executable(); err == nil {
		known.executableName = executableName(path)
	}
	if !h.Alive() {
		return p
	}
	return known
}

// executableName returns the name of a program's file; empty if there is none.
func executableName(path string) string {
	name := strings.ToValidUTF8(filepath.Base(path), "\uFFFD")
	if path == "" || name == "/" || len(name) > 3*maxExecutableName {
		return ""
	}
	return name
}

// process returns the process that calls itself pid. If that is not the peer, it is most likely a
// child that the peer has forked and that has inherited the connection, and with it the container
// and the program. Which one is not known: a number that a client says of itself may be any.
func (p *peer) process(pid uint32) spans.Process {
	if p.pid == 0 {
		if int(pid) == p.connected { // a short script: kernel and process agree on who it was
			return spans.Process{PID: p.connected}
		}
		return spans.Process{}
	}
	process := spans.Process{ContainerID: p.containerID, ExecutableName: p.executableName}
	if int(pid) == p.own {
		process.PID = p.pid
	}
	return process
}
