package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/kernels/console"
)

// mounts are the file systems of the guest, in their order. Those that a kernel does not have are
// left out, except the ones that nothing works without.
var mounts = []struct {
	path, kind, options string
	necessary           bool
}{
	{"/proc", "proc", "", true},
	{"/sys", "sysfs", "", true},
	{"/dev", "devtmpfs", "", true},
	{"/dev/pts", "devpts", "", true},
	{"/dev/shm", "tmpfs", "", true},
	{"/tmp", "tmpfs", "mode=1777", true},
	{"/run", "tmpfs", "mode=755", true},
	{"/sys/fs/bpf", "bpf", "mode=700", false},
	{"/sys/kernel/tracing", "tracefs", "", false},
	{"/sys/kernel/security", "securityfs", "", false},
}

// settings are of the kernel, below /proc/sys/kernel.
var settings = map[string]string{
	// By default, the kernel lowers the rate of samples when they take too much of the CPU, down to
	// nothing where it is emulated.
	"perf_cpu_time_max_percent": "0",
	// The default of Linux, with which CAP_PERFMON suffices to sample. That of Debian's kernels, 3,
	// TestKernelOptions sets.
	"perf_event_paranoid": "2",
}

// maxOutput is the longest line of a step that is reported in one event. Others are divided.
const maxOutput = 4096

// A guest is process 1 of the machine that was booted.
type guest struct {
	mu      sync.Mutex
	console io.Writer
	cgroups bool // were mounted
}

// runGuest runs the plan and turns the machine off. It does not return.
func runGuest() {
	g := &guest{console: os.Stdout}
	if err := g.run(); err != nil {
		fmt.Println("kernels:", err)
	}
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Println("kernels: turning the machine off:", err)
	select {}
}

func (g *guest) run() error {
	if err := prepare(); err != nil {
		return err
	}
	text, err := os.ReadFile(planFile)
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("parsing %s: %w", planFile, err)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	g.send(event{Release: strings.TrimSpace(string(release))})
	for _, s := range p.Steps {
		if !s.CgroupV1 && !g.cgroups {
			g.cgroups = true
			_ = unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "")
		}
		g.step(s)
	}
	if err := g.reportLog(); err != nil {
		return fmt.Errorf("reading the kernel's log: %w", err)
	}
	g.send(event{Done: true})
	return nil
}

// prepare makes of the bare machine what programs expect.
func prepare() error {
	// Messages of the kernel, which are written beside the terminal's driver, would break lines of
	// ours. A panic is printed in any case.
	const setConsoleLevel, emergencies = 8, 1
	if _, _, errno := unix.Syscall(unix.SYS_SYSLOG, setConsoleLevel, 0, emergencies); errno != 0 {
		return fmt.Errorf("setting the level of the console: %w", errno)
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.path, 0o755); err != nil && m.necessary {
			return err
		}
		if err := unix.Mount(m.kind, m.path, m.kind, 0, m.options); err != nil && m.necessary {
			return fmt.Errorf("mounting %s: %w", m.path, err)
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
	} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	for name, value := range settings {
		if err := os.WriteFile("/proc/sys/kernel/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	return loopback()
}

// loadModules loads all modules in modulesDir, which need no others.
func loadModules() error {
	files, err := filepath.Glob(modulesDir + "/*.ko")
	if err != nil {
		return err
	}
	for _, file := range files {
		module, err := os.ReadFile(file)
		if err == nil {
			err = unix.InitModule(module, "")
		}
		if err != nil {
			return fmt.Errorf("loading %s: %w", file, err)
		}
	}
	return nil
}

// loopback brings the network device up that 127.0.0.1 belongs to.
func loopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing up lo: %w", err)
	}
	return nil
}

func (g *guest) send(e event) {
	line := console.Line(e)
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = g.console.Write(line)
}

// step runs a step, and ends every process that it leaves behind.
func (g *guest) step(s step) {
	began := time.Now()
	err := g.command(s)
	e := &ending{Seconds: time.Since(began).Seconds()}
	if err != nil {
		e.Error = err.Error()
	}
	g.send(event{Step: s.Name, Ended: e})
}

func (g *guest) command(s step) error {
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), s.Env...)
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	var copied sync.WaitGroup
	copied.Go(func() { g.copyOutput(s.Name, read) })
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	var late atomic.Bool
	timer := time.AfterFunc(s.Timeout, func() {
		late.Store(true)
		_ = cmd.Process.Kill()
	})
	err = reapUntil(cmd.Process.Pid)
	timer.Stop()
	if late.Load() {
		err = fmt.Errorf("not done after %v", s.Timeout)
	}
	endOthers() // who has the other end of the pipe
	copied.Wait()
	return err
}

// reapUntil waits for the end of a child, and for that of all orphans before, which are children of
// process 1.
func reapUntil(child int) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case pid != child:
		case status.Signaled():
			return fmt.Errorf("signal: %v", status.Signal())
		case status.ExitStatus() != 0:
			return fmt.Errorf("exit status %d", status.ExitStatus())
		default:
			return nil
		}
	}
}

func (g *guest) copyOutput(name string, from io.Reader) {
	reader := bufio.NewReaderSize(from, maxOutput)
	for {
		line, err := reader.ReadSlice('\n')
		if len(line) > 0 {
			g.send(event{Step: name, Output: string(line)})
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// endOthers ends every process but this one, and returns when they have ended.
func endOthers() {
	for {
		// Process 1 is spared by the kernel.
		_ = unix.Kill(-1, unix.SIGKILL)
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			return
		}
	}
}
