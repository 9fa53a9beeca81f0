package serve

import (
	"os"
	"runtime"

	"correlator/internal/operate/config"
)

// limitProcessors has one goroutine run at a time, unless the environment says how many do (GOMAXPROCS), or others send
// more than one CPU can take. What an agent does for samples takes a part of a CPU, some times a second, in goroutines
// that hand work to each other: with more CPUs, the Go runtime wakes a thread for each of them, and looks on all
// for something to do, which takes as long as the work. A system call that blocks leaves the CPU to other goroutines.
func limitProcessors(cfg *config.Config) {
	if _, set := os.LookupEnv("GOMAXPROCS"); !set && !isSentMuch(cfg) {
		runtime.GOMAXPROCS(1)
	}
}

// isSentMuch reports whether others may send what takes much CPU time.
func isSentMuch(cfg *config.Config) bool {
	return cfg.Export.Receiver.Listen != "" || cfg.Export.OpenCensus.Receiver.Socket != "" || cfg.LiveView.Enabled()
}
