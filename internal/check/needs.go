package check

import (
	"correlator/otlp"
)

// needs is what flags of `run` ask for.
type needs struct {
	sampling     bool // samples are taken
	sampler      bool // the sampler is loaded: also to pin its table
	feed         bool // there is a feed socket
	eBPF         bool // something is loaded, if it can be
	kernelStacks bool
	pins         bool
	admin        bool // there is an admin socket
	adminAsked   bool // and `run` does not start without
	metrics      bool // there is an address for metrics
	receiver     bool // OTLP is taken
	destinations []otlp.Destination
}

func needsOf(config Config) needs {
	n := needs{
		sampling: config.SamplesPerSecond > 0,
		feed:     config.FeedSocket != "",
		pins:     config.PinMaps != "",
		metrics:  config.MetricsAddress != "",

		receiver:     config.Export.Receiver.Listen != "",
		destinations: config.Export.Destinations,
	}
	n.admin = config.AdminSocket != ""
	n.adminAsked = n.admin && config.NeedsAdminSocket
	n.sampler = n.sampling || n.pins
	n.eBPF = n.sampler || n.feed
	n.kernelStacks = n.sampling && config.KernelStacks
	return n
}

// lossEBPF is what is lost when nothing can be loaded.
func (n needs) lossEBPF() string {
	if n.sampler {
		return lossSampler
	}
	return lossFed
}
