package messaging

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrCredentials reports that this agent may not assume a process's credentials: it needs
// CAP_SETUID and CAP_SETGID, unless they are its own.
var ErrCredentials = errors.New("not permitted to take on the process's credentials (CAP_SETUID and CAP_SETGID)")

// Credentials are what the kernel checks file permissions against: the filesystem ids and the
// supplementary groups of a process, as numbers of our own user namespace.
type Credentials struct {
	UID, GID uint32
	Groups   []uint32
}

// noID is (uid_t)-1, which is no id: setfsuid with it changes nothing, and returns the present id.
const noID = -1

// Do runs f on a thread of its own, and waits for it. The kernel checks the thread's file accesses
// as it would check those of the process: with its ids and groups, and no capabilities. f does not
// run if the thread could not assume all of them.
//
// The thread then ends instead of being switched back, so that no error can leave a thread with
// other rights among those that run other goroutines. That costs 50 µs.
func (c Credentials) Do(f func() error) error {
	result := make(chan error, 1)
	onOwnThread(func() {
		err := c.assume()
		if err == nil {
			err = f()
		}
		result <- err
	})
	return <-result
}

// onOwnThread starts f on a thread that runs nothing else before it ends. The runtime starts no
// threads from a locked one, so they do not inherit what f changes.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f() // still locked at the end, so the runtime ends the thread
			return
		}
		// The runtime cannot end the main thread, and /proc/PID shows that one. While this
		// goroutine occupies it, another one runs on another thread.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			f()
		}()
		<-done
		runtime.UnlockOSThread()
	}()
}

// assume switches the calling thread. The calls are those of x/sys/unix, which change one thread;
// their namesakes in package syscall change all.
func (c Credentials) assume() error {
	same, err := c.ours()
	if err != nil {
		return err
	}
	if !same {
		if err := c.switchIDs(); err != nil {
			return err
		}
	}
	// Root keeps its exemptions from file permissions when only the group changes, or when the
	// process is the root user of a container. Without capabilities there are none.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	if sets[0].Effective|sets[1].Effective == 0 {
		return nil
	}
	sets[0].Effective, sets[1].Effective = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return nil
}

// ours reports whether the calling thread has these ids and groups already.
func (c Credentials) ours() (bool, error) {
	uid, _ := unix.SetfsuidRetUid(noID)
	gid, _ := unix.SetfsgidRetGid(noID)
	if uint32(uid) != c.UID || uint32(gid) != c.GID {
		return false, nil
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return false, fmt.Errorf("reading groups: %w", err)
	}
	wanted := c.groups()
	slices.Sort(groups)
	slices.Sort(wanted)
	return slices.Equal(slices.Compact(groups), slices.Compact(wanted)), nil
}

// switchIDs sets groups, then the group, then the user: each needs a capability, and setting the
// user drops some. setfsgid and setfsuid return no errors, so the ids are read back.
func (c Credentials) switchIDs() error {
	if err := unix.Setgroups(c.groups()); err != nil {
		return fmt.Errorf("%w: setting groups: %w", ErrCredentials, err)
	}
	_, _ = unix.SetfsgidRetGid(int(c.GID))
	if gid, _ := unix.SetfsgidRetGid(noID); uint32(gid) != c.GID {
		return fmt.Errorf("%w: setting filesystem group %d", ErrCredentials, c.GID)
	}
	_, _ = unix.SetfsuidRetUid(int(c.UID))
	if uid, _ := unix.SetfsuidRetUid(noID); uint32(uid) != c.UID {
		return fmt.Errorf("%w: setting filesystem user %d", ErrCredentials, c.UID)
	}
	return nil
}

func (c Credentials) groups() []int {
	groups := make([]int, len(c.Groups))
	for i, group := range c.Groups {
		groups[i] = int(group)
	}
	return groups
}

// control returns the ancillary data with which a datagram has these ids as its sender's, for
// receivers with SO_PASSCRED; nil when they are what the kernel shows anyway.
func (c Credentials) control(sender SenderPID) []byte {
	if int(c.UID) == os.Getuid() && int(c.GID) == os.Getgid() && sender == ownPID() {
		return nil
	}
	return unix.UnixCredentials(&unix.Ucred{Pid: int32(sender), Uid: c.UID, Gid: c.GID})
}
