package unwind

import (
	"os"
	"testing"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
	"correlator/internal/worker"
)

// The tests are in a pid namespace, so that pids here and in the kernel differ.
func TestMain(m *testing.M) {
	fusefs.Main()
	worker.Main(Kind(), hostileKind, unableKind, silentKind, untriedKind)
	demo.Workers(Kind().Name)
	code := testenv.Main(m)
	if shared != nil && shared.close() != nil {
		code = 1
	}
	os.Exit(code)
}
