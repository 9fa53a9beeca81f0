package worker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/priority"
)

// Errors of a Process and of a Pool.
var (
	// ErrTimeout: the worker did not answer in time.
	ErrTimeout = errors.New("no answer in time")
	// ErrStarved: the worker did not answer in time, and got too little CPU time for it. Nobody is to blame.
	ErrStarved = errors.New("worker got no CPU time")
	// ErrEnded: the worker has ended before it answered.
	ErrEnded = errors.New("worker ended")
	// ErrClosed: the Spawner or the Pool is closed.
	ErrClosed = errors.New("no more workers are started")
)

// timersLate is how late timers of workers may be that serve one request at a time: the monitor thread of their Go
// runtime wakes up each 20 µs while it is served, for which this is much longer than most take. That thread has nothing
// to do there: a system call that blocks keeps no other goroutine waiting.
const timersLate = 50 * time.Millisecond

// Spawner starts workers of one kind. It is safe for concurrent use.
//
// A thread of its own starts them, which has given up all capabilities but those of the kind, and
// the right to gain others (no_new_privs): so root's workers do not get them by executing the
// program, either. With that thread, that is with the agent, the kernel kills the workers
// (PR_SET_PDEATHSIG).
type Spawner struct {
	kind     Kind
	procRoot string
	ownUser  bool                  // of its thread
	root     atomic.Pointer[error] // see Root
	requests chan chan<- spawned
	kills    chan kill
	closed   chan struct{}
}

// kill is a worker to kill. done is closed when that is sent.
type kill struct {
	pid  int
	done chan<- struct{}
}

type spawned struct {
	process *Process
	err     error
}

// NewSpawner returns a Spawner, which the caller must close. procRoot is a procfs of our own pid
// namespace.
func NewSpawner(procRoot string, kind Kind) (*Spawner, error) {
	closeOnExec()
	isDumpable()
	s := &Spawner{
		kind: kind, procRoot: procRoot,
		requests: make(chan chan<- spawned), kills: make(chan kill), closed: make(chan struct{}),
	}
	ready := make(chan error)
	go s.run(ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("preparing to start %s workers: %w", kind.Name, err)
	}
	return s, nil
}

// closeOnExec keeps descriptors that this process has inherited from its workers; all that Go opens
// are close-on-exec anyway.
func closeOnExec() {
	const first = 3
	if unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	for fd := first; fd < mostInherited; fd++ { // before Linux 5.11
		unix.CloseOnExec(fd)
	}
}

// mostInherited is the usual limit of descriptors, so that of what a process can inherit.
const mostInherited = 1024

// Close ends the Spawner, and with its thread all its workers.
func (s *Spawner) Close() { close(s.closed) }

// Start starts a worker.
func (s *Spawner) Start() (*Process, error) {
	result := make(chan spawned, 1)
	select {
	case s.requests <- result:
	case <-s.closed:
		return nil, ErrClosed
	}
	r := <-result
	return r.process, r.err
}

// run is the Spawner's thread. It stays locked, so that the thread ends with it.
func (s *Spawner) run(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the main thread cannot end
		again := make(chan struct{})
		go func() {
			s.run(ready)
			close(again)
		}()
		<-again
		runtime.UnlockOSThread()
		return
	}
	if s.kind.Single { // else they have the agent's
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timersLate.Nanoseconds()), 0, 0, 0)
	}
	if s.kind.Raised {
		priority.Raise()
	}
	s.ownUser = s.meansUser()
	if err := s.mayHaveUser(); s.ownUser && err != nil {
		s.ownUser = false
		s.root.Store(&err)
	}
	err := restrictThread(s.kind.Capabilities, s.ownUser)
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case result := <-s.requests:
			process, err := s.start()
			if s.ownUser && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL)) {
				// It may not keep capabilities, for example, or not execute the program, or its user namespace
				// does not have the user.
				s.ownUser = false
				refused := fmt.Errorf("starting it as user %d: %w", workerID, err)
				s.root.Store(&refused)
				if err = restrictThread(s.kind.Capabilities, false); err == nil {
					process, err = s.start()
				}
			}
			if err != nil {
				err = fmt.Errorf("starting a %s worker: %w", s.kind.Name, err)
			}
			result <- spawned{process, err}
		case k := <-s.kills:
			s.kill(k.pid)
			close(k.done)
		case <-s.closed:
			return
		}
	}
}

// workerID is the user and group of workers that have one of their own. Nobody else should have it: it is beyond all
// ranges that are given to users, services and containers.
const workerID = 4_200_000_000

// forOwnUser is what the Spawner's thread needs for workers that have a user of their own. They do not get it.
var forOwnUser = []int{unix.CAP_SETUID, unix.CAP_SETGID}

// kill kills a worker. The real user of who signals another user's process must be that one, else it takes CAP_KILL,
// which no deployment of ours grants. The user is that of the Spawner's thread alone, and for no longer than that.
func (s *Spawner) kill(pid int) {
	const unchanged = ^uintptr(0)
	if s.ownUser {
		_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, workerID, unchanged, unchanged)
		defer func() { _, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, 0, unchanged, unchanged) }()
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

// Root returns why workers are root's that are to have a user of their own, nil while they are not.
// It may be known only after one has started. A nil Spawner has no workers.
func (s *Spawner) Root() error {
	if s == nil {
		return nil
	}
	if err := s.root.Load(); err != nil {
		return *err
	}
	return nil
}

// meansUser reports whether workers are to have a user of their own, instead of root: they need no
// capability with which they could take on another one.
func (s *Spawner) meansUser() bool {
	return unix.Geteuid() == 0 && !slices.Contains(s.kind.Capabilities, unix.CAP_SETUID)
}

// mayHaveUser returns why workers cannot have a user of their own: the program is not everybody's to execute, or has
// capabilities of its own, which would take theirs, or they would not have all that they need, without which root could
// read more.
func (s *Spawner) mayHaveUser() error {
	var info unix.Stat_t
	const othersExecute = 0o001
	if err := unix.Stat(s.program(), &info); err != nil {
		return fmt.Errorf("reading the mode of the program: %w", err)
	}
	if info.Mode&othersExecute == 0 {
		return fmt.Errorf("the program has mode %#o: not everybody may execute it", info.Mode&0o7777)
	}
	if _, err := unix.Getxattr(s.program(), "security.capability", nil); err == nil {
		return errors.New("the program has capabilities of its own (getcap)")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	var missing []string
	for _, capability := range append(substituted(s.kind.Capabilities, sets), forOwnUser...) {
		if sets[capability/32].Permitted&(1<<(capability%32)) == 0 {
			name := map[int]string{
				unix.CAP_SETUID: "CAP_SETUID", unix.CAP_SETGID: "CAP_SETGID",
			}[capability]
			missing = append(missing, cmp.Or(name, fmt.Sprintf("capability %d", capability)))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the agent lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

// setOf returns a set of capabilities.
func setOf(capabilities []int) (set [2]uint32) {
	for _, capability := range capabilities {
		set[capability/32] |= 1 << (capability % 32)
	}
	return set
}

// substituted returns capabilities, or what stands in for one: CAP_SYS_ADMIN for CAP_CHECKPOINT_RESTORE where that
// alone was granted, and before Linux 5.9.
func substituted(capabilities []int, sets [2]unix.CapUserData) []int {
	const newer = unix.CAP_CHECKPOINT_RESTORE
	capabilities = slices.Clone(capabilities)
	if i := slices.Index(capabilities, newer); i >= 0 && sets[newer/32].Permitted&(1<<(newer%32)) == 0 {
		capabilities[i] = unix.CAP_SYS_ADMIN
	}
	return capabilities
}

// restrictThread gives up what the calling thread's children must not have, but for what it takes to give them a user
// of their own.
func restrictThread(keep []int, ownUser bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	keep = substituted(keep, sets)
	inherited := setOf(keep)
	if ownUser {
		keep = append(keep, forOwnUser...)
	}
	for i, kept := range setOf(keep) {
		sets[i].Permitted &= kept
		sets[i].Effective &= kept
		sets[i].Inheritable &= inherited[i]
		if ownUser {
			sets[i].Effective = sets[i].Permitted
		}
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return nil
}

// isDumpable reports whether the agent was dumpable at its start. Whoever takes on another user is not any more, which
// is so for all who share its memory, as a child does until it executes a program.
var isDumpable = sync.OnceValue(func() bool {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return err == nil && dumpable == 1
})

// Program, if set, returns the path of what workers of a kind execute, "" for this program. Tests have them execute the
// command as it is released.
var Program func(kind string) string

// program returns the path of what workers execute.
func (s *Spawner) program() string {
	if Program != nil {
		if path := Program(s.kind.Name); path != "" {
			return path
		}
	}
	return path.Join(s.procRoot, "self/exe")
}

// start is Start on the Spawner's thread.
func (s *Spawner) start() (*Process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("creating its channel: %w", err)
	}
	defer unix.Close(fds[1])
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, channelBufferBytes); err != nil {
			unix.Close(fds[0])
			return nil, fmt.Errorf("setting the channel's buffer: %w", err)
		}
	}
	conn, err := newSocket(fds[0])
	if err != nil {
		return nil, fmt.Errorf("watching its channel: %w", err)
	}
	null, err := openNull()
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer unix.Close(null)
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if s.ownUser {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		if err := unix.Capget(&header, &sets[0]); err != nil {
			conn.Close()
			return nil, err
		}
		attributes.Credential = &syscall.Credential{Uid: workerID, Gid: workerID}
		for _, capability := range substituted(s.kind.Capabilities, sets) {
			attributes.AmbientCaps = append(attributes.AmbientCaps, uintptr(capability))
		}
	}
	pid, err := syscall.ForkExec(s.program(), []string{processName, s.kind.Name, s.procRoot}, &syscall.ProcAttr{
		Dir: "/",
		Env: []string{
			// before the bound is met
			"GOMAXPROCS=1", "GOGC=50", "GOMEMLIMIT=" + strconv.FormatUint(s.kind.MemoryBytes/2, 10),
			// The runtime is not to watch the limits of its cgroup, by descriptors of its own.
			"GODEBUG=containermaxprocs=0,updatemaxprocs=0",
		},
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(fds[1])}, // channel is the last
		Sys:   attributes,
	})
	if s.ownUser && isDumpable() {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	started(pid)
	return &Process{conn: conn, pid: pid, ended: make(chan struct{}), procRoot: s.procRoot,
		spawner: s}, nil
}

// openNull opens /dev/null, or an empty file where there is no /dev.
func openNull() (int, error) {
	fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.MemfdCreate("null", unix.MFD_CLOEXEC)
	}
	return fd, err
}

// Process is a worker. One goroutine at a time may receive, and one may send; Kill may be called by
// any, and must be called once.
type Process struct {
	conn   *socket
	pid    int
	buffer []byte
	rights [64]byte
	ended  chan struct{}

	procRoot string
	spawner  *Spawner

	interrupted atomic.Bool
}

// PID returns the worker's pid.
func (p *Process) PID() int { return p.pid }

// sendTimeout is how long a worker may take to receive what was sent before, so that there is room: it
// does nothing else with the goroutine that receives.
const sendTimeout = 2 * time.Second

// Send sends a message to the worker. The error is ErrTimeout when it receives none.
func (p *Process) Send(message []byte) error { return p.SendDescriptors(message, nil) }

// SendDescriptors is Send for a message with up to MaxDescriptors descriptors, which the caller still
// has to close. The worker must call ReceiveDescriptors.
func (p *Process) SendDescriptors(message []byte, fds []int) error {
	if len(message) > MaxMessageBytes || len(fds) > MaxDescriptors {
		return fmt.Errorf("sending %d bytes and %d descriptors to a worker: %w", len(message), len(fds), unix.EMSGSIZE)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	err := p.conn.send(message, rights, sendTimeout)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrTimeout
	}
	if err != nil {
		return fmt.Errorf("sending to a worker: %w: %w", ErrEnded, err)
	}
	return nil
}

// Receive waits for a message until a deadline, then the error is ErrTimeout; zero is no deadline.
// The message is valid until the next call. fd is a descriptor that came with it, which the caller
// must close, or -1.
func (p *Process) Receive(deadline time.Time) (message []byte, fd int, err error) {
	if p.buffer == nil {
		p.buffer = make([]byte, MaxMessageBytes)
	}
	if err := p.conn.SetReadDeadline(deadline); err != nil {
		return nil, -1, err
	}
	if p.interrupted.Load() { // perhaps before the deadline was set
		return nil, -1, ErrTimeout
	}
	n, rights, flags, err := p.conn.receive(p.buffer, p.rights[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, -1, ErrTimeout
	}
	// An empty message looks like the end, and may have descriptors all the same.
	fd, rightsErr := receivedDescriptor(p.rights[:rights])
	if err == nil {
		err = rightsErr
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = unix.EMSGSIZE
	}
	if err == nil {
		return p.buffer[:n], fd, nil
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	if errors.Is(err, io.EOF) {
		return nil, -1, ErrEnded
	}
	return nil, -1, fmt.Errorf("receiving from a worker: %w: %w", ErrEnded, err)
}

// Interrupt has a Receive that waits return ErrTimeout, and all after it. It may be called by any
// goroutine.
func (p *Process) Interrupt() {
	p.interrupted.Store(true)
	_ = p.conn.SetReadDeadline(time.Unix(1, 0))
}

// receivedDescriptor returns the one descriptor of ancillary data, -1 when there is none. It is
// close-on-exec: socket asks for that.
func receivedDescriptor(control []byte) (int, error) {
	fds, err := receivedDescriptors(control)
	if err != nil || len(fds) == 0 {
		return -1, err
	}
	closeAll(fds[1:])
	return fds[0], nil
}

// Kill kills the worker without waiting for its end. A worker in a system call that cannot be
// interrupted ends when that returns.
func (p *Process) Kill() {
	// It is not reaped before, so the pid is its own.
	if err := unix.Kill(p.pid, unix.SIGKILL); errors.Is(err, unix.EPERM) { // it has a user of its own
		done := make(chan struct{})
		select {
		case p.spawner.kills <- kill{p.pid, done}:
			<-done
		case <-p.spawner.closed: // with its thread, the worker ends
		}
	}
	go p.reap()
}

// Ended is closed when the worker has ended, after Kill.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// reap waits for the end of the worker: its end of the channel is closed with its last thread. Then
// waiting for the process is short, which takes a thread; unless the worker closed it itself.
func (p *Process) reap() {
	defer close(p.ended)
	_ = p.conn.SetReadDeadline(time.Time{})
	var rest [1]byte
	for {
		if n, _, _, err := p.conn.receive(rest[:], nil); n == 0 || err != nil {
			break
		}
	}
	p.conn.Close()
	wait(p.pid)
}
