package inspect

import (
	"os"
	"testing"

	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind, unwind.Kind())
	os.Exit(testenv.Main(m))
}
