package check

import (
	"correlator/internal/stacks/sampling"
	"correlator/otlp"
)

// needs is what the flags of `run` ask for.
type needs struct {
	sampling     bool // samples are taken
	sampler      bool // the sampler is loaded, to take samples or to pin its table
	feed         bool // there is a feed socket
	eBPF         bool // eBPF programs are loaded, if possible
	kernelStacks bool
	unwinder     sampling.Unwinder // how stacks are to be walked
	pins         bool              // the table of targets is pinned
	admin        bool              // there is an admin socket
	adminAsked   bool              // and `run` does not start without it
	metrics      bool              // metrics are served
	receiver     bool              // OTLP is received
	openCensus   int               // how many connections of PHP's clients are accepted; 0: there is no socket
	live         []string          // endpoints of the live view
	destinations []otlp.Destination
	notReady     string // Config.notReady
}

func needsOf(config Config) needs {
	n := needs{
		sampling: config.SamplesPerSecond > 0,
		feed:     config.FeedSocket != "",
		pins:     config.PinMaps != "",
		metrics:  config.MetricsAddress != "",

		receiver:     config.Export.Receiver.Listen != "",
		live:         config.LiveListen,
		destinations: config.Export.Destinations,
		notReady:     config.notReady(),
	}
	n.admin = config.AdminSocket != ""
	if r := &config.Export.OpenCensus.Receiver; r.Socket != "" {
		n.openCensus = r.MaxConnections
	}
	n.adminAsked = n.admin && config.NeedsAdminSocket
	n.sampler = n.sampling || n.pins
	n.eBPF = n.sampler || n.feed
	n.kernelStacks = n.sampling && config.KernelStacks
	if n.sampling {
		n.unwinder = config.Unwinder
	}
	return n
}

// lossEBPF returns what is lost if no eBPF program can be loaded.
func (n needs) lossEBPF() string {
	if n.sampler {
		return lossSampler
	}
	return lossFed
}
