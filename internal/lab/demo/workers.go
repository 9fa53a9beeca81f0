package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
)

// Workers runs the tests of a package, as m does (see testenv.Main), with workers of some kinds that execute the
// command as it is released, if there is a compiler. It is for TestMain.
//
// A worker does nearly all one thing after the other, of which the race detector has little to say; those of
// lifecycle, symbolizer and others have it. With it, a start takes five times as long, as does what the unwinding
// engine reads of a file.
func Workers(m *testing.M, kinds ...string) WithWorkers { return WithWorkers{m, kinds} }

// WithWorkers is what Workers returns.
type WithWorkers struct {
	m     *testing.M
	kinds []string
}

// Run runs the tests and returns their exit code.
func (w WithWorkers) Run() int {
	if _, err := exec.LookPath("go"); err != nil {
		return w.m.Run()
	}
	program := sync.OnceValue(func() string {
		built := make(chan error)
		var path string
		go func() { // not on the caller's thread, which may have another priority
			var err error
			path, err = testenv.Beside("released-", func(dir string) (string, error) {
				return filepath.Join(dir, "correlator"), release(dir)
			})
			built <- err
		}()
		if err := <-built; err != nil {
			fmt.Fprintln(os.Stderr, "workers execute the test binary:", err)
			return ""
		}
		return path
	})
	worker.Program = func(kind string) string {
		if slices.Contains(w.kinds, kind) {
			return program()
		}
		return ""
	}
	return w.m.Run()
}
