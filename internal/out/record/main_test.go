package record

import (
	"os"
	"runtime"
	"testing"

	"correlator/bpf"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
)

func TestMain(m *testing.M) {
	worker.Main(access.Kind, unwind.Kind())
	demo.Rest()
	types := bpf.KeepTypes()
	code := testenv.Main(demo.Workers(m, access.Kind.Name, unwind.Kind().Name))
	runtime.KeepAlive(types)
	os.Exit(code)
}
