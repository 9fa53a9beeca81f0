package lifecycle

import (
	"os"
	"testing"
	"time"

	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

// deadline is how long anything may take that happens at once on an idle machine.
const deadline = 30 * time.Second

func TestMain(m *testing.M) {
	worker.Main(access.Kind, unwind.Kind())
	os.Exit(testenv.Main(m))
}
