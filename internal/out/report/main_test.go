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
	demo.Workers(symbolizer.Kind.Name)
	os.Exit(m.Run())
}
