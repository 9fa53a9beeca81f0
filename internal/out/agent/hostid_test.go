package agent

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// inContainer calls f on a thread with a mount namespace of its own, where /etc/machine-id is imageID.
func inContainer(t *testing.T, f func()) {
	t.Helper()
	testenv.NeedRoot(t)
	etc := t.TempDir()
	testenv.WriteFile(t, filepath.Join(etc, "machine-id"), imageID+"\n")
	done := make(chan error)
	go func() {
		runtime.LockOSThread()                // never unlocked: the thread ends
		err := unix.Unshare(unix.CLONE_NEWNS) // and the root directory is ours alone
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount(etc, "/etc", "", unix.MS_BIND, "")
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	assert.NilError(t, <-done)
}

const imageID = "ffeeddccbbaa99887766554433221100"

// Whatever is at /etc/machine-id where we are, as an image brings it, that of the host's first process
// counts, if that can be seen. The host is a directory here.
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
			inContainer(t, func() {
				got := HostID(procRoot)
				assert.Check(t, got == c.want, "%q, want %q", got, c.want)
			})
		})
	}
}
