package check

import (
	"correlator/dots/endpoint"
)

type probe struct {
	name, group string
	need        func(*Config) bool // whether `run` with these flags uses it; nil: always
	required    func(*Config) bool // whether `run` with these flags does not start without it; nil: never
	run         func(*machine) finding
}

func always(*Config) bool { return true }

// probes are the requirements in the order in which they are shown, without those of which there may
// be several.
var probes = []probe{
	{"proc-root", groupNamespaces, nil, always, procRoot},
	{"proc-root-path", groupNamespaces, nil, nil, procRootPath},
	{"hidepid", groupNamespaces, nil, nil, hidepid},
	{"pid-namespace", groupNamespaces, nil, always, pidNamespace},
	{"user-namespace", groupNamespaces, nil, (*Config).sampler, userNamespace},
	{"mount-namespace", groupNamespaces, nil, nil, mountNamespace},
	{"cgroup-namespace", groupNamespaces, nil, func(c *Config) bool { return c.Filter.ByContainer() }, cgroupNamespace},
	{"machine-id", groupNamespaces, nil, nil, machineID},

	{"CAP_SYS_PTRACE", groupCapabilities, nil, nil, ptrace},
	{"CAP_BPF", groupCapabilities, (*Config).eBPF, (*Config).sampler, capBPF},
	{"CAP_PERFMON", groupCapabilities, nil, (*Config).sampler, perfmon},
	{"CAP_CHECKPOINT_RESTORE", groupCapabilities, nil, nil, checkpointRestore.find},
	{"CAP_DAC_READ_SEARCH", groupCapabilities, nil, nil, dacReadSearch.find},
	{"CAP_SETUID", groupCapabilities, nil, nil, setuid.find},
	{"CAP_SETGID", groupCapabilities, nil, nil, setgid.find},
	{"CAP_SYS_ADMIN", groupCapabilities, nil, nil, findSender},
	{"CAP_SYSLOG", groupCapabilities, (*Config).kernelStacks, nil, syslog},

	{"btf", groupKernel, (*Config).eBPF, (*Config).sampler, btf},
	{"task-iterator", groupKernel, (*Config).eBPF, (*Config).sampler, taskIterator},
	{"ring-buffer", groupKernel, (*Config).sampler, always, ringBuffer},
	{"perf-cpu-clock", groupKernel, (*Config).sampling, always, cpuClock},
	{"sampler", groupKernel, (*Config).sampler, always, sampler},
	{"samples-in-kernel", groupKernel, (*Config).sampler, nil, samplesInKernel},
	{"unwinder", groupKernel, (*Config).unwinds, nil, unwinder},
	{"waits", groupKernel, (*Config).waits, nil, waits},
	{"live-events", groupKernel, nil, nil, liveEvents},
	{"kernel-symbols", groupKernel, (*Config).kernelStacks, nil, kernelSymbols},
	{"procmap-query", groupKernel, nil, nil, procmapQuery},
	{"openat2", groupKernel, nil, always, openat2},
	{"pidfd", groupKernel, nil, always, pidfd},
	{"process_vm_readv", groupKernel, nil, nil, readv},
	{"process-memory", groupKernel, nil, nil, processMemory},

	setting("kernel.perf_event_paranoid", nil, perfEventParanoid),
	setting("kernel.perf_event_mlock_kb", nil, perfEventMlock),
	setting("kernel.perf_event_max_sample_rate", (*Config).sampling, maxSampleRate),
	setting("kernel.unprivileged_bpf_disabled", (*Config).eBPF, unprivilegedBPF),
	setting("kernel.kptr_restrict", (*Config).kernelStacks, kptrRestrict),
	setting("kernel.yama.ptrace_scope", nil, ptraceScope),
	setting("net.unix.max_dgram_qlen", (*Config).sampling, queueLength),

	{"lockdown", groupSecurity, (*Config).sampler, always, lockdown},
	{"lsm", groupSecurity, nil, nil, securityModules},
	{"seccomp", groupSecurity, nil, nil, seccomp},

	{"RLIMIT_NOFILE", groupLimits, nil, always, descriptors},
	{"memory", groupLimits, nil, nil, memory},
	{"cpu", groupLimits, nil, nil, cpu},
	{"pids", groupLimits, nil, nil, pids},

	{"runtimes", groupProcesses, (*Config).unwinds, nil, runtimes},

	{"feed-socket", groupPaths, (*Config).feed, always, feedSocket},
	{"pin-maps", groupPaths, (*Config).pins, always, pinMaps},
	{"admin-socket", groupPaths, (*Config).admin, func(c *Config) bool { return c.NeedsAdminSocket }, adminSocket},
	{"opencensus-socket", groupPaths, (*Config).openCensus, always, openCensusSocket},
}

// metricsProbe and listenProbe follow those of the live view's endpoints.
var (
	metricsProbe = probe{"metrics-address", groupPaths, (*Config).metrics, always, metricsAddress}
	listenProbe  = probe{"otlp-listen", groupOTLP, (*Config).receiver, always, otlpListen}
)

// probesFor returns the requirements of `run` with a configuration.
func probesFor(c *Config) (needed []probe) {
	all := probes
	for _, uri := range c.LiveListen {
		if e, err := endpoint.Parse(uri); err == nil { // as the configuration is valid
			all = append(all, probe{"live-listen " + e.String(), groupPaths, nil, always,
				func(m *machine) finding { return liveListen(m, e) }})
		}
	}
	all = append(all, metricsProbe, listenProbe)
	for _, d := range c.Export.Destinations {
		// Its configuration must be usable. The destination itself may be down.
		all = append(all, probe{"otlp-destination " + d.Name, groupOTLP, nil, always,
			func(m *machine) finding { return m.destination(&d) }})
	}
	for _, p := range all {
		if p.need == nil || p.need(c) {
			needed = append(needed, p)
		}
	}
	return needed
}

// What the flags of `run` ask for.

func (c *Config) sampling() bool     { return c.SamplesPerSecond > 0 }
func (c *Config) sampler() bool      { return c.sampling() || c.pins() } // or its table alone
func (c *Config) feed() bool         { return c.FeedSocket != "" }
func (c *Config) eBPF() bool         { return c.sampler() || c.feed() }
func (c *Config) kernelStacks() bool { return c.sampling() && c.KernelStacks }
func (c *Config) unwinds() bool      { return c.sampling() && c.Unwinder.Unwinds() }
func (c *Config) waits() bool        { return c.sampling() && c.Waits }
func (c *Config) pins() bool         { return c.PinMaps != "" }
func (c *Config) admin() bool        { return c.AdminSocket != "" }
func (c *Config) metrics() bool      { return c.MetricsAddress != "" }
func (c *Config) receiver() bool     { return c.Export.Receiver.Listen != "" }
func (c *Config) openCensus() bool   { return c.Export.OpenCensus.Receiver.Socket != "" }

// lossEBPF returns what is lost if no eBPF program can be loaded.
func (c *Config) lossEBPF() string {
	if c.sampler() {
		return lossSampler
	}
	return lossFed
}
