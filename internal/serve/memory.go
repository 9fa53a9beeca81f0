package serve

import (
	"math"
	"os"
	"runtime/debug"

	"correlator/internal/config"
)

// agentMemory is the memory of the Go runtime that an agent without processes needs, and
// processMemory what each adds. Both are twice of what is in use: near the limit the garbage
// collector would run all the time. (15 KB of each process are resident.)
const agentMemory, processMemory = 24 << 20, 30 << 10

// limitMemory configures the Go runtime of an agent that exports, keeps samples or is watched, unless the environment
// does (GOGC, GOMEMLIMIT). GOGC is 50, since batches and snapshots are large and short-lived: garbage
// may be half as large as what is in use. A soft limit makes the garbage collector work more when
// destinations are down and their queues fill up.
func limitMemory(cfg *config.Config) {
	kept := cfg.Keep.Config()
	if !cfg.Export.Enabled() && !cfg.LiveView.Enabled() && !kept.Enabled() {
		return
	}
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(50)
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(agentMemory + int64(cfg.Discovery.MaxProcesses)*processMemory +
			cfg.Export.MemoryBytes() + cfg.LiveView.MemoryBytes() + kept.MemoryBytes())
	}
}
