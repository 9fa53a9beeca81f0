// Package released has workers of test binaries execute the command as it is released, where that is installed
// for them (demo.Release).
//
// A worker does one thing after the other, of which the race detector has little to say, and with it what the
// unwinding engine reads of a file takes five times as long.
//
// Packages with a kind of worker run that when they are initialized (worker.Early). This one is before: it needs
// next to nothing, and its path is less than theirs.
package released

import (
	"os"
	"syscall"
)

// Dir is where the command is installed for workers of a kind: beside the test binary, as they have no environment.
func Dir(kind string) (string, error) {
	self, err := os.Executable()
	return self + "." + kind, err
}

func init() {
	if len(os.Args) != 3 || os.Args[0] != "correlator-worker" {
		return
	}
	if dir, err := Dir(os.Args[1]); err == nil {
		_ = syscall.Exec(dir+"/correlator", os.Args, os.Environ()) // else it is the test binary's own
	}
}
