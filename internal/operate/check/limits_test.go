package check

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/out/live"
	opencensus "correlator/opencensus/receiver"
	"correlator/otlp"
)

func TestDescriptors(t *testing.T) {
	var limit unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	m := fakeMachine(t, nil)
	m.config.MaxProcesses = 100
	needed := uint64(restDescriptors + 2*descriptorsPerCPU + 2*100)
	for soft, want := range map[uint64]finding{
		needed: {status: OK, detail: "254: --max-processes 100 takes 254"},
		needed - 1: {status: Degraded, detail: "enough for 99 processes, not for --max-processes 100",
			remedy: "raise it to 254"},
		54: {status: Degraded, detail: "54, of which the agent itself takes 54", remedy: "raise"},
		27: {status: Missing, detail: "27: starting takes more", remedy: "raise"},
	} {
		assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: limit.Max}))
		found(t, m, "RLIMIT_NOFILE").verify(t, want.status, want.detail, want.remedy)
	}
	assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: needed, Max: limit.Max}))
	m.config.Export.Destinations = make([]otlp.Destination, 3)
	found(t, m, "RLIMIT_NOFILE").verify(t, Degraded, "enough for 97 processes", "raise it to 260")
	m.config.Export.Destinations = nil
	m.config.Export.OpenCensus.Receiver = opencensus.Config{Socket: "/s", MaxConnections: 10}
	found(t, m, "RLIMIT_NOFILE").verify(t, Degraded, "enough for 95 processes", "raise it to 264")
	m.config.Export.OpenCensus.Receiver.Socket = ""
	m.config.LiveListen = []string{"uds:/s", "uds:/t"}
	found(t, m, "RLIMIT_NOFILE").verify(t, Degraded, "enough for", fmt.Sprint("raise it to ", 256+live.MaxGuests))
	m.config.LiveListen = nil
	m.readv = func() error { return errRefused }
	found(t, m, "RLIMIT_NOFILE").verify(t, Degraded, "enough for 50 processes", "raise it to 454")
}
