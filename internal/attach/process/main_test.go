package process

import (
	"os"
	"testing"

	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind)
	os.Exit(m.Run())
}
