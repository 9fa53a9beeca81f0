package testenv

import (
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"
)

// compiledAfter is after how many starts a program is compiled, which takes as long as these.
const compiledAfter = 12

// Again returns the path of a program that is this test binary, for tests that start it again to play a
// role. After some starts it is one without the race detector, which starts in a fifth of the time, if there
// is a compiler. Any user may execute it. It is the TestMain's to call RemoveAgain.
func Again(t testing.TB) string {
	t.Helper()
	const self = "/proc/self/exe"
	if _, err := exec.LookPath("go"); err != nil || !isRaced() || again.starts.Add(1) <= compiledAfter {
		return self
	}
	again.once.Do(func() {
		var err error
		again.dir, err = os.MkdirTemp("", "correlator-again-")
		assert.NilError(t, err)
		assert.NilError(t, os.Chmod(again.dir, 0o755))
		build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", again.dir+"/again", ".")
		output, err := build.CombinedOutput()
		assert.NilError(t, err, "compiling without the race detector: %s", output)
	})
	return again.dir + "/again"
}

// RemoveAgain removes the program that Again has compiled.
func RemoveAgain() { _ = os.RemoveAll(again.dir) }

var again struct {
	starts atomic.Int32
	once   sync.Once
	dir    string
}

// isRaced reports whether this binary has the race detector.
func isRaced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
