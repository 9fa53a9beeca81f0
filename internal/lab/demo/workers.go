package demo

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/released"
)

// Release has workers of a kind, always the same in a test binary, execute the command as it is released, if there
// is a compiler: see package released.
func Release(t testing.TB, kind string) {
	t.Helper()
	installed.Do(func() {
		if _, err := exec.LookPath("go"); err != nil {
			return
		}
		dir, err := released.Dir(kind)
		assert.NilError(t, err)
		assert.NilError(t, os.MkdirAll(dir, 0o755))
		Agent(t, dir)
	})
}

var installed sync.Once

// RemoveReleased removes what Release has installed.
func RemoveReleased(kind string) {
	if dir, err := released.Dir(kind); err == nil {
		os.RemoveAll(dir)
	}
}
