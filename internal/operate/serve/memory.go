package serve

import (
	"math"
	"os"
	"runtime/debug"

	"go.uber.org/zap"

	"correlator/internal/names/naming"
	"correlator/internal/operate/config"
)

// agentMemory is the memory of the Go runtime that an agent without processes needs, and
// processMemory what each adds. Both are twice of what is in use: near the limit the garbage
// collector would run all the time. (15 KB of each process are resident.)
const agentMemory, processMemory = 24 << 20, 30 << 10

// limitMemory configures the Go runtime, unless the environment does (GOGC, GOMEMLIMIT). GOGC is 50, since
// batches and snapshots are large and short-lived, and an agent with many processes that do little makes little
// garbage: it may be half as large as what is in use. If the agent exports, keeps samples or is watched, a soft
// limit makes the garbage collector work more when destinations are down and their queues fill up. It returns by
// how much the environment's limit is less than what the configuration can take.
func limitMemory(cfg *config.Config) (lacking int64) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(50)
	}
	kept := cfg.Keep.Config()
	if !cfg.Export.Enabled() && !cfg.LiveView.Enabled() && !kept.Enabled() {
		return 0
	}
	needed := agentMemory + int64(cfg.Discovery.MaxProcesses)*processMemory + cfg.Export.MemoryBytes() +
		cfg.LiveView.MemoryBytes() + kept.MemoryBytes()
	if namesFrames(cfg) {
		needed += naming.MemoryBytes
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return max(needed-limit, 0)
	}
	debug.SetMemoryLimit(needed)
	return 0
}

// warnOfMemory warns of a limit in which the samples that are kept, and all else, may have no room: near it
// the garbage collector runs all the time.
func warnOfMemory(lacking int64, cfg *config.Config, log *zap.Logger) {
	if kept := cfg.Keep.Config(); lacking > 0 && kept.Enabled() {
		log.Warn("GOMEMLIMIT has too little room for --keep-bytes and all else: raise it and the limits of the "+
			"unit or the pod, or lower --keep-bytes", zap.Int64("missing_bytes", lacking))
	}
}
