package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Release has workers of kinds that ReleasedWorker has been told of execute the command as it is released,
// until the end of the tests, if there is a compiler.
func Release(t testing.TB) {
	t.Helper()
	released.Do(func() {
		if _, err := exec.LookPath("go"); err != nil {
			return
		}
		dir, err := releasedDir()
		assert.NilError(t, err)
		assert.NilError(t, os.MkdirAll(dir, 0o755))
		Agent(t, dir)
	})
}

var released sync.Once

// ReleasedWorker is called in TestMain before worker.Main. It does not return if this process is a worker of one of
// these kinds, and Release was called in its parent.
//
// A worker does one thing after the other, of which the race detector has little to say, and with it what the
// unwinding engine reads of a file takes five times as long.
func ReleasedWorker(kinds ...string) {
	if len(os.Args) != 3 || os.Args[0] != "correlator-worker" || !slices.Contains(kinds, os.Args[1]) {
		return
	}
	if dir, err := releasedDir(); err == nil {
		_ = unix.Exec(filepath.Join(dir, "correlator"), os.Args, os.Environ())
	}
}

// RemoveReleased removes what Release has installed.
func RemoveReleased() {
	if dir, err := releasedDir(); err == nil {
		os.RemoveAll(dir)
	}
}

// releasedDir is a directory beside the test binary, which a worker finds without an environment.
func releasedDir() (string, error) {
	self, err := os.Executable()
	return self + ".released", err
}
