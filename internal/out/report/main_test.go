package report

import (
	"os"
	"testing"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv/fusefs"
	"correlator/internal/names/symbolizer"
	"correlator/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(symbolizer.Kind)
	fusefs.Main()
	os.Exit(demo.Workers(m, symbolizer.Kind.Name).Run())
}
