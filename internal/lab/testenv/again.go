package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// compiledAfter is after how many starts a program is compiled, which takes as long as these.
const compiledAfter = 12

// Again returns the path of a program that is this test binary, for tests that start it again to play a
// role. After some starts it is one without the race detector, which starts in a fifth of the time, if there
// is a compiler. Any user may execute it.
func Again(t testing.TB) string {
	t.Helper()
	const self = "/proc/self/exe"
	if _, err := exec.LookPath("go"); err != nil || !isRaced() || again.starts.Add(1) <= compiledAfter {
		return self
	}
	again.once.Do(func() {
		path, err := Beside("again-", func(dir string) (string, error) {
			path := filepath.Join(dir, "again")
			build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", path, ".")
			output, err := build.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, output)
			}
			return path, err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "not compiled without the race detector:", err)
			path = self
		}
		again.path = path
	})
	return again.path
}

// Beside returns a path by which children of this process execute a program that a function makes in a new directory,
// whoever they are. The directory is beside the test binary: the go command removes both. Under CI, it panics if there
// is none.
func Beside(pattern string, install func(dir string) (program string, err error)) (path string, err error) {
	defer func() {
		if err != nil && os.Getenv(strictVariable) == "1" {
			panic(err)
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(self), pattern)
	if err != nil {
		return "", err
	}
	program, err := install(dir)
	if err != nil {
		return "", err
	}
	if err := os.Chmod(program, 0o755); err != nil {
		return "", err
	}
	file, err := os.Open(program) // whose path other users may not reach
	if err != nil {
		return "", err
	}
	defer file.Close()
	const behindThoseOfChildren = 100 // they get files of their own as 3 and so on before they execute it
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, behindThoseOfChildren)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

var again struct {
	starts atomic.Int32
	once   sync.Once
	path   string
}

// isRaced reports whether this binary has the race detector.
func isRaced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
