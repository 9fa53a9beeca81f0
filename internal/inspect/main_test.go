package inspect

import (
	"os"
	"testing"

	"correlator/internal/access"
	"correlator/internal/testenv"
	"correlator/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind)
	os.Exit(testenv.Main(m))
}
