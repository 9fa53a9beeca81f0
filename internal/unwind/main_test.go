package unwind

import (
	"os"
	"testing"

	"correlator/internal/testenv"
	"correlator/internal/worker"
)

// The tests are in a pid namespace, so that pids here and in the kernel differ.
func TestMain(m *testing.M) {
	worker.Main(Kind(), hostileKind)
	os.Exit(testenv.Main(m))
}
