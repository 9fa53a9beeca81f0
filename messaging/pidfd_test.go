package messaging

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Of linux/socket.h and asm-generic/socket.h (Linux 6.5), which golang.org/x/sys does not have.
const (
	soPassPidfd = 76
	scmPidfd    = 4
)

// shown is what a receiver learned and took of the sender of one message.
type shown struct {
	Bytes    int
	PID, UID int      // of SCM_CREDENTIALS, in the receiver's namespaces
	Pidfd    bool     // a pidfd came with it
	Taken    []string // the descriptors that pidfd_getfd copied: what they refer to
	Refused  string   // the last error of pidfd_getfd
}

// receiveShown reads messages from a socket, and prints a line for each: all that the kernel gives of
// the sender.
func receiveShown(fd int) error {
	for {
		message, control := make([]byte, 4096), make([]byte, 4096)
		n, used, _, _, err := unix.Recvmsg(fd, message, control, 0)
		if err != nil {
			return err
		}
		r := shown{Bytes: n}
		parts, err := unix.ParseSocketControlMessage(control[:used])
		if err != nil {
			return err
		}
		for _, part := range parts {
			switch part.Header.Type {
			case unix.SCM_CREDENTIALS:
				credentials, err := unix.ParseUnixCredentials(&part)
				if err != nil {
					return err
				}
				r.PID, r.UID = int(credentials.Pid), int(credentials.Uid)
			case scmPidfd:
				r.Pidfd = true
				r.take(int(*(*int32)(unsafe.Pointer(&part.Data[0]))))
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
}

// take copies the descriptors of a process.
func (r *shown) take(pidfd int) {
	defer unix.Close(pidfd)
	for target := range 1024 {
		fd, err := unix.PidfdGetfd(pidfd, target, 0)
		if err != nil {
			if !errors.Is(err, unix.EBADF) {
				r.Refused = err.Error()
			}
			continue
		}
		what, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			what = err.Error()
		}
		r.Taken = append(r.Taken, what)
		unix.Close(fd)
	}
}

// A receiver that may trace processes, as a container with CAP_SYS_PTRACE and a pid namespace of its
// own, gets nothing of whoever sends to it: neither a pid nor a pidfd with which it could take
// descriptors. It does if we show ourselves.
func TestDatagramGivesNothingAway(t *testing.T) {
	testenv.NeedRoot(t)
	sender, err := FindSenderPID("/proc")
	assert.NilError(t, err)
	shown := received(t, sender)
	assert.Check(t, len(shown.Taken) == 0 && shown.PID == 0 && shown.UID == 0, "of kthreadd: %+v", shown)
	if shown := received(t, ownPID()); shown.Pidfd && len(shown.Taken) == 0 {
		t.Errorf("of ourselves: %+v, so the receiver could not take anything of anyone", shown)
	}
}

// received returns what a receiver is shown of a registration whose sender shows a pid.
func received(t *testing.T, sender SenderPID) shown {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	c := helper{Bind: path, Shown: true}.start(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID})
	if line := c.line(); line != "bound" {
		testenv.Missing(t, "needs SO_PASSPIDFD (Linux 6.5): "+line)
	}
	creds := ourCredentials(t)
	dialed, err := Dial("/proc", openRoot(t, "/"), path, creds)
	assert.NilError(t, err)
	identity := dialed.Identity()
	s := NewSender(new(Counters), newTestPoller(t))
	defer s.Close()
	socket := NewSocket(dialed.Release(), identity, creds, sender)
	assert.NilError(t, s.Connect(socket, testRegistration))
	var r shown
	assert.NilError(t, json.Unmarshal([]byte(c.line()), &r))
	return r
}

// In a container, pid 2 is some process.
func TestSenderPIDOfContainer(t *testing.T) {
	procRoot := t.TempDir()
	testenv.WriteFile(t, filepath.Join(procRoot, "2/stat"), testenv.ReadFile(t, "/proc/self/stat"))
	pid, err := FindSenderPID(procRoot)
	assert.Check(t, pid == ownPID() && errors.Is(err, ErrSenderShown), "%d, %v", pid, err)
}
