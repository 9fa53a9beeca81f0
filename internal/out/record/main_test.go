package record

import (
	"os"
	"testing"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind, unwind.Kind())
	code := testenv.Main(m)
	demo.RemoveReleased(unwind.Kind().Name)
	os.Exit(code)
}
