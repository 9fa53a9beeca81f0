package serve

import (
	"math"
	"runtime/debug"
	"testing"

	"correlator/internal/config"
	"correlator/internal/export"
	"correlator/internal/live"
	"correlator/otlp"
)

// The limit has room for the agent, every process, and what is exported and shown. One of the environment
// stays.
func TestLimitMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	exported := export.Config{QueueBytes: 8 << 20, Destinations: make([]otlp.Destination, 1)}
	watched := live.Config{Listen: []string{"uds:/x"}}
	view := watched.MemoryBytes()
	if elsewhere := (&live.Config{Connect: "uds:/x"}).MemoryBytes(); elsewhere <= 0 || elsewhere >= view {
		t.Errorf("%d bytes with a broker, %d without", view, elsewhere)
	}
	for _, c := range []struct {
		name        string
		given, want int64
		config      config.Config
		processes   int
	}{
		{"nothing", math.MaxInt64, math.MaxInt64, config.Config{}, 4096},
		{"an exporter", math.MaxInt64, 32 << 20, config.Config{Export: exported}, 0},
		{"processes", math.MaxInt64, 152 << 20, config.Config{Export: exported}, 4096},
		{"the live view", math.MaxInt64, 24<<20 + view, config.Config{LiveView: watched}, 0},
		{"both", math.MaxInt64, 32<<20 + view, config.Config{Export: exported, LiveView: watched}, 0},
		{"a limit", 20 << 20, 20 << 20, config.Config{Export: exported, LiveView: watched}, 9000},
	} {
		debug.SetMemoryLimit(c.given)
		c.config.Discovery.MaxProcesses = c.processes
		limitMemory(&c.config)
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: the limit is %d, want %d", c.name, got, c.want)
		}
	}
}
