package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Build builds targets of testdata/Makefile and returns the directory with the results. Targets
// that are up to date are not built again, and only one test binary builds at a time.
func Build(t testing.TB, targets ...string) string {
	t.Helper()
	return BuildWith(t, nil, targets...)
}

// BuildWith is Build for targets that need programs, unless they are up to date.
// It ends the test where they need one that is missing.
func BuildWith(t testing.TB, tools []string, targets ...string) string {
	t.Helper()
	testenv.NeedTool(t, "make")
	testdata := filepath.Join(moduleRoot(t), "testdata")
	key := strings.Join(targets, " ")
	if _, done := built.Load(key); done {
		return filepath.Join(testdata, "out")
	}
	unlock := lock(t, filepath.Join(testdata, "Makefile"))
	defer unlock()
	run := func(options ...string) ([]byte, error) {
		command := exec.Command("make", slices.Concat(options, []string{"O=out"}, targets)...)
		command.Dir = testdata
		// The flags of an outer make, as of `make test`, are not meant for this one.
		command.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		return command.CombinedOutput()
	}
	if len(tools) > 0 {
		const outdated = 1 // exit code; of errors it is 2, which the second make reports
		var exit *exec.ExitError
		if _, err := run("--question"); errors.As(err, &exit) && exit.ExitCode() == outdated {
			for _, tool := range tools {
				testenv.NeedTool(t, tool)
			}
		}
	}
	output, err := run("--silent")
	assert.NilError(t, err, "building %v: %v\n%s", targets, err, output)
	built.Store(key, nil)
	return filepath.Join(testdata, "out")
}

// built are the targets that this process has built.
var built sync.Map

// Agent compiles the command as it is released, without the race detector, unless it is up to date, and
// installs it in a directory, for every user.
func Agent(t testing.TB, dir string) (binary string) {
	t.Helper()
	testenv.NeedTool(t, "go")
	assert.NilError(t, release(dir))
	return filepath.Join(dir, "correlator")
}

// release is Agent without a test.
func release(dir string) error {
	root, err := findModule()
	if err != nil {
		return err
	}
	compiled := filepath.Join(root, "testdata", "out", "correlator")
	unlock, err := flock(filepath.Join(root, "testdata", "Makefile"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, argv := range [][]string{
		{filepath.Join(root, ".ci", "compile"), compiled, "1.2.3", "c0ffee"},
		{"install", "--mode", "755", compiled, filepath.Join(dir, "correlator")},
		{"chmod", "755", dir},
	} {
		command := exec.Command(argv[0], argv[1:]...)
		// With the commit in it, it would be linked anew for each.
		command.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", argv, err, output)
		}
	}
	return nil
}

// Fixture returns the path of a prebuilt agent library: see testdata/lib/README.md for the names,
// which are given without ".so".
func Fixture(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(moduleRoot(t), "testdata", "lib", "prebuilt", name+".so")
	_, err := os.Stat(path)
	assert.NilError(t, err)
	return path
}

// Machine is the host's machine in the names of prebuilt libraries.
var Machine = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]

// moduleRoot is findModule for a test.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := findModule()
	assert.NilError(t, err)
	return dir
}

// findModule returns the directory of go.mod, at or above the working directory: a test runs in the
// directory of its package.
func findModule() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "testdata", "agent", "demo.c")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			err = errors.New("the sources of the demo process are in no directory above this one")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

func lock(t testing.TB, path string) (unlock func()) {
	t.Helper()
	unlock, err := flock(path)
	assert.NilError(t, err)
	return unlock
}

func flock(path string) (unlock func(), err error) {
	file, err := os.Open(path)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the demo's build: %w", err)
	}
	return func() { file.Close() }, nil
}
