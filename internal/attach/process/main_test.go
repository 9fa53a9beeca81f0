package process

import (
	"os"
	"testing"

	"correlator/internal/lab/demo"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind)
	demo.Workers(access.Kind.Name)
	os.Exit(m.Run())
}
