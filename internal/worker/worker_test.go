package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// deadline is far more than anything here takes on a machine that is busy with other tests.
const deadline = 60 * time.Second

// testMemoryBytes is what a worker of the tests may take.
const testMemoryBytes = 64 << 20

// testKind is a worker that does what a message asks for.
var testKind = Kind{
	Name: "test", Capabilities: []int{unix.CAP_SYS_PTRACE, unix.CAP_SETUID}, MemoryBytes: testMemoryBytes,
	Calls: append([]uint32{unix.SYS_BPF, unix.SYS_SOCKET}, CredentialCalls...), // all that any kind makes
	Serve: func(procRoot string, conn *Conn) {
		for {
			message, fds, err := conn.ReceiveDescriptors()
			if err != nil {
				return
			}
			switch string(message) {
			case "empty": // an empty message, with descriptors
				rights := unix.UnixRights(0, 1, 2)
				header := unix.Msghdr{Control: &rights[0]}
				header.SetControllen(len(rights))
				// unix.Sendmsg would send a byte.
				_, _, _ = unix.Syscall(unix.SYS_SENDMSG, uintptr(conn.fd), uintptr(unsafe.Pointer(&header)), 0)
				continue
			case "descriptors of others": // more than are received
				rights := unix.UnixRights(make([]int, MaxDescriptors)...)
				_ = unix.Sendmsg(conn.fd, message, rights, nil, unix.MSG_NOSIGNAL)
				continue
			}
			answer, fd := serveTest(procRoot, string(message), fds)
			closeAll(fds)
			if conn.Send(answer, fd) != nil {
				return
			}
		}
	},
}

// ownKind is a worker that has a user of its own.
var ownKind = Kind{
	Name: "own", Capabilities: []int{unix.CAP_SYS_PTRACE}, MemoryBytes: testMemoryBytes, Serve: testKind.Serve,
}

func serveTest(procRoot, message string, fds []int) (answer []byte, fd int) {
	fd = -1
	command, argument, _ := strings.Cut(message, " ")
	switch command {
	case "spin":
		for n := uint64(1); n != 0; n++ {
			answer = answer[:0]
		}
	case "hang":
		time.Sleep(time.Hour)
	case "exit":
		os.Exit(0)
	case "status":
		answer, _ = os.ReadFile(filepath.Join(procRoot, "self/status"))
	case "descriptors":
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			link, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err == nil { // but for the directory itself
				answer = fmt.Appendf(answer, "%s %s\n", e.Name(), link)
			}
		}
	case "allocate":
		size, _ := strconv.Atoi(argument)
		b := make([]byte, size)
		for i := 0; i < size; i += 4096 {
			b[i] = 1
		}
		answer = b[:1]
	case "contents":
		for _, received := range fds {
			b := make([]byte, 64)
			n, _ := unix.Pread(received, b, 0)
			answer = append(answer, b[:n]...)
		}
	case "long": // longer than a message may be
		answer = make([]byte, MaxMessageBytes+1)
	case "attempt":
		err := attempts[argument]()
		if err == nil {
			err = errors.New("permitted")
		}
		answer = []byte(err.Error())
	case "write":
		how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_CLOEXEC, Mode: 0o600}
		opened, err := unix.Openat2(unix.AT_FDCWD, argument, &how)
		_ = unix.Close(opened)
		answer = fmt.Append(nil, err)
	case "open":
		fd, _ = unix.Open(argument, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		answer = []byte("opened")
	default:
		answer = []byte(message)
	}
	return answer, fd
}

// holderVariable has the test binary start a worker, print its pid, and wait; or, if it is "trace", try to
// trace that.
const holderVariable = "WORKER_TEST_HOLDER"

func TestMain(m *testing.M) {
	Main(testKind, ownKind)
	if os.Getenv(holderVariable) != "" {
		hold()
	}
	os.Exit(m.Run())
}

func hold() {
	spawner, err := NewSpawner("/proc", testKind)
	if err != nil {
		panic(err)
	}
	process, err := spawner.Start()
	if err != nil {
		panic(err)
	}
	if os.Getenv(holderVariable) == "trace" {
		traceBoth(process)
	}
	fmt.Println(process.PID())
	select {}
}

// traceBoth prints which processes this one may trace, a common one and a worker, and ends.
func traceBoth(worker *Process) {
	common := exec.Command("sleep", "1000")
	if err := common.Start(); err != nil {
		panic(err)
	}
	if err := worker.Send([]byte("hello")); err != nil {
		panic(err)
	}
	if _, _, err := worker.Receive(time.Now().Add(deadline)); err != nil { // it is confined
		panic(err)
	}
	runtime.LockOSThread()
	for _, pid := range []int{common.Process.Pid, worker.PID()} {
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		fmt.Println(err == nil, unix.PtraceSeize(pid) == nil)
		_ = memory.Close()
	}
	_ = common.Process.Kill()
	os.Exit(0)
}

func start(t *testing.T) *Process { return startKind(t, testKind) }

func startKind(t *testing.T, kind Kind) *Process {
	t.Helper()
	spawner, err := NewSpawner("/proc", kind)
	assert.NilError(t, err)
	t.Cleanup(spawner.Close)
	process, err := spawner.Start()
	assert.NilError(t, err)
	t.Cleanup(func() {
		select {
		case <-process.Ended():
		default:
			process.Kill()
			<-process.Ended()
		}
	})
	return process
}

func (p *Process) ask(t *testing.T, message string) string {
	t.Helper()
	assert.NilError(t, p.Send([]byte(message)))
	answer, _, err := p.Receive(time.Now().Add(deadline))
	assert.NilError(t, err, message)
	return string(answer)
}

// A worker has the capabilities of its kind and cannot get others, and no descriptors but its channel.
func TestConfined(t *testing.T) {
	testenv.NeedRoot(t)
	inherited, err := os.Create(filepath.Join(t.TempDir(), "inherited"))
	assert.NilError(t, err)
	defer inherited.Close()
	p := start(t)
	status := p.ask(t, "status")
	const capabilities = 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_SETUID
	for _, want := range []string{
		fmt.Sprintf("CapPrm:\t%016x", capabilities), fmt.Sprintf("CapEff:\t%016x", capabilities), "NoNewPrivs:\t1",
	} {
		assert.Check(t, strings.Contains(status, want), "no %q in\n%s", want, status)
	}
	var core, file, data unix.Rlimit
	assert.NilError(t, errors.Join(unix.Prlimit(p.PID(), unix.RLIMIT_CORE, nil, &core),
		unix.Prlimit(p.PID(), unix.RLIMIT_FSIZE, nil, &file), unix.Prlimit(p.PID(), unix.RLIMIT_DATA, nil, &data)))
	_, size, _ := strings.Cut(status, "VmData:")
	var kilobytes uint64 // its start took less
	_, err = fmt.Sscan(size, &kilobytes)
	assert.Check(t, err == nil && core == unix.Rlimit{} && file == unix.Rlimit{} && data.Cur == data.Max &&
		data.Cur <= kilobytes<<10+testMemoryBytes, "limits %d, %d, %d of %d kB", core, file, data, kilobytes)
	var fds []string
	for line := range strings.Lines(p.ask(t, "descriptors")) {
		fd, link, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(link, "anon_inode:[event") { // the Go runtime's own
			fds = append(fds, fd+" "+strings.TrimRight(link, "0123456789[]"))
		}
	}
	got := strings.Join(fds, ", ")
	assert.Check(t, got == "0 /dev/null, 1 /dev/null, 2 /dev/null, 3 socket:", "descriptors: %s", got)
}

// A worker that cannot take on other users is nobody else's, and keeps its capabilities. It cannot create root's files
// or change them, where it may open any.
func TestOwnUser(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	assert.NilError(t, os.Chmod(dir, 0o755))
	file := filepath.Join(dir, "file")
	testenv.WriteFile(t, file, []byte("contents"))
	for kind, want := range map[*Kind]struct{ user, opened, capabilities string }{
		&testKind: {"0", "<nil>", fmt.Sprintf("%016x", 1<<unix.CAP_SYS_PTRACE|1<<unix.CAP_SETUID)},
		&ownKind:  {"4200000000", "permission denied", fmt.Sprintf("%016x", 1<<unix.CAP_SYS_PTRACE)},
	} {
		p := startKind(t, *kind)
		assert.Check(t, p.spawner.Root() == nil, "%s: %v", kind.Name, p.spawner.Root())
		status := p.ask(t, "status")
		ids := strings.Repeat("\t"+want.user, 4) + "\n"
		lines := []string{"Uid:" + ids, "Gid:" + ids, "CapPrm:\t" + want.capabilities, "CapEff:\t" + want.capabilities}
		if kind == &ownKind {
			lines = append(lines, "Groups:\t \n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n")
		}
		for _, line := range lines {
			assert.Check(t, strings.Contains(status, line), "%s: no %q in\n%s", kind.Name, line, status)
		}
		for _, path := range []string{file, filepath.Join(dir, "new of "+kind.Name)} {
			answer := p.ask(t, "write "+path)
			assert.Check(t, answer == want.opened, "%s opens %s for writing: %s", kind.Name, path, answer)
		}
		score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID()))
		assert.Check(t, err == nil && string(score) == "1000\n", "%s: %q, %v", kind.Name, score, err)
	}
}

// Where workers cannot have a user of their own they are root's, and why is known: at once, or from
// a start that failed.
func TestOwnUserRefused(t *testing.T) {
	testenv.NeedRoot(t)
	self, err := os.ReadFile("/proc/self/exe")
	assert.NilError(t, err)
	root := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(root, "self"), 0o700)) // nobody else executes what is in it
	program := filepath.Join(root, "self/exe")
	testenv.WriteProgram(t, program, self, 0o700)
	for _, test := range []struct {
		mode          os.FileMode
		before, after string
	}{
		{0o700, "the program has mode 0700: not everybody may execute it", "not everybody may execute it"},
		{0o711, "", "starting it as user 4200000000: permission denied"},
	} {
		assert.NilError(t, os.Chmod(program, test.mode))
		spawner, err := NewSpawner(root, ownKind)
		assert.NilError(t, err)
		t.Cleanup(spawner.Close)
		if test.before == "" {
			assert.NilError(t, spawner.Root())
		} else {
			assert.Error(t, spawner.Root(), test.before)
		}
		process, err := spawner.Start()
		assert.NilError(t, err)
		assert.ErrorContains(t, spawner.Root(), test.after)
		var info unix.Stat_t
		assert.NilError(t, unix.Stat(fmt.Sprintf("/proc/%d", process.PID()), &info))
		assert.Check(t, info.Uid == 0, "user %d", info.Uid)
		process.Kill()
		<-process.Ended()
	}
}

// Workers are root's where the program has capabilities of its own, which would take theirs.
func TestOwnUserOfFile(t *testing.T) {
	testenv.NeedRoot(t)
	root := t.TempDir()
	program := filepath.Join(root, "self", "exe")
	assert.NilError(t, os.Mkdir(filepath.Dir(program), 0o755))
	testenv.WriteFile(t, program, "")
	assert.NilError(t, os.Chmod(program, 0o755))
	s := &Spawner{procRoot: root, kind: ownKind}
	assert.NilError(t, s.mayHaveUser())
	capabilities := make([]byte, 20) // struct vfs_cap_data
	binary.LittleEndian.PutUint32(capabilities, 0x02000001)
	binary.LittleEndian.PutUint32(capabilities[4:], 1<<unix.CAP_SYS_PTRACE)
	if err := unix.Setxattr(program, "security.capability", capabilities, 0); err != nil {
		testenv.Missing(t, err.Error())
	}
	assert.ErrorContains(t, s.mayHaveUser(), "capabilities of its own")
}

// A thread without the right to signal other users' processes ends workers that are another user's. Core dumps and
// debuggers of this process are as before.
func TestOwnUserEnds(t *testing.T) {
	testenv.NeedRoot(t)
	p := startKind(t, ownKind)
	assert.Check(t, p.ask(t, "hello") == "hello")
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	assert.Check(t, err == nil && dumpable == 1, "dumpable: %d, %v", dumpable, err)
	killed := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		err := unix.Capget(&header, &sets[0])
		sets[0].Effective &^= 1 << unix.CAP_KILL
		if err == nil {
			err = unix.Capset(&header, &sets[0])
		}
		if err == nil && !errors.Is(unix.Kill(p.PID(), 0), unix.EPERM) {
			err = errors.New("it may signal the worker")
		}
		p.Kill()
		killed <- err
	}()
	assert.NilError(t, <-killed)
	<-p.Ended()
}

// attempts are what a worker may not do, by the rights that it has.
var attempts = map[string]func() error{
	"execute":           func() error { return unix.Exec("/bin/true", []string{"true"}, nil) },
	"fork":              func() error { return call6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)) },
	"fork by clone3":    func() error { return call6(unix.SYS_CLONE3) },
	"trace":             func() error { return unix.PtraceAttach(os.Getppid()) },
	"write to memory":   func() error { return call6(unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getppid())) },
	"take descriptors":  func() error { return call6(unix.SYS_PIDFD_GETFD) },
	"signal":            func() error { return unix.Kill(os.Getppid(), 0) },
	"signal a thread":   func() error { return unix.Tgkill(os.Getppid(), os.Getppid(), 0) },
	"be another user":   func() error { return call6(unix.SYS_SETRESUID) },
	"change a mode":     func() error { return unix.Fchmodat(unix.AT_FDCWD, "/", 0o755, 0) },
	"remove":            func() error { return unix.Unlink("/nothing") },
	"mount":             func() error { return unix.Mount("", "/", "", unix.MS_PRIVATE, "") },
	"limit another":     func() error { return unix.Prlimit(os.Getppid(), unix.RLIMIT_CORE, nil, &unix.Rlimit{}) },
	"be traced":         func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"load a program":    func() error { return call6(unix.SYS_BPF, unix.BPF_PROG_LOAD) },
	"connect to hosts":  func() error { return newCall(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)) },
	"open for writing":  func() error { return newCall(unix.Open(os.DevNull, unix.O_WRONLY, 0)) },
	"create":            func() error { return newCall(unix.Open("/new", unix.O_RDONLY|unix.O_CREAT, 0o600)) },
	"close a written":   func() error { return unix.Close(1) },
	"close its channel": func() error { return unix.Close(channel) },
	"duplicate":         func() error { return unix.Dup3(channel, 100, 0) },
	"write": func() error { // to what is opened otherwise
		fd, err := unix.Openat2(unix.AT_FDCWD, os.DevNull, &unix.OpenHow{Flags: unix.O_RDWR})
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, make([]byte, 8))
		return err
	},
	"write at an offset": func() error { return call6(unix.SYS_PWRITE64) },
	"write from several": func() error { return call6(unix.SYS_WRITEV) },
	"send":               func() error { return unix.Sendto(channel, nil, 0, &unix.SockaddrUnix{Name: "/nothing"}) },
	"map for all": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		return err
	},
	"map for all, and write then": func() error {
		memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		return unix.Mprotect(memory, unix.PROT_READ|unix.PROT_WRITE)
	},
	"map code": func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		return err
	},
	"make memory code": func() error { return call6(unix.SYS_MPROTECT, 0, 0, unix.PROT_READ|unix.PROT_EXEC) },
	"control a device": func() error { return unix.IoctlSetInt(1, unix.TIOCSTI, 0) },
}

func newCall(_ int, err error) error { return err }

// call6 makes a system call, which has no effect if it is permitted.
func call6(number uintptr, arguments ...uintptr) error {
	a := append(arguments, make([]uintptr, 6)...)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return errors.New("permitted")
}

// A worker that is taken over has no use for the rights that it has: it cannot do more than serve requests.
func TestForbiddenCalls(t *testing.T) {
	testenv.NeedRoot(t)
	assert.NilError(t, ProbeFilters())
	p := start(t)
	for name := range attempts {
		want := unix.EPERM
		if name == "fork by clone3" {
			want = unix.ENOSYS
		}
		answer := p.ask(t, "attempt "+name)
		assert.Check(t, answer == want.Error(), "%s: %s", name, answer)
	}
	assert.Check(t, strings.Contains(p.ask(t, "status"), "\nSeccomp:\t2\n"), "another thread may do so")
}

// A worker that takes more memory than it may ends, and with it nobody else.
func TestMemoryBounded(t *testing.T) {
	p := start(t)
	answer := p.ask(t, fmt.Sprintf("allocate %d", testMemoryBytes/4))
	assert.Check(t, len(answer) == 1, "%q", answer)
	assert.NilError(t, p.Send(fmt.Appendf(nil, "allocate %d", 2*testMemoryBytes)))
	_, _, err := p.Receive(time.Now().Add(deadline))
	assert.Check(t, errors.Is(err, ErrEnded), err)
}

// Messages of any length up to the bound arrive, and descriptors with them.
func TestMessages(t *testing.T) {
	p := start(t)
	for _, size := range []int{1, 4096, MaxMessageBytes} {
		message := strings.Repeat("x", size)
		got := p.ask(t, message)
		assert.Check(t, got == message, "%d bytes: %d came back", size, len(got))
	}
	err := p.Send(make([]byte, MaxMessageBytes+1))
	assert.Check(t, errors.Is(err, unix.EMSGSIZE), "too long: %v", err)
	path := filepath.Join(t.TempDir(), "file")
	testenv.WriteFile(t, path, []byte("contents"))
	assert.NilError(t, p.Send([]byte("open "+path)))
	_, fd, err := p.Receive(time.Now().Add(deadline))
	assert.Assert(t, err == nil && fd >= 0, "%d, %v", fd, err)
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	got, err := io.ReadAll(file)
	assert.Check(t, err == nil && string(got) == "contents", "%q, %v", got, err)
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	assert.Check(t, err == nil && flags&unix.FD_CLOEXEC != 0, "the descriptor is not close-on-exec: %v", err)
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	return len(entries)
}

// What a worker may not send is no message, and costs no descriptors: an empty message with descriptors, which
// looks like the end of the worker; one that is longer than may be; one with too many descriptors.
func TestMalformedMessages(t *testing.T) {
	p := start(t)
	p.ask(t, "hello")
	before := openDescriptors(t)
	for _, message := range slices.Repeat([]string{"empty", "long", "descriptors of others"}, 3) {
		assert.NilError(t, p.Send([]byte(message)))
		got, fd, err := p.Receive(time.Now().Add(deadline))
		assert.Check(t, errors.Is(err, ErrEnded) && errors.Is(err, unix.EMSGSIZE) == (message != "empty") &&
			got == nil && fd < 0, "%s: %d bytes, %d, %v", message, len(got), fd, err)
	}
	after := openDescriptors(t)
	assert.Check(t, after == before, "%d descriptors before, %d after", before, after)
}

// Nor does a worker take a message that was cut off. The next one is whole.
func TestMalformedRequests(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fds[0])
	assert.NilError(t, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, channelBufferBytes))
	agent := &Conn{fd: fds[0]}
	worker, err := newConn(fds[1])
	assert.NilError(t, err)
	defer worker.socket.Close()
	for name, receive := range map[string]func() ([]byte, error){
		"Receive": worker.Receive,
		"ReceiveDescriptors": func() ([]byte, error) {
			message, _, err := worker.ReceiveDescriptors()
			return message, err
		},
	} {
		assert.NilError(t, agent.Send(make([]byte, MaxMessageBytes+1), -1))
		assert.NilError(t, agent.Send(make([]byte, MaxMessageBytes), -1))
		message, err := receive()
		assert.Check(t, message == nil && err == unix.EMSGSIZE, "%s: %d bytes, %v", name, len(message), err)
		message, err = receive()
		assert.Check(t, len(message) == MaxMessageBytes && err == nil, "%s: %d bytes, %v", name, len(message), err)
	}
}

// Descriptors arrive in their order, and none stays open.
func TestSendDescriptors(t *testing.T) {
	p := start(t)
	before := p.ask(t, "descriptors")
	var fds []int
	var want string
	for i := range MaxDescriptors {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		assert.NilError(t, err)
		defer unix.Close(fd)
		text := fmt.Sprintf("%d;", i)
		_, err = unix.Write(fd, []byte(text))
		assert.NilError(t, err)
		fds, want = append(fds, fd), want+text
	}
	err := p.SendDescriptors([]byte("contents"), append(fds, fds[0]))
	assert.Check(t, errors.Is(err, unix.EMSGSIZE), "sending too many: %v", err)
	assert.NilError(t, p.SendDescriptors([]byte("contents"), fds))
	answer, _, err := p.Receive(time.Now().Add(deadline))
	assert.Check(t, err == nil && string(answer) == want, "contents %q, %v, want %q", answer, err, want)
	after := p.ask(t, "descriptors")
	assert.Check(t, after == before, "descriptors before:\n%s\nafter:\n%s", before, after)
}

// No other process of a worker's user may read its memory or trace it, not even the one that started it.
func TestNotTraced(t *testing.T) {
	testenv.NeedRoot(t)
	const nobody = 65534
	holder := exec.Command("/proc/self/exe")
	holder.Env = append(os.Environ(), holderVariable+"=trace")
	holder.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var stderr bytes.Buffer
	holder.Stderr = &stderr
	out, err := holder.Output()
	assert.NilError(t, err, "%s", &stderr)
	assert.Check(t, string(out) == "true true\nfalse false\n", "a common process and a worker: %s", out)
}

// Workers end with the process that started them, however that ends.
func TestEndWithAgent(t *testing.T) {
	holder := exec.Command("/proc/self/exe")
	holder.Env = append(os.Environ(), holderVariable+"=1")
	var stdout, stderr bytes.Buffer
	read, write, err := os.Pipe()
	assert.NilError(t, err)
	defer read.Close()
	holder.Stdout, holder.Stderr = write, &stderr
	assert.NilError(t, holder.Start())
	write.Close()
	var pid int
	_, err = fmt.Fscan(read, &pid)
	assert.NilError(t, err, "%s%s", &stdout, &stderr)
	assert.NilError(t, holder.Process.Kill())
	_ = holder.Wait()
	testenv.Poll(t, deadline, "the end of the worker", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}

func newPool(t *testing.T) *Pool {
	t.Helper()
	pool, err := NewPool("/proc", testKind, new(Counters))
	assert.NilError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func (p *Pool) ask(owner Owner, timeout time.Duration, message string) (answer string, err error) {
	err = p.Call(owner, timeout, []byte(message), func(b []byte, _ int) error {
		answer = string(b)
		return nil
	})
	return answer, err
}

// A worker that hangs is killed and replaced; one that has ended meanwhile is not noticed.
func TestPoolReplaces(t *testing.T) {
	pool := newPool(t)
	owner := Owner{PID: 1, User: "1000"}
	echo := func() {
		t.Helper()
		answer, err := pool.ask(owner, deadline, "hello")
		assert.Check(t, err == nil && answer == "hello", "%q, %v", answer, err)
	}
	echo()
	_, err := pool.ask(owner, time.Second, "hang") // in which it gets to that
	assert.Check(t, errors.Is(err, ErrTimeout), "one that hangs: %v", err)
	testenv.Poll(t, deadline, "the end of the worker", func() bool { return pool.Stats().Hung == 0 })
	echo()
	pool.mu.Lock()
	idle := pool.idle[len(pool.idle)-1].PID()
	pool.mu.Unlock()
	assert.NilError(t, unix.Kill(idle, unix.SIGKILL))
	echo()
	_, err = pool.ask(owner, deadline, "exit")
	assert.Check(t, errors.Is(err, ErrEnded), "one that ends: %v", err)
	echo()
	c := pool.counters
	if c.TimedOut.Load() != 1 || c.Ended.Load() < 2 || c.Refused.Load() != 0 {
		t.Errorf("%d timed out, %d ended, %d refused", c.TimedOut.Load(), c.Ended.Load(), c.Refused.Load())
	}
	started, ended := c.Started.Load(), c.Ended.Load()
	err = pool.Call(owner, deadline, make([]byte, MaxMessageBytes+1), nil)
	assert.Check(t, errors.Is(err, unix.EMSGSIZE) && c.Started.Load() == started && c.Ended.Load() == ended,
		"too long a request: %v, and it cost a worker", err)
	err = pool.Call(owner, deadline, []byte("x"), func([]byte, int) error { return io.EOF })
	assert.Check(t, err == io.EOF, "an error of the caller: %v", err)
}

// A request waits for the worker that serves another one, for a while. Workers that nobody needs any more end, but
// for one.
func TestPoolShares(t *testing.T) {
	pool := newPool(t)
	pool.patience = time.Hour
	owner := Owner{PID: 1, User: "1000"}
	wanted := func() int { pool.mu.Lock(); defer pool.mu.Unlock(); return len(pool.wanted) }
	var others sync.WaitGroup
	err := pool.Call(owner, deadline, []byte("first"), func([]byte, int) error {
		for range maxBusyOfUser - 1 {
			others.Go(func() {
				answer, err := pool.ask(owner, deadline, "other")
				assert.Check(t, err == nil && answer == "other", "%q, %v", answer, err)
			})
		}
		testenv.Poll(t, deadline, "requests that wait", func() bool { return wanted() == maxBusyOfUser-1 })
		return nil
	})
	assert.NilError(t, err)
	others.Wait()
	assert.Check(t, pool.counters.Started.Load() == 1 && wanted() == 0, "%d workers", pool.counters.Started.Load())

	pool.patience = 0
	err = pool.Call(owner, deadline, []byte("first"), func([]byte, int) error {
		_, err := pool.ask(owner, deadline, "other")
		return err
	})
	assert.NilError(t, err)
	assert.Check(t, pool.Stats().Running == 2 && pool.counters.Started.Load() == 2 && wanted() == 0, "%+v",
		pool.Stats())
	pool.mu.Lock()
	for i := range pool.idle {
		pool.idle[i].since = time.Now().Add(-2 * idleTime)
	}
	pool.mu.Unlock()
	_, err = pool.ask(owner, deadline, "last")
	assert.Check(t, err == nil && pool.Stats().Running == keepIdle, "%v, %+v", err, pool.Stats())
}

// A worker gets no huge pages.
func TestNoHugePages(t *testing.T) {
	testenv.NeedHugePages(t)
	status := start(t).ask(t, "status")
	assert.Check(t, strings.Contains(status, "\nTHP_enabled:\t0\n"), status)
}

// Timers of a worker that serves one request at a time may be late, and those of others, and of whoever starts it, are
// not.
func TestTimersLate(t *testing.T) {
	slack := func(pid int) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid))
		assert.NilError(t, err)
		return strings.TrimSpace(string(text))
	}
	late := fmt.Sprint(timersLate.Nanoseconds())
	for _, single := range []bool{true, false} {
		kind := testKind
		kind.Single = single
		spawner, err := NewSpawner("/proc", kind)
		assert.NilError(t, err)
		worker, err := spawner.Start()
		assert.NilError(t, err)
		assert.Check(t, (slack(worker.PID()) == late) == single && slack(os.Getpid()) != late, slack(worker.PID()))
		worker.Kill()
		<-worker.Ended()
		spawner.Close()
	}
}

// What the runtime polls for a worker is ready when a message has come, or the worker has ended, and not when
// the worker has taken one.
func TestPolledForMessages(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	s, err := newSocket(fds[0])
	assert.NilError(t, err)
	defer s.Close()
	ready := func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.epoll.Fd()), Events: unix.POLLIN}}, 0)
		assert.NilError(t, err)
		return n == 1
	}
	var taken [8]byte
	assert.NilError(t, s.send([]byte("request"), nil, time.Minute))
	n, err := unix.Read(fds[1], taken[:])
	assert.Check(t, err == nil && n == len("request") && !ready(), "%v", err)
	_, err = unix.Write(fds[1], []byte("answer"))
	assert.Check(t, err == nil && ready(), "%v", err)
	n, _, _, err = s.receive(taken[:], nil)
	assert.Check(t, err == nil && string(taken[:n]) == "answer" && !ready(), "%v", err)
	assert.NilError(t, unix.Close(fds[1]))
	assert.Check(t, ready())
	n, _, _, err = s.receive(taken[:], nil)
	assert.Check(t, err == nil && n == 0, "%d, %v", n, err)
}

// A message waits for room until its time is over.
func TestSendWaits(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fds[1])
	s, err := newSocket(fds[0])
	assert.NilError(t, err)
	defer s.Close()
	message := make([]byte, 4096)
	for err == nil {
		err = s.send(message, nil, time.Millisecond)
	}
	assert.Check(t, errors.Is(err, os.ErrDeadlineExceeded), err)
	go func() {
		for n := len(message); n == len(message); { // up to the last
			n, _ = unix.Read(fds[1], message)
		}
	}()
	assert.NilError(t, s.send([]byte{1}, nil, time.Hour))
}

// Requests that hang occupy the workers of their user alone, whose other requests wait for their
// turn, and no others.
func TestPoolByUser(t *testing.T) {
	pool := newPool(t)
	var hanging sync.WaitGroup
	for i := range maxBusyOfUser {
		hanging.Go(func() { _, _ = pool.ask(Owner{PID: i + 1, User: "1000"}, time.Hour, "hang") })
	}
	testenv.Poll(t, deadline, "all workers of the user", func() bool { return pool.Stats().Running == maxBusyOfUser })
	waited := make(chan error, 1)
	go func() {
		_, err := pool.ask(Owner{PID: 99, User: "1000"}, deadline, "hello")
		waited <- err
	}()
	for range 100 {
		answer, err := pool.ask(Owner{PID: 100, User: "1001"}, deadline, "hello")
		assert.Assert(t, err == nil && answer == "hello", "another user: %q, %v", answer, err)
	}
	testenv.Poll(t, deadline, "the request to wait", func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return len(pool.waiting) == 1
	})
	pool.Close()
	hanging.Wait()
	err := <-waited
	assert.Check(t, errors.Is(err, ErrClosed), "a request that waits at the end: %v", err)
}

// A kind may say how many requests are served at a time, half of them of one user.
func TestPoolOfAFew(t *testing.T) {
	kind := testKind
	kind.Busy = 4
	pool, err := NewPool("/proc", kind, new(Counters))
	assert.NilError(t, err)
	t.Cleanup(pool.Close)
	for range 2 {
		for _, user := range []User{"1000", "1001"} {
			assert.Check(t, pool.mayServe(user))
			pool.begin(user)
		}
		assert.Check(t, pool.mayServe("1000") == (pool.busy < 4))
	}
	assert.Check(t, !pool.mayServe("1001") && !pool.mayServe("1002"), "more than four")
	pool.leave("1000")
	assert.Check(t, pool.mayServe("1000") && pool.mayServe("1002") && !pool.mayServe("1001"))
}

// A process whose worker hangs gets no other, nor does a user of too many; when they have ended,
// both do.
func TestPoolHung(t *testing.T) {
	pool := newPool(t)
	hang := func(owner Owner) { pool.blame.add(owner, 1) } // as in a system call that cannot be interrupted
	refused := func(owner Owner) bool {
		_, err := pool.ask(owner, deadline, "hello")
		assert.Check(t, err == nil || errors.Is(err, ErrHung) || errors.Is(err, ErrBusy), "%+v: %v", owner, err)
		return err != nil
	}
	first, other, stranger := Owner{1, "1000"}, Owner{2, "1000"}, Owner{3, "1001"}
	hang(first)
	assert.Check(t, refused(first) && !refused(other) && !refused(stranger),
		"one hangs: that process is not the only one that is refused")
	for i := range maxHungOfUser - 1 {
		hang(Owner{100 + i, "1000"})
	}
	assert.Check(t, refused(first) && refused(other) && !refused(stranger),
		"many of a user hang: that user is not the only one that is refused")
	for i := maxHungOfUser; i < maxHung; i++ {
		hang(Owner{100 + i, User(strconv.Itoa(2000 + i))})
	}
	assert.Check(t, refused(Owner{4, User(strconv.Itoa(2000 + maxHungOfUser))}) && !refused(stranger),
		"as many hang as may: those who cause it are not the only ones that are refused")
	for i := maxHung; i < 2*maxHung; i++ {
		hang(Owner{100 + i, User(strconv.Itoa(2000 + i))})
	}
	assert.Check(t, !refused(stranger) && refused(Owner{5, "1002"}),
		"twice as many hang: those who were never served are not the only others that are refused")
	for i := 2 * maxHung; i < 4*maxHung; i++ {
		hang(Owner{100 + i, User(strconv.Itoa(2000 + i))})
	}
	assert.Check(t, refused(stranger), "there is no bound")
	for owner := range maps.Clone(pool.blame.hungOf) {
		pool.blame.add(owner, -1)
	}
	assert.Check(t, !refused(first) && !refused(other) && !refused(stranger), "still refused when none hangs any more")
	b := &pool.blame
	assert.Check(t, b.Hung() == 0 && len(b.hungOf) == 0 && len(b.hungOfUser) == 0 && len(pool.busyOf) == 0, "%+v", b)
}

// A request that ends its worker ends no more than one other.
func TestPoolRequestThatEndsWorkers(t *testing.T) {
	pool := newPool(t)
	var asking sync.WaitGroup
	for i := range maxIdle {
		asking.Go(func() { _, _ = pool.ask(Owner{PID: i + 1, User: User(strconv.Itoa(i))}, deadline, "hello") })
	}
	asking.Wait()
	_, err := pool.ask(Owner{PID: 1, User: "1000"}, deadline, "exit")
	assert.Check(t, errors.Is(err, ErrUnavailable), err)
	n := pool.counters.Ended.Load()
	assert.Check(t, n <= 2, "%d workers ended", n)
}

// Those who had a request time out have one worker each and half of all together, and of those who
// wait the one with the fewest is next.
func TestPoolSuspects(t *testing.T) {
	pool := newPool(t)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	user := func(i int) User { return User(strconv.Itoa(i)) }
	for i := range maxBusy {
		pool.blame.Late(user(i))
	}
	for i := range maxBusy {
		if may := pool.mayServe(user(i)); may != (i < maxBusy/2) {
			t.Fatalf("%d suspects are served: another one is, %v", i, may)
		} else if may {
			pool.begin(user(i))
		}
	}
	assert.Check(t, !pool.mayServe(user(0)), "a suspect gets a second worker")
	for i := range maxBusy / 2 {
		if honest := user(maxBusy + i/maxBusyOfUser); pool.mayServe(honest) {
			pool.begin(honest)
		} else {
			t.Fatalf("beside suspects, %d requests of others are served", i)
		}
	}
	first, second := &waiter{user(maxBusy), make(chan struct{})}, &waiter{user(9999), make(chan struct{})}
	pool.waiting = []*waiter{first, second}
	pool.mu.Unlock()
	pool.leave(user(maxBusy))
	pool.mu.Lock()
	select {
	case <-second.ready:
	default:
		t.Error("of those who wait, the one who is served most is next")
	}
	pool.waiting = nil
}
