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
	os.Exit(demo.Workers(m, access.Kind.Name).Run())
}
