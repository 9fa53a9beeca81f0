package check

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"correlator/bpf"
)

// tried is what a probe of package bpf found.
func tried(err error, works, loss string) finding {
	var missing *bpf.MissingError
	switch {
	case err == nil:
		return ok(works)
	case errors.As(err, &missing):
		return finding{Missing, "needs " + missing.Feature, loss, missing.Remedy}
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return finding{Missing, err.Error(), loss, "see RLIMIT_NOFILE below"}
	}
	return finding{Missing, err.Error(), loss, "see lockdown and lsm below; else report this line, with uname -r, as a bug"}
}

func taskIterator(n needs) finding {
	filters, err := bpf.ProbeIterator()
	if err == nil && !filters {
		return finding{Degraded, "walks the threads of all processes only",
			"each look at a process walks all threads of the host", "boot Linux 6.1 or later"}
	}
	return tried(err, "walks the threads of one process", n.lossEBPF())
}

func sampler(m *machine) finding {
	works := fmt.Sprintf("loads, and attaches to %d CPUs", m.cpus)
	if m.config.SamplesPerSecond == 0 {
		works = "loads"
	}
	return tried(m.sampler(), works, lossSampler)
}

// trySampler loads the sampler and attaches it to each CPU, but pins nothing.
func (m *machine) trySampler() error {
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{
		SamplesPerSecond: m.config.SamplesPerSecond,
		KernelStacks:     m.config.KernelStacks,
		KeepUnsampled:    m.config.Unsampled,
		MaxTargets:       m.config.MaxProcesses,
	})
	if err != nil {
		return err
	}
	return sampler.Close()
}
