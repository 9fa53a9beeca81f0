package check

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/stacks/sampling"
	"correlator/internal/stacks/unwind"
)

func ebpfFinding(err error, works, loss string) finding {
	var missing *bpf.MissingError
	switch {
	case err == nil:
		return ok(works)
	case errors.As(err, &missing):
		return finding{Missing, "needs " + missing.Feature, loss, missing.Remedy}
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return finding{Missing, err.Error(), loss, "see RLIMIT_NOFILE below"}
	}
	return finding{Missing, err.Error(), loss,
		"see lockdown and lsm below; else report this line, with uname -r, as a bug"}
}

func btf(m *machine) finding {
	return ebpfFinding(bpf.ProbeTypes(), "the kernel has BTF of its types", m.config.lossEBPF())
}

func ringBuffer(*machine) finding {
	return ebpfFinding(bpf.ProbeRingBuffer(), "can be created", lossSampler)
}

func cpuClock(*machine) finding {
	return ebpfFinding(bpf.ProbeClock(), "opens on each online CPU", lossSampler)
}

func samplesInKernel(m *machine) finding {
	return ebpfFinding(m.readsInKernel(), "the memory of threads in the kernel can be read", lossInKernel)
}

func taskIterator(m *machine) finding {
	filters, err := bpf.ProbeIterator()
	if err == nil && !filters {
		return finding{Degraded, "iterates over the threads of all processes only",
			"each probe of a process iterates over all threads of the host", "boot Linux 6.1 or later"}
	}
	return ebpfFinding(err, "iterates over the threads of one process", m.config.lossEBPF())
}

func sampler(m *machine) finding {
	works := fmt.Sprintf("loads, and attaches to %d CPUs", m.cpus)
	if m.config.SamplesPerSecond == 0 {
		works = "loads"
	}
	err := m.sampler()
	if errors.Is(err, bpf.ErrChainOnly) {
		return finding{Degraded, err.Error(), lossCallers, "report this line, with uname -r, as a bug"}
	}
	return ebpfFinding(err, works, lossSampler)
}

// unwinder is not required: `run` starts without the engine, and is not ready if that is.
func unwinder(m *machine) finding {
	loss := lossUnwound
	if m.config.Unwinder == sampling.FullUnwinder {
		loss += ", and run is not ready (/readyz) without --unwinder auto"
	}
	works, err := "loads, and unwinds a stack of this process", m.unwinder()
	if root := new(rootError); errors.As(err, &root) { // its filter is the same
		return ok(works + "; its worker is root's: " + root.Error())
	}
	if java := new(javaError); errors.As(err, &java) {
		return finding{Degraded, works + ", but not of Java as it should: " + java.Error(), unwind.LossOfJava,
			"report this line, with uname -r, as a bug"}
	}
	f := ebpfFinding(err, works, loss)
	if f.status == Missing {
		f.remedy += "; or do without: --unwinder frame-pointers"
	}
	return f
}

// waits is not required: `run` starts without accounts.
func waits(m *machine) finding {
	const works = "the time of threads off a CPU can be accounted"
	err := m.waits()
	if stackless := new(stacklessError); errors.As(err, &stackless) {
		f := ebpfFinding(stackless.error, "", lossWaitStacks)
		f.status, f.detail = Degraded, works+"; not where it was spent: "+f.detail
		return f
	}
	return ebpfFinding(err, works+", with stacks", lossWaits)
}

// stacklessError is why accounts of waits have no stacks.
type stacklessError struct{ error }

// probeWaits loads what accounts the time of threads, of which there are none.
func (m *machine) probeWaits() error {
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{MaxTargets: m.config.MaxProcesses})
	if err != nil {
		return err
	}
	waits, err := sampler.OpenWaits(bpf.WaitOptions{})
	if err == nil {
		if walkless := waits.Walkless(); walkless != nil {
			err = &stacklessError{walkless}
		}
		err = errors.Join(err, waits.Close())
	}
	return errors.Join(err, sampler.Close())
}

// probeUnwinder loads the unwinding engine, which tests itself.
func (m *machine) probeUnwinder() error {
	engine, err := unwind.Open(context.Background(), unwind.Options{ProcRoot: m.config.ProcRoot}, new(unwind.Counters))
	if err != nil {
		return err
	}
	status := engine.Status()
	switch err = engine.Close(); {
	case err != nil:
	case status.JavaRefused != "":
		err = &javaError{errors.New(status.JavaRefused)}
	case status.WorkerRoot != "":
		err = &rootError{errors.New(status.WorkerRoot)}
	}
	return err
}

// javaError is why the program for Java's stacks is not corrected.
type javaError struct{ error }

// rootError is why the unwinding worker is root's instead of a user's of its own.
type rootError struct{ error }

// probeSampler loads the sampler and attaches it to each CPU, but pins nothing.
func (m *machine) probeSampler() error {
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{
		SamplesPerSecond: m.config.SamplesPerSecond,
		KernelStacks:     m.config.KernelStacks,
		KeepUnsampled:    m.config.Unsampled,
		MaxTargets:       m.config.MaxProcesses,
	})
	if err != nil {
		return err
	}
	return errors.Join(sampler.ChainOnly(), sampler.Close())
}
