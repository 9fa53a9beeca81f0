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
	demo.Workers(access.Kind.Name, unwind.Kind().Name)
	code := testenv.Main(m)
	runtime.KeepAlive(types)
	os.Exit(code)
}
