package receiver

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/opencensus/internal/client"
)

// clientVariable makes the test binary a client of the socket that it names.
const clientVariable = "OPENCENSUS_TEST_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(clientVariable); path != "" {
		if err := runClient(path); err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runClient sends one span as this process, and one as another one, tells its pid, and runs until
// its standard input ends.
func runClient(path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := client.Client{PID: uint32(os.Getpid())}
	data := c.TraceExport(c.RequestInit(nil, "8.2.35", "4.2.35"), span)
	c.PID += 1000
	if _, err := conn.Write(c.TraceExport(data, span)); err != nil {
		return err
	}
	fmt.Println(os.Getpid())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// span is a list with a span.
const span = `[{"traceId":"b50ab099ad0547a980b49f35d6864b5c","spanId":"44ae089","name":"main"}]`

// The process of a span is the one that the kernel knows.
func TestPeers(t *testing.T) {
	testenv.NeedRoot(t)
	container := strings.Repeat("0123456789abcdef", 4)
	for name, c := range map[string]struct {
		flags     uintptr
		container bool
	}{
		"in our pid namespace": {},
		"in a container":       {flags: syscall.CLONE_NEWPID, container: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLab(t, Config{}, Options{})
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), clientVariable+"="+l.Path())
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: c.flags}
			if c.container {
				cmd.SysProcAttr.UseCgroupFD = true
				cmd.SysProcAttr.CgroupFD = testenv.Cgroup(t, "/opencensus-test/docker-"+container+".scope")
			}
			_, stdout := testenv.Start(t, cmd)
			var own int
			_, err := fmt.Fscanln(stdout, &own)
			assert.NilError(t, err)
			if c.flags != 0 && own != 1 {
				t.Fatalf("pid %d in a pid namespace of its own", own)
			}
			l.wait(`processed_messages_total{type="trace_export"}`, 2)
			l.finish()

			exe, err := os.Executable()
			assert.NilError(t, err)
			first := map[string]string{"process.pid": strconv.Itoa(cmd.Process.Pid),
				"process.executable.name": filepath.Base(exe), "process.runtime.version": "8.2.35"}
			other := map[string]string{"process.pid": "", // whatever it says
				"process.executable.name": filepath.Base(exe), "process.runtime.version": "8.2.35"}
			if c.container {
				first["container.id"], other["container.id"] = container, container
			}
			l.wantResources(first, other)
		})
	}
}

// wantResources compares some attributes of the resources that were exported, in any order.
func (l *lab) wantResources(want ...map[string]string) {
	l.Helper()
	var got []map[string]string
	for _, r := range l.resourceSpans(l) {
		attributes := make(map[string]string)
		for _, kv := range r.Resource.Attributes {
			value := kv.Value.GetStringValue()
			if value == "" {
				value = strconv.FormatInt(kv.Value.GetIntValue(), 10)
			}
			attributes[kv.Key] = value
		}
		got = append(got, attributes)
	}
	if len(got) != len(want) {
		l.Fatalf("%d resources, want %d: %v", len(got), len(want), got)
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			matches := true
			for key, value := range w {
				matches = matches && g[key] == value
			}
			found = found || matches
		}
		if !found {
			l.Errorf("no resource with %v: %v", w, got)
		}
	}
}

// Of a process that has gone nothing is said but its pid, whoever has that now.
func TestPeerGone(t *testing.T) {
	path := filepath.Join(openDir(t), "socket")
	listener, err := net.Listen("unix", path)
	assert.NilError(t, err)
	defer listener.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), clientVariable+"="+path)
	stdin, stdout := testenv.Start(t, cmd)
	_, err = stdout.Read(make([]byte, 1))
	assert.NilError(t, err)
	stdin.Close()
	assert.NilError(t, cmd.Wait())
	conn, err := listener.Accept()
	assert.NilError(t, err)
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	assert.NilError(t, err)
	var got peer
	assert.NilError(t, raw.Control(func(fd uintptr) { got = identify("/proc", int(fd), time.Now()) }))
	want := peer{uid: uint32(os.Geteuid()), connected: cmd.Process.Pid}
	assert.Check(t, got == want, "%+v, want %+v", got, want)
}

// dialAs connects as another user, as the kernel sees it.
func (l *lab) dialAs(uid int) net.Conn {
	l.Helper()
	testenv.NeedRoot(l)
	var conn net.Conn
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		if errno != 0 {
			done <- errno
			return
		}
		var err error
		conn, err = net.Dial("unix", l.Path())
		done <- err
	}()
	if err := <-done; err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { conn.Close() })
	return conn
}
