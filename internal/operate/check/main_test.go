package check

import (
	"os"
	"testing"

	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(unwind.Kind())
	os.Exit(m.Run())
}
