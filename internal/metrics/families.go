package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// family is a family of metrics whose values are counters of the agent. Which of them is said by the names
// that agent.Counters.Each gives: so each word that is a label here is the same in logs and in `status`.
type family struct {
	name string // without the namespace
	help string

	// from is the name of the one counter. With labels, it is the beginning of the names of several: the
	// rest is the value of the last label, and the values of the others are given.
	from   map[string][]string
	labels []string
}

// one is a family of a single counter.
func one(name, from, help string) family {
	return family{name: name, help: help, from: map[string][]string{from: nil}}
}

// by is a family of all counters whose names begin so.
func by(label, name, from, help string) family {
	return family{name: name, help: help, from: map[string][]string{from: nil}, labels: []string{label}}
}

// families is every counter of the agent, in the order in which samples and processes meet them.
func families() []family {
	return slices.Concat(discoveryFamilies, processFamilies, samplingFamilies, feedFamilies, deliveryFamilies)
}

var discoveryFamilies = []family{
	one("sweeps_total", "sweeps",
		"Sweeps of all processes in /proc, those included that ended early."),
	one("sweeps_failed_total", "sweeps_failed",
		"Sweeps that ended early; the log says why."),
	one("live_events_failed_total", "events_failed",
		"Times that the kernel gave no live events of processes, or stopped to. Sweeps alone find new processes then."),
	one("live_events_lost_total", "events_lost",
		"Live events that the kernel could not tell because too many came at once. A sweep makes up for them."),
	one("live_looks_total", "live_looks",
		"Looks at single processes because a live event told that they map the agent's library."),
	one("process_looks_total", "looks",
		"Looks at what a process publishes."),
	one("lookout_hangs_total", "lookout_hangs",
		"Times that the memory of one process made the watch over all wait; that process is then looked at by itself."),
}

var processFamilies = []family{
	one("processes_gone_total", "gone",
		"Processes that were known and ended, or unloaded the agent's library."),
	one("processes_filtered_total", "processes_filtered",
		"Processes left out by a filter (--include-service and the like), each once."),
	one("processes_denied_total", "processes_denied",
		"Processes that the correlator may not look into, for want of a capability or because of an LSM, each once."),
	one("processes_refused_total", "processes_refused",
		"Times that a process was found and not served for a reason of the correlator: --max-processes, or out of "+
			"file descriptors. One process counts again in each sweep."),
	one("processes_truncated_total", "processes_truncated",
		"Processes with more copies of the agent's library mapped than are looked at, each once."),
	by("reason", "process_errors_total", "trouble_",
		"Errors because of which a process is not served, or not fully; each try counts. How many processes are in error now "+
			"is correlator_processes_in_error."),
	one("connections_total", "connected",
		"Connections made to the sockets of processes. Each begins with a registration."),
	one("connections_withdrawn_total", "withdrawn",
		"Connections ended by the correlator, because the process publishes nothing any more, or something else."),
	one("connections_gone_total", "sockets_gone",
		"Connections that ended because the process closed its socket."),
	one("registrations_total", "registrations",
		"Registrations that were taken by the sockets of processes."),
	one("publications_throttled_total", "published_too_often",
		"Times that a process was left alone for a second because it kept publishing something new."),
}

var samplingFamilies = []family{
	by("outcome", "kernel_samples_total", "kernel_",
		"Ticks of the sampling clock on all CPUs, by what the kernel program made of them. Threads of processes that do "+
			"not take part are no_target, CPUs that did nothing idle."),
	one("sampling_ticks_missed_total", "samples_missed",
		"Ticks of the sampling clock without a sample: the kernel held the clock back, or the hypervisor the CPU."),
	{
		name: "samples_total", labels: []string{"source", "outcome"},
		from: map[string][]string{"sampled_": {"sampled"}, "fed_": {"fed"}},
		help: "Samples that the correlator took of processes that take part (sampled), and all that outside samplers fed (fed), " +
			"by what became of them before they were queued. Only correlated ones are queued.",
	},
	one("sampling_drains_total", "drains",
		"Times that samples were fetched from the kernel."),
	one("sampling_errors_total", "sampling_troubles",
		"Calls to the kernel for samples that failed; the log has the first of each kind."),
	by("result", "mappings_total", "mappings_",
		"Executable mappings of files in processes, by whether the file could be identified. Frames in others have no file."),
	one("mapping_looks_failed_total", "looks_failed",
		"Looks at the executable memory of a process that failed."),
	{
		name: "frames_total", labels: []string{"space", "kind"},
		from: map[string][]string{"frames_": {"user"}, "kernel_frames_": {"kernel"}},
		help: "Frames of the stacks that were named, by where they lie: in a file, in anonymous memory (code of a JIT), or " +
			"in no memory that is known.",
	},
	one("stacks_added_total", "stacks_added",
		"Stacks that were new and whose frames were kept."),
	one("stacks_refused_total", "stacks_refused",
		"Stacks that were not kept: without frames, or too large."),
	one("stacks_evicted_total", "stacks_evicted",
		"Stacks whose frames made room for others. They are kept anew when they come again."),
}

var feedFamilies = []family{
	one("feed_datagrams_total", "feed_datagrams",
		"Well-formed datagrams of outside samplers at --feed-socket."),
	by("reason", "feed_datagrams_refused_total", "feed_refused_",
		"Datagrams at --feed-socket that are not well-formed: their sender speaks another format, or none."),
	one("feed_samples_total", "samples_fed",
		"Samples in the well-formed datagrams."),
}

var deliveryFamilies = []family{
	one("samples_queued_total", "samples_added",
		"Samples that were queued for their process: those sent, those dropped, and correlator_samples_waiting."),
	one("samples_sent_total", "samples_sent",
		"Samples that the sockets of their processes took."),
	by("reason", "samples_dropped_total", "samples_dropped_",
		"Samples that were queued and not sent. With late, mostly the process did not read its socket."),
	by("reason", "samples_delay_missed_total", "samples_delay_missed_",
		"Samples that were not sent within --samples-delay because of the correlator or its machine, not of the process: "+
			"overdue ones were sent too late, lost ones are among the dropped. The protocol allows 1 %."),
	one("messages_sent_total", "messages",
		"Messages with samples that were taken by the sockets of processes; one tells how often a stack was sampled in a transaction."),
	one("send_waits_total", "waits_for_room",
		"Times that the socket of a process was full and sending had to wait."),
	one("send_pauses_total", "pauses",
		"Times that sending to a process stopped for 5 ms, for want of kernel memory or of a socket that behaves."),
}

// place is where a counter goes.
type place struct {
	desc   *prometheus.Desc
	prefix string   // of the counter's name; the rest is the value of the last label
	values []string // of the labels before
}

// places finds the place of a counter by its name.
type places struct {
	descs  []*prometheus.Desc
	exact  map[string]place
	prefix []place // the longest first: names that begin with kernel_frames_ begin with kernel_, too
}

func newPlaces(families []family) *places {
	p := &places{exact: make(map[string]place)}
	for _, f := range families {
		desc := describe(f.name, f.help, f.labels...)
		p.descs = append(p.descs, desc)
		for from, values := range f.from {
			if len(f.labels) == 0 {
				p.exact[from] = place{desc: desc}
			} else {
				p.prefix = append(p.prefix, place{desc: desc, prefix: from, values: values})
			}
		}
	}
	slices.SortFunc(p.prefix, func(a, b place) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	return p
}

// find is where a counter goes, with the values of all labels.
func (p *places) find(name string) (desc *prometheus.Desc, values []string, ok bool) {
	if place, ok := p.exact[name]; ok {
		return place.desc, nil, true
	}
	for _, place := range p.prefix {
		if word, ok := strings.CutPrefix(name, place.prefix); ok {
			return place.desc, append(slices.Clip(place.values), word), true
		}
	}
	return nil, nil, false
}

// describe is the description of a family, which all its metrics have in common.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("correlator", "", name), help, labels, nil)
}
