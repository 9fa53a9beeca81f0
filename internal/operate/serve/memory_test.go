package serve

import (
	"math"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/internal/names/naming"
	"correlator/internal/operate/config"
	"correlator/internal/out/export"
	"correlator/internal/out/live"
	"correlator/otlp"
)

// Of a limit in which samples that are kept have no room, the log has a line; of any other it has none.
func TestWarnOfMemory(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	cfg := config.Default()
	warnOfMemory(1<<20, &cfg, zap.New(core)) // nothing is kept
	cfg.Keep.For = time.Minute
	warnOfMemory(0, &cfg, zap.New(core))
	if logs.Len() != 0 {
		t.Errorf("%v", logs.All())
	}
	warnOfMemory(1<<20, &cfg, zap.New(core))
	all := logs.All()
	assert.Check(t, len(all) == 1 && all[0].ContextMap()["missing_bytes"] == int64(1<<20), all)
}

// The limit has room for the agent, every process, and what is exported and shown. One of the environment
// stays.
func TestLimitMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	exported := export.Config{QueueBytes: 8 << 20, Destinations: make([]otlp.Destination, 1)}
	named := exported
	named.Symbolize = true
	var sampled config.Config
	sampled.Samples.PerSecond = 20
	watched := live.Config{Listen: []string{"uds:/x"}}
	view := watched.MemoryBytes()
	elsewhere := (&live.Config{Connect: "uds:/x"}).MemoryBytes()
	assert.Check(t, elsewhere > 0 && elsewhere < view, "%d bytes with a broker, %d without", view, elsewhere)
	kept := config.Default().Keep
	kept.For = time.Minute
	keeps := kept.Config()
	for _, c := range []struct {
		name        string
		given, want int64
		config      config.Config
		processes   int
		lacking     int64
	}{
		{"nothing", math.MaxInt64, math.MaxInt64, config.Config{}, 4096, 0},
		{"an exporter", math.MaxInt64, 32 << 20, config.Config{Export: exported}, 0, 0},
		{"processes", math.MaxInt64, 152 << 20, config.Config{Export: exported}, 4096, 0},
		{"the live view", math.MaxInt64, 24<<20 + view, config.Config{LiveView: watched}, 0, 0},
		{"both", math.MaxInt64, 32<<20 + view, config.Config{Export: exported, LiveView: watched}, 0, 0},
		{"a limit", 20 << 20, 20 << 20, config.Config{Export: exported, LiveView: watched}, 0,
			12<<20 + view},
		{"samples", math.MaxInt64, 24<<20 + keeps.MemoryBytes(), config.Config{Keep: kept}, 0, 0},
		{"names, once", math.MaxInt64, 32<<20 + view + keeps.MemoryBytes() + naming.MemoryBytes,
			config.Config{Export: named, LiveView: watched, Keep: kept, Samples: sampled.Samples}, 0, 0},
		{"samples and a limit", 1 << 30, 1 << 30, config.Config{Keep: kept}, 0, 0},
	} {
		debug.SetMemoryLimit(c.given)
		c.config.Discovery.MaxProcesses = c.processes
		lacking := limitMemory(&c.config)
		if got := debug.SetMemoryLimit(-1); got != c.want || lacking != c.lacking {
			t.Errorf("%s: the limit is %d, want %d; it lacks %d, want %d", c.name, got, c.want, lacking, c.lacking)
		}
	}
}

// Frames are named if samples are taken, and one of those who get them wants names.
func TestNamesFrames(t *testing.T) {
	exported := export.DefaultConfig()
	exported.Destinations = make([]otlp.Destination, 1)
	named := exported
	exported.Symbolize, named.Symbolize = false, true
	kept := config.Default().Keep
	kept.For = time.Minute
	for _, c := range []struct {
		name   string
		config config.Config
		want   bool
	}{
		{"nobody", config.Config{}, false},
		{"an exporter that does not", config.Config{Export: exported}, false},
		{"an exporter", config.Config{Export: named}, true},
		{"the live view", config.Config{LiveView: live.Config{Listen: []string{"uds:/x"}}}, true},
		{"samples that are kept", config.Config{Keep: kept}, true},
	} {
		assert.Check(t, !namesFrames(&c.config), "%s, without samples", c.name)
		c.config.Samples.PerSecond = 20
		assert.Check(t, namesFrames(&c.config) == c.want, "%s", c.name)
	}
}
