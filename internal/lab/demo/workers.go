package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"correlator/internal/worker"
)

// Workers runs the tests of a package, as m does (see testenv.Main), with workers of some kinds that execute the
// command as it is released, if there is a compiler. It is for TestMain.
//
// A worker does one thing after the other, of which the race detector has little to say. With it, a start takes five
// times as long, as does what the unwinding engine reads of a file.
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
	var dir string
	program := sync.OnceValue(func() string {
		var err error
		if dir, err = os.MkdirTemp("", "correlator-released-"); err == nil {
			err = release(dir)
		}
		if err != nil {
			panic(fmt.Errorf("compiling the command for workers: %w", err))
		}
		return filepath.Join(dir, "correlator")
	})
	worker.Program = func(kind string) string {
		if slices.Contains(w.kinds, kind) {
			return program()
		}
		return ""
	}
	code := w.m.Run()
	_ = os.RemoveAll(dir)
	return code
}
