package record

import (
	"os"
	"testing"

	"correlator/internal/access"
	"correlator/internal/testenv"
	"correlator/internal/unwind"
	"correlator/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind, unwind.Kind())
	os.Exit(testenv.Main(m))
}
