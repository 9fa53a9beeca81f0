package messaging

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Some tests need processes with other ids, roots and namespaces. They run this test binary again,
// which then runs the helper that helperVariable describes instead of tests.
const helperVariable = "MESSAGING_TEST_HELPER"

// helper is the steps of such a process; empty ones are skipped.
type helper struct {
	Mount     string       // mount an empty file system here
	Chroot    string       // change the root to this directory
	BindMount [][2]string  // mount the second path of each at the first
	Assume    *Credentials // become this user
	NoOpenat2 unix.Errno   // make openat2 fail with this error
	Supported bool         // print the result of Supported
	Connect   []string     // print for each path the error of a plain connect
	Dial      []Credentials
	DialPath  string // print the result of Dial for each of Dial
	Bind      string // bind a socket here, print "bound", then each datagram in hex
	Shown     bool   // print instead what is shown of each datagram's sender
}

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(helperVariable); ok {
		var h helper
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			panic(err)
		}
		if err := h.main(); err != nil {
			fmt.Fprintln(os.Stderr, "helper:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func (h helper) main() error {
	go func() { // exits when the test has ended
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if h.Mount != "" || h.BindMount != nil {
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("making mounts private: %w", err)
		}
	}
	if h.Mount != "" {
		if err := unix.Mount("test", h.Mount, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounting: %w", err)
		}
	}
	if h.Chroot != "" {
		if err := errors.Join(unix.Chroot(h.Chroot), unix.Chdir("/")); err != nil {
			return fmt.Errorf("changing root: %w", err)
		}
	}
	for _, paths := range h.BindMount {
		if err := unix.Mount(paths[1], paths[0], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", paths[1], paths[0], err)
		}
	}
	if h.Assume != nil { // with package syscall: all threads
		if err := errors.Join(syscall.Setgroups(h.Assume.groups()),
			syscall.Setgid(int(h.Assume.GID)), syscall.Setuid(int(h.Assume.UID))); err != nil {
			return fmt.Errorf("becoming %v: %w", *h.Assume, err)
		}
	}
	if h.NoOpenat2 != 0 {
		if err := refuseOpenat2(h.NoOpenat2); err != nil {
			return err
		}
	}
	if h.Supported {
		fmt.Println(Supported())
	}
	for _, path := range h.Connect {
		fmt.Println(plainConnect(path))
	}
	for _, creds := range h.Dial {
		if err := h.dial(creds); err != nil {
			return err
		}
	}
	if h.Bind != "" {
		return h.receive()
	}
	return nil
}

func (h helper) dial(creds Credentials) error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = Dial("/proc", root, h.DialPath, creds)
	switch {
	case errors.Is(err, ErrCredentials):
		fmt.Println("ErrCredentials")
	case errors.Is(err, ErrPermission):
		fmt.Println("ErrPermission")
	case errors.Is(err, ErrNoOpenat2):
		fmt.Println("ErrNoOpenat2")
	default:
		fmt.Println(err)
	}
	return nil
}

func (h helper) receive() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	os.Remove(h.Bind)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: h.Bind}); err != nil {
		return fmt.Errorf("binding %s: %w", h.Bind, err)
	}
	if h.Shown {
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, soPassPidfd, 1))
		if err != nil {
			fmt.Println(err)
			return nil
		}
	}
	fmt.Println("bound")
	if h.Shown {
		return receiveShown(fd)
	}
	buf := make([]byte, 1024)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(hex.EncodeToString(buf[:n]))
	}
}

// refuseOpenat2 makes openat2 fail as on a kernel without it, or under a container's seccomp
// filter.
func refuseOpenat2(errno unix.Errno) error {
	filter := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_OPENAT2},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up privileges: %w", err)
	}
	_, _, failure := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failure != 0 {
		return fmt.Errorf("setting seccomp filter: %w", failure)
	}
	return nil
}

func plainConnect(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

// child is a running helper.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	out *bufio.Scanner
}

// start runs a helper until the test ends.
func (h helper) start(t testing.TB, attr *syscall.SysProcAttr) *child {
	t.Helper()
	return h.startProgram(t, "/proc/self/exe", attr) // whose path other users might not reach
}

// startProgram runs a helper from a copy of the test binary.
func (h helper) startProgram(t testing.TB, program string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	config, err := json.Marshal(h)
	assert.NilError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), helperVariable+"="+string(config))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	c := &child{t: t, cmd: cmd, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		c.kill()
	})
	return c
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("helper ended early: %v", c.out.Err())
	}
	return c.out.Text()
}

// expect waits for these messages, one after the other.
func (c *child) expect(want ...Message) {
	c.t.Helper()
	for _, w := range want {
		b, err := hex.DecodeString(c.line())
		assert.NilError(c.t, err)
		got, err := decode(b)
		assert.Assert(c.t, err == nil && got == w, "received %+v (%v), want %+v", got, err, w)
	}
}

// root opens the root directory of the helper.
func (c *child) root() *os.File {
	c.t.Helper()
	return openRoot(c.t, "/proc/"+strconv.Itoa(c.cmd.Process.Pid)+"/root")
}

// credentials reads the filesystem ids of the helper from its status.
func (c *child) credentials() (creds Credentials) {
	c.t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/status")
	assert.NilError(c.t, err)
	return credentialsOf(c.t, string(status))
}

func credentialsOf(t testing.TB, status string) (creds Credentials) {
	t.Helper()
	number := func(text string) uint32 {
		n, err := strconv.ParseUint(text, 10, 32)
		assert.NilError(t, err)
		return uint32(n)
	}
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Uid:"):
			creds.UID = number(fields[4])
		case strings.HasPrefix(line, "Gid:"):
			creds.GID = number(fields[4])
		case strings.HasPrefix(line, "Groups:"):
			for _, group := range fields[1:] {
				creds.Groups = append(creds.Groups, number(group))
			}
		}
	}
	return creds
}
