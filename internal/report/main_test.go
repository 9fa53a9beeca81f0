package report

import (
	"os"
	"testing"

	"correlator/internal/symbolizer"
	"correlator/internal/testenv/fusefs"
	"correlator/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(symbolizer.Kind)
	fusefs.Main()
	os.Exit(m.Run())
}
