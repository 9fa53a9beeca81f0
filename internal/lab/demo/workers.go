package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
)

// Workers has workers of some kinds execute the command as it is released, compiled when the first one starts, if there
// is a compiler. It is for TestMain.
//
// A worker does nearly all one thing after the other, of which the race detector has little to say; those of
// lifecycle, symbolizer and others have it. With it, a start takes five times as long, as does what the unwinding
// engine reads of a file.
func Workers(kinds ...string) {
	program := sync.OnceValue(func() string {
		if _, err := exec.LookPath("go"); err != nil {
			return ""
		}
		built := make(chan string)
		go func() { // not on the caller's thread, which may have another priority
			path, err := testenv.Beside("released-", func(dir string) (string, error) {
				return filepath.Join(dir, "correlator"), release(dir)
			})
			if err != nil {
				fmt.Fprintln(os.Stderr, "workers execute the test binary:", err)
			}
			built <- path
		}()
		return <-built
	})
	worker.Program = func(kind string) string {
		if slices.Contains(kinds, kind) {
			return program()
		}
		return ""
	}
}
