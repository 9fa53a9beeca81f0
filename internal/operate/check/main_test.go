package check

import (
	"os"
	"testing"

	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	processes "correlator/internal/worker/access"
)

func TestMain(m *testing.M) {
	worker.Main(processes.Kind, unwind.Kind())
	os.Exit(m.Run())
}
