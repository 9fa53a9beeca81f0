// Package deploy has everything to run the agent on hosts and clusters, and tests that use it.
package deploy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// deadline is how long anything may take that is to happen at once, on a machine that is busy with
// other tests.
const deadline = 60 * time.Second

// enterHost simulates a host in namespaces of its own (pid, mount, network, cgroup) and a separate
// cgroup. Process 1 is a shell script, with dir as $1, that finally executes program. So an agent
// sees only what the test starts there, and a service manager manages nothing else. The kernel's
// settings, which are not namespaced, are read-only. Once process 1 is that program, the calling
// goroutine starts processes and opens files on that host, which ends with the goroutine.
func enterHost(t *testing.T, script, program, dir string) {
	t.Helper()
	testenv.NeedRoot(t)
	unshare := testenv.NeedTool(t, "unshare")
	cgroup := testenv.Cgroup(t, fmt.Sprintf("correlator-deploy-%d", os.Getpid()))
	t.Cleanup(func() { removeCgroups(t, cgroup) })
	const isolate = `set -e
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs -o mode=755 tmpfs /run
`
	cmd := exec.Command(unshare, "--mount", "--uts", "--ipc", "--net", "--cgroup", "--pid", "--fork", "--kill-child",
		"--mount-proc", "sh", "-c", isolate+script, "sh", dir)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the host with the thread
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: cgroup, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	pid := 0
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid)
	testenv.Poll(t, deadline, "process 1 of the host to be "+program, func() bool {
		var err error
		if pid, err = strconv.Atoi(strings.TrimSpace(string(testenv.ReadFile(t, children)))); err != nil {
			return false // not yet
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err == nil && string(name) == program+"\n"
	})
	wd, err := os.Getwd()
	assert.NilError(t, err)
	assert.NilError(t, unix.Unshare(unix.CLONE_FS))
	fd, err := unix.PidfdOpen(pid, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	assert.NilError(t, unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWNET))
	assert.NilError(t, unix.Chdir(wd))
}

// removeCgroups removes all cgroups below a directory, once their last processes have left. It does
// not use /proc, because the caller may have entered a host whose /proc does not show this process.
func removeCgroups(t *testing.T, parent int) {
	fd, err := unix.Openat(parent, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	dir := os.NewFile(uintptr(fd), "cgroup")
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	assert.Check(t, err)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		child, err := unix.Openat(fd, entry.Name(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		removeCgroups(t, child)
		unix.Close(child)
		testenv.Poll(t, deadline, "an empty cgroup", func() bool {
			return !errors.Is(unix.Unlinkat(fd, entry.Name(), unix.AT_REMOVEDIR), unix.EBUSY)
		})
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s %v: %v\n%s", name, args, err, out)
	return strings.TrimSpace(string(out))
}

// startProcesses starts a process of each kind that needs a capability of its own to be served.
func startProcesses(t *testing.T) map[string]*demo.Process {
	t.Helper()
	another := demo.Placement{UID: 4711, GID: 4711}
	apart := demo.Placement{UID: 4711, GID: 4711, PrivateTmp: true}
	processes := map[string]*demo.Process{
		"of root":         demo.Start(t, demo.Options{Busy: 1}),
		"of another user": demo.Start(t, demo.Options{Busy: 1, Placement: another}),
		"without library": demo.Start(t, demo.Options{Busy: 1, Placement: another}),
		"in a container":  demo.Start(t, demo.Options{Busy: 1, Placement: apart}),
	}
	processes["without library"].UnlinkLibrary()
	return processes
}

// served waits until each process is registered and gets its samples.
func served(t *testing.T, processes map[string]*demo.Process) {
	t.Helper()
	for name, p := range processes {
		p.Registration(1)
		p.ReportWhen("samples of the process "+name, func(report demo.Report) bool { return report.Samples >= 5 })
	}
}
