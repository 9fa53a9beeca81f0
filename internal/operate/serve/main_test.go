package serve

import (
	"os"
	"testing"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(symbolizer.LiveKind)
	os.Exit(testenv.Main(m))
}
