package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// inContainer calls f on a thread with a mount namespace, and perhaps a root, of its own, where
// /etc/machine-id is id. The host's procfs is mounted at the proc root that f is given.
func inContainer(t *testing.T, id string, chroot bool, f func(procRoot string)) {
	t.Helper()
	testenv.NeedRoot(t)
	dir := t.TempDir()
	for _, below := range []string{"etc", "host/proc"} {
		assert.NilError(t, os.MkdirAll(filepath.Join(dir, below), 0o755))
	}
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "etc/machine-id"), []byte(id+"\n"), 0o644))
	enter := func() (procRoot string, err error) {
		procRoot = filepath.Join(dir, "host/proc")
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil { // and the root directory is ours alone
			return "", err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return "", err
		}
		if err := unix.Mount("/proc", procRoot, "", unix.MS_BIND, ""); err != nil {
			return "", err
		}
		if chroot {
			return "/host/proc", unix.Chroot(dir)
		}
		return procRoot, unix.Mount(filepath.Join(dir, "etc"), "/etc", "", unix.MS_BIND, "")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		procRoot, err := enter()
		if err == nil {
			f(procRoot)
		}
		done <- err
	}()
	err := <-done
	assert.NilError(t, err)
}

const imageID = "ffeeddccbbaa99887766554433221100"

// Whatever is at /etc/machine-id where we are, as an image brings it, that of the host's first
// process counts. (Here it is another process that stands for it: who may look at the first is not
// for a test to say.)
func TestHostIDInContainer(t *testing.T) {
	const hostID = "00112233445566778899aabbccddeeff"
	first := firstProcess(t, hostID)
	for name, chroot := range map[string]bool{"mount namespace": false, "chroot": true} {
		inContainer(t, imageID, chroot, func(procRoot string) {
			text, err := os.ReadFile("/etc/machine-id")
			assert.Check(t, err == nil && string(text) == imageID+"\n", "%s: our own id is %q, %v", name, text, err)
			host := filepath.Join(filepath.Dir(procRoot), "first") // a proc root with one process
			assert.Check(t, os.Mkdir(host, 0o755))
			assert.Check(t, os.Symlink(filepath.Join(procRoot, strconv.Itoa(first)), filepath.Join(host, "1")))
			got := HostID(host)
			assert.Check(t, got == hostID, "%s: %q, want %q", name, got, hostID)
		})
	}
}

// firstProcess starts a process with a machine-id in its mount namespace.
func firstProcess(t *testing.T, id string) (pid int) {
	t.Helper()
	testenv.NeedRoot(t)
	etc := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(etc, "machine-id"), []byte(id+"\n"), 0o644))
	command := exec.Command(testenv.NeedTool(t, "unshare"), "--mount", "sh", "-c",
		`mount --bind "$0" /etc && exec sleep infinity`, etc)
	assert.NilError(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	path := fmt.Sprintf("/proc/%d/root/etc/machine-id", command.Process.Pid)
	testenv.Poll(t, deadline, path, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == id+"\n"
	})
	return command.Process.Pid
}

// The host is a directory here.
func TestHostID(t *testing.T) {
	const hostID = "00112233445566778899aabbccddeeff"
	elsewhere := filepath.Join(t.TempDir(), "id")
	assert.NilError(t, os.WriteFile(elsewhere, []byte(hostID), 0o644))
	for name, c := range map[string]struct {
		make func(root string) error
		want string
	}{
		"file": {func(root string) error { return os.WriteFile(root+"/etc/machine-id", []byte(hostID+"\n"), 0o444) },
			hostID},
		"no file": {func(root string) error { return nil }, ""},
		"before the first boot": {func(root string) error {
			return os.WriteFile(root+"/etc/machine-id", []byte(uninitialized+"\n"), 0o444)
		}, ""},
		"link below the root": {func(root string) error {
			if err := os.Symlink("/id", root+"/etc/machine-id"); err != nil {
				return err
			}
			return os.WriteFile(root+"/id", []byte(hostID), 0o444)
		}, hostID},
		"link out of the root": {func(root string) error { return os.Symlink(elsewhere, root+"/etc/machine-id") }, ""},
		"directory":            {func(root string) error { return os.Mkdir(root+"/etc/machine-id", 0o755) }, ""},
		"pipe":                 {func(root string) error { return unix.Mkfifo(root+"/etc/machine-id", 0o644) }, ""},
		"not to be seen":       {os.RemoveAll, imageID},
	} {
		t.Run(name, func(t *testing.T) {
			procRoot := t.TempDir()
			root := filepath.Join(procRoot, "1/root")
			assert.NilError(t, os.MkdirAll(root+"/etc", 0o755))
			assert.NilError(t, c.make(root))
			inContainer(t, imageID, false, func(string) {
				got := HostID(procRoot)
				assert.Check(t, got == c.want, "%q, want %q", got, c.want)
			})
		})
	}
}
