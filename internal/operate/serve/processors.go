package serve

import (
	"os"
	"runtime"

	"correlator/internal/operate/config"
	"correlator/procscan"
)

// samplesOfProcessor is how many samples a second goroutines have a CPU for, each: a sample takes 5 µs if its stack is
// known, and 50 µs if none of it is.
const samplesOfProcessor = 10_000

// limitProcessors has as many goroutines run at a time as samples take, unless the environment says how many do
// (GOMAXPROCS), or others send more than is known. On most hosts, that is one: what an agent does for samples takes a
// part of a CPU, some times a second, in goroutines that hand work to each other. With more CPUs, the Go runtime
// wakes a thread for each of them, and looks on all for something to do, which takes as long as the work. A system
// call that blocks leaves the CPU to other goroutines.
func limitProcessors(cfg *config.Config) {
	if _, set := os.LookupEnv("GOMAXPROCS"); set || isSentMuch(cfg) {
		return
	}
	cpus, err := procscan.ReadCPUs(procscan.OnlineCPUs)
	if err != nil {
		return
	}
	if n := processors(cfg.Samples.PerSecond, len(cpus)); n < runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

// processors returns how many goroutines run at a time, given the samples a second of so many CPUs.
func processors(perSecond, cpus int) int { return 1 + perSecond*cpus/samplesOfProcessor }

// isSentMuch reports whether others may send what takes much CPU time.
func isSentMuch(cfg *config.Config) bool {
	return cfg.Export.Receiver.Listen != "" || cfg.Export.OpenCensus.Receiver.Socket != "" ||
		cfg.LiveView.Enabled() || cfg.Samplers.FeedSocket != ""
}
