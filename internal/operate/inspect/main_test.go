package inspect

import (
	"os"
	"testing"

	"correlator/internal/lab/testenv"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind)
	os.Exit(testenv.Main(m))
}
