package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/host/terminal"
	"correlator/internal/operate/admin"
	"correlator/internal/operate/config"
	"correlator/internal/out/keep"
	"correlator/internal/out/report"
	"correlator/internal/stacks/sampling"
	"correlator/profile/ids"
)

// This file declares the flags of all commands. Those of run are the fields of config.Config.

type runOptions struct {
	config.File
	PrintConfig bool `key:"print-config" env:"-"`
	config.Config
}

func newRunOptions() *runOptions { return &runOptions{Config: config.Default()} }

func (o *runOptions) validate(s *config.Settings) error { return o.Complete(s, os.Getenv) }

// checkOptions are those of run, and more.
type checkOptions struct {
	config.File
	Connect bool `key:"connect"`
	output
	config.Config
}

func newCheckOptions() *checkOptions { return &checkOptions{output: table, Config: config.Default()} }

func (o *checkOptions) validate(s *config.Settings) error {
	if err := o.output.validate(s); err != nil {
		return err
	}
	return o.Complete(s, os.Getenv)
}

// checkFlags are the flags of run that decide what is needed. check accepts the others, so that the
// same command line fits both, and does not show them.
var checkFlags = []string{
	"samples-per-second", "kernel-stacks", "unwinder", "waits", "pin-maps", "feed-socket", "max-processes",
	"samples-delay", "report-interval", "include-container", "exclude-container", "proc-root",
	"admin-socket", "metrics-address", "otlp-endpoint", "otlp-protocol", "otlp-listen",
	"opencensus-socket", "live-listen", "config", "connect", "output",
}

type scanOptions struct {
	config.File
	ProcRoot string `key:"proc-root"`
	output
	Filter config.Filter `group:"Which processes"`
}

type inspectOptions struct {
	config.File
	ProcRoot string `key:"proc-root"`
	output
}

type statusOptions struct {
	config.File
	AdminSocket string        `key:"admin-socket"`
	Watch       bool          `key:"watch" short:"w"`
	Interval    time.Duration `key:"interval"`
	output
}

func newStatusOptions() *statusOptions {
	return &statusOptions{AdminSocket: admin.DefaultSocket, Interval: 2 * time.Second, output: table}
}

// minWatchInterval: an answer costs the agent a millisecond for a thousand processes.
const minWatchInterval = 100 * time.Millisecond

func (o *statusOptions) validate(s *config.Settings) error {
	switch {
	case o.AdminSocket == "":
		return fmt.Errorf("%s is empty", s.Name("admin-socket"))
	case o.Interval < minWatchInterval:
		return fmt.Errorf("%s is below %v", s.Label("interval"), minWatchInterval)
	}
	return o.output.validate(s)
}

type feedOptions struct {
	Socket string `key:"socket"`
}

func (o *feedOptions) validate(*config.Settings) error {
	if o.Socket == "" {
		return errors.New("--socket is not given")
	}
	return nil
}

type decodeOptions struct{ output }

// chosen are processes that are named, of any kind.
type chosen struct {
	PID        int             `key:"pid"`
	Commands   config.Patterns `key:"comm" type:"regexp"`
	Containers config.Patterns `key:"container" type:"regexp"`
}

func (o *chosen) any() bool { return o.PID != 0 || len(o.Commands) > 0 || len(o.Containers) > 0 }

type recordOptions struct {
	config.File
	Duration    time.Duration `key:"duration" short:"d"`
	Output      string        `key:"output" short:"o"`
	Format      string        `key:"format"`
	Trace       string        `key:"trace"`
	Transaction string        `key:"transaction"`
	chosen
	All            bool                 `key:"all"`
	Rate           int                  `key:"rate"`
	KernelStacks   bool                 `key:"kernel-stacks"`
	Unwinder       sampling.Unwinder    `key:"unwinder"`
	Waits          bool                 `key:"waits" env:"-"` // not that of run
	JavaSignatures bool                 `key:"java-signatures"`
	Attributes     config.AttributeKeys `key:"context-attributes" type:"keys"`
	Labels         config.LabelKeys     `key:"go-labels" type:"labels"`
	ProcRoot       string               `key:"proc-root"`
	Filter         config.Filter        `group:"Which processes"`
}

func newRecordOptions() *recordOptions {
	return &recordOptions{
		Duration: 30 * time.Second, Rate: 97, Unwinder: sampling.AutoUnwinder, ProcRoot: config.DefaultProcRoot,
		Attributes: config.DefaultAttributeKeys(), Labels: config.DefaultLabelKeys(),
	}
}

func (o *recordOptions) validate(s *config.Settings) error {
	switch {
	case o.Duration <= 0:
		return fmt.Errorf("%s is not above 0", s.Label("duration"))
	case o.Rate < 1 || o.Rate > bpf.MaxSamplesPerSecond:
		return fmt.Errorf("%s is not between 1 and %d", s.Label("rate"), bpf.MaxSamplesPerSecond)
	case o.PID < 0, o.PID == 0 && s.Given("pid"):
		return fmt.Errorf("%s is not a process id", s.Label("pid"))
	case o.Format != "" && !slices.Contains(report.Formats(), report.Format(o.Format)):
		return fmt.Errorf("%s: %q is none of pprof, folded and html", s.Name("format"), o.Format)
	case o.Output == "-" && o.format() == report.PProf && terminal.Is(os.Stdout):
		return errors.New("--output -: a profile is not for a terminal")
	}
	return cmp.Or(checkID(s, "trace", &o.Trace, ids.TraceDigits),
		checkID(s, "transaction", &o.Transaction, ids.SpanDigits))
}

// filter returns which processes are recorded: those that publish contexts or, where some are named, these.
func (o *recordOptions) filter() process.Filter {
	filter := o.Filter.Process()
	filter.All = o.All
	o.choose(&filter)
	return filter
}

// choose has a filter select processes of any kind by their command or container, if some are named so.
func (o *chosen) choose(filter *process.Filter) {
	filter.All = filter.All || len(o.Commands) > 0 || len(o.Containers) > 0
	if len(o.Commands) > 0 {
		filter.IncludeCommands = o.Commands.Compile()
	}
	filter.OnlyContainers = o.Containers.CompileContainers()
}

// format returns the form of the profile, which the name of the file says if nothing else does.
func (o *recordOptions) format() report.Format {
	if o.Format != "" {
		return report.Format(o.Format)
	}
	return report.FormatOf(o.Output)
}

// adaptRecordFlags has --service mean --include-service. As one flag with two names it goes before
// the environment and the file.
func adaptRecordFlags(flags *pflag.FlagSet) {
	flags.Lookup("output").Usage = "`path` of the profile, - for standard output (default: correlator-DATE-TIME.pb.gz)"
	flags.Lookup("waits").Usage = "record also what threads with a trace wait for, with their stacks"
	flags.Lookup("include-service").Usage = "only services with such a name; --service for short (default: all)"
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "service" {
			name = "include-service"
		}
		return pflag.NormalizedName(name)
	})
}

// adaptStatusFlags says of --admin-socket what it is for status, which needs one.
func adaptStatusFlags(flags *pflag.FlagSet) {
	flags.Lookup("admin-socket").Usage = "`path` of the agent's --admin-socket"
}

// output is the form of data on standard output.
type output struct {
	Output string `key:"output" short:"o"`
}

var table = output{"table"}

func (o *output) json() bool { return o.Output == "json" }

func (o *output) validate(s *config.Settings) error {
	if o.Output != "table" && o.Output != "json" {
		return fmt.Errorf("%s: %q is neither table nor json", s.Name("output"), o.Output)
	}
	return nil
}

// usage is the help text of each flag.
var usage = map[string]string{
	"config":       "`path` of a YAML file with settings; its keys are the flags of \"correlator run\" (default: none)",
	"print-config": "print every setting with where it comes from, in the form of a file for --config, and exit",

	"samples-per-second": fmt.Sprintf(
		"CPU stack samples of every CPU, at most %d; 0: none (then samples that are fed with their trace need no "+
			"eBPF)", bpf.MaxSamplesPerSecond),
	"report-interval": "how often what was sampled is fetched from the kernel: from 10ms to half of --samples-delay " +
		"(default: samples-delay / 3, at most 100ms)",
	"kernel-stacks": "stacks begin with the kernel's frames",
	"unwinder": "`how` stacks are walked: auto (without frame pointers, named Java frames included, in every process " +
		"where that is possible), full (likewise; where it is not possible at all, run is not ready and record " +
		"fails), or frame-pointers",
	"waits": "`when` it is known what transactions wait for, that are kept (--keep), exported by OTLP or watched live: " +
		"auto (where the kernel can) or off",
	"java-signatures": "names of Java methods include return type and arguments, where stacks are unwound",
	"context-attributes": fmt.Sprintf("which attributes of OpenTelemetry's thread contexts are exported, at most %d, "+
		"separated by commas (default: %s)", sampling.MaxAttributes, strings.Join(config.DefaultAttributeKeys(), ",")),
	"go-labels": fmt.Sprintf("which labels of goroutines (runtime/pprof) say what, ROLE=KEY separated by commas; empty: "+
		"none are read (default: %s)", strings.Join(config.DefaultLabelKeys(), ",")),
	"unsampled": "also send samples of traces whose W3C sampled flag is not set",

	"samples-delay": "longest time between a sample and its message, as promised to the agents: they hold finished " +
		"transactions back that long",
	"host-id": "`text` that says which host this is, may be empty (default: the host's machine-id)",

	"include-service":   "only services with such a name (default: all)",
	"exclude-service":   "no services with such a name (default: none)",
	"include-container": "only processes in such a container or cgroup (default: all)",
	"exclude-container": "no processes in such a container or cgroup: their memory is not read, no file or socket " +
		"opened (default: none)",
	"include-command": "only processes whose first thread or program has such a name (default: all)",
	"exclude-command": "no processes whose first thread or program has such a name (default: none)",
	"include-user":    "only processes that run as a user with such an id (default: all)",
	"exclude-user":    "no processes that run as a user with such an id (default: none)",

	"processes": "`which` processes are sampled: contexts (those that publish any) or all (whole-host profiles by OTLP " +
		"and in the live view; includes --otlp-untraced)",
	"scan-interval": "time between two sweeps of all processes, which find what live events do not report; at most " +
		"5s where there are none",
	"max-processes": "how many processes are served at once, at most 9000",
	"proc-root": "`directory` where the host's procfs is mounted; for run at most 88 bytes, and every directory on " +
		"the way o+x: sockets are reached through it",

	"accept-partial-view": "be ready although not all processes of the host are seen: in a pid or user namespace of " +
		"its own, or without CAP_SYS_PTRACE",

	"feed-socket": "`path` of the datagram socket on which outside samplers feed stack-trace-ids, usually with " +
		"--samples-per-second 0 (default: none)",
	"pin-maps": "`directory` in a bpf file system where to pin the table of targets, for other eBPF programs " +
		"(bpf/correlator.h) (default: none)",

	"otlp-endpoint": "`URL` of an OTLP receiver to export profiles and metrics to, any number of times: " +
		"https://HOST:4317, http://HOST:4317 (plain text), unix:PATH. The first gets headers and certificates from " +
		"the variables OTEL_EXPORTER_OTLP_*, more of each is for the file " +
		"(default: what the file's key otlp says, then OTEL_EXPORTER_OTLP_ENDPOINT, then none)",
	"otlp-protocol": "`protocol` of --otlp-endpoint: grpc, or http/protobuf, which appends /v1/metrics and the like " +
		"to the URL (default: OTEL_EXPORTER_OTLP_PROTOCOL, then grpc)",
	"otlp-listen": "`address` that takes OTLP of others, gRPC and HTTP alike, and passes it on to the endpoints: unix:PATH, or " +
		"HOST:PORT of this host only, unless the file has a certificate for TLS (default: none)",
	"otlp-symbolize": "export frames of native code, of the kernel, and of compiled code in perf maps with the names " +
		"of their functions, where their symbols are on this host",
	"otlp-untraced": "also export samples of threads that worked on no trace, of processes that take part",

	"opencensus-socket": "`path` of the socket on which PHP's OpenCensus clients send spans and measurements, which are " +
		"exported by OTLP; they use /tmp/oc-daemon.sock unless told otherwise (default: none)",

	"live-listen": "`URI` at which to serve the live view, any number of times: uds:/run/correlator/live.sock (what " +
		"\"correlator watch\" asks; for our own user only), ws://127.0.0.1:11233 (a page for browsers), " +
		"tcp://127.0.0.1:11235. An address that other hosts reach needs a secret (default: none)",
	"live-connect": "`URI` of a DOTS broker that runs, to which the live view is published (default: none)",
	"live-secret-file": "`file` with the secret that guests of --live-listen on TCP and WebSocket must know, and by which " +
		"the broker of --live-connect knows the agent; it is proved, not sent (default: DOTS_AUTH_SECRET, else none)",

	"keep": "how long samples of transactions are kept for \"correlator explain\", from 10s to 24h; 0s: not at all",
	"keep-bytes": fmt.Sprintf("memory for them, in `bytes`, at least %d; when it is full, the oldest samples of the "+
		"user or container that has most are forgotten", keep.MinBytes),

	"keep-slow": "transactions that stay when others are forgotten, any number of times: `SERVICE > DURATION`, a regexp " +
		"of the service's name, and what they took longer than; until a quarter of --keep-bytes is full " +
		"(default: none)",

	"admin-socket": "`path` of the socket that \"correlator status\" asks, for our own user only; its directory is created " +
		"if only that is missing, and stays; empty: none",
	"metrics-address": "`host:port` that serves /metrics (Prometheus), /healthz and /readyz over HTTP to everybody " +
		"who reaches it, without TLS or password: 127.0.0.1:9464 is this host only, :9464 every interface (default: " +
		"none)",
	"metrics-services": "`number` of services that are in metrics by name (correlator_service_*), at most 1000; further " +
		"ones are together _other",
	"log-level":  "`level` from which on is logged: debug, info, warn or error",
	"log-format": "`form` of the log, on standard error: console or json",

	"output":  "table or json",
	"connect": "also connect to the destinations of OTLP, each for as long as its timeout at most",

	"watch":    "update it until Ctrl-C",
	"interval": "time between two updates of --watch, at least 100ms",

	"socket": "`path` of the agent's --feed-socket",

	"busiest": "show the `number` of transactions that used most CPU time (default: 10 without an id, else all)",
	"slowest": "show the `number` of transactions with the longest time between their first and last sample " +
		"(default: those that are busiest)",
	"fastest": "show the `number` of transactions with the shortest time: those that ended 10s ago at least go first, and " +
		"without a span one that has waited for as long looks ended (default: those that are busiest)",
	"against": "compare: what stands before it with what comes after it, an id or --slowest, --fastest or --busiest; " +
		"differences are what the first has more",
	"from": "ask the Pyroscope with this `url` for what all hosts have sent it, instead of this host's agent; of the last " +
		"hour, or --since",
	"from-headers": "`headers` of requests to --from, as OTEL_EXPORTER_OTLP_HEADERS has them; secrets belong in the " +
		"variable",
	"service":     "only services whose name matches this `regexp` as a whole (default: all)",
	"demo":        "show what was recorded once of a demo, without an agent",
	"since":       "only transactions that were sampled within this time; 0s: all",
	"output-file": "`path` of a file to write to, - for standard output (default: standard output)",

	"duration": "how long to record",
	"format": "`form` of the profile: pprof, folded or html (default: html for a path that ends in .html, folded for " +
		".folded, else pprof)",
	"trace":       "only samples of the trace with this `id`, or whose id begins so (default: all samples)",
	"transaction": "only samples of the transaction with this `id`, or whose id begins so (default: all samples)",
	"pid": "only the process with this `number`, of any kind; its end ends the recording (default: all processes that " +
		"publish contexts)",
	"all":       "processes of any kind, also those that publish no contexts",
	"comm":      "only processes, of any kind, with such a `name` of their first thread or program (a regexp)",
	"container": "only processes, of any kind, in such a container, by its id or the beginning of it, or cgroup",
	"rate": fmt.Sprintf("CPU stack samples of every CPU per second, at most %d; a prime, so as not to keep step with "+
		"what happens at round times", bpf.MaxSamplesPerSecond),

	"dots-endpoint": "`URI` of the broker: tcp://HOST[:PORT], uds:///PATH, ws://HOST:PORT; tcp-v1 and uds-v1 for the " +
		"older format; goes before the variable DOTS_ENDPOINT (default: tcp://127.0.0.1:11235)",
	"dots-auth-secret": "`secret` for a broker that demands one; other users can read it in the list of processes, " +
		"but not in the variable DOTS_AUTH_SECRET (default: none)",
	"name":       "`text` that guests are told as the broker's name",
	"max-guests": "`number` of guests that may be connected at the same time",
	"max-memory": "`MiB` for what waits to be sent, and cached objects, which get half of it",
	"count":      "end after so many transmissions; 0: no end",
	"for":        "end after so much time; 0: no end",
	"remove":     "remove the object; only its key is used",
	"types":      "`path` of a .dots file that defines the type, any number of times (default: ask the broker)",
	"package":    "`name` of the Go package (default: that of the directory)",
	"directory":  "`path` of an existing directory to write to",
	"speed":      "`factor` of the pace: 2 is twice as fast, max without pauses",
}
