// Pair measures what the correlator costs, beside what the OpenTelemetry eBPF profiler (the peer) costs
// on the same load, and prints a table (make pair; root, from the root of the repository):
//
//	go run ./internal/lab/pair [-loads ab] [-hz 20,97] [-rounds 3] [-settle 15s] [-measure 20s]
//	go run ./internal/lab/pair -self                the correlator alone
//	go run ./internal/lab/pair -against BINARY      the correlator, beside an older binary of it
//
// The peer is built from its module, with testdata/peer/memlock.patch. A load runs while rounds of one and of
// the other alternate: start it, let it settle, measure, end it. Both export to one receiver, which counts. Of
// a round:
//
//   - CPU: the run time of all of its processes, those that have ended included, and of its eBPF programs,
//     which the kernel counts for this (BPF_ENABLE_STATS), together in % of one core
//   - switches: context switches a second of all its processes, voluntary and not
//   - PSS of all its processes, at the end
//   - samples that arrived by OTLP of processes of the load, beside those to be expected, which is their
//     CPU time × rate; and samples that they were told of in messages
//   - foreign: the run time of everything else on the machine. With more than -foreign a round is thrown
//     out; where none is left, the table has all of them, and says so.
//
// Figures are medians; CPU and switches have their range in brackets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// options are the flags.
type options struct {
	loads           string
	rates           rates
	rounds          int
	settle, measure time.Duration
	foreign         float64 // % of a core
	self            bool
	against         string
}

// rates is a flag: samples a second, with commas between them. Without, they are those of each load.
type rates []int

func (r *rates) String() string { return "" }

func (r *rates) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		hz, err := strconv.Atoi(word)
		if err != nil || hz <= 0 {
			return fmt.Errorf("%q is no rate", word)
		}
		*r = append(*r, hz)
	}
	return nil
}

func main() {
	var o options
	flag.StringVar(&o.loads, "loads", allLoads(), "the `letters` of the loads")
	flag.Var(&o.rates, "hz", "`samples` a second, with commas between them (default those of each load)")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each")
	flag.DurationVar(&o.settle, "settle", 15*time.Second, "how long a round goes on before it is measured")
	flag.DurationVar(&o.measure, "measure", 20*time.Second, "how long it is measured")
	flag.Float64Var(&o.foreign, "foreign", 5, "throw out rounds with more foreign load, in `%` of a core")
	flag.BoolVar(&o.self, "self", false, "measure the correlator alone")
	flag.StringVar(&o.against, "against", "", "measure an older `binary` of the correlator instead of the peer")
	flag.Parse()
	selected, err := selectLoads(o.loads)
	if err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "pair:", err)
		flag.Usage()
		os.Exit(2)
	}
	if err := demo.Run(func(t testing.TB) { pair(t, o, selected) }); err != nil {
		fmt.Fprintln(os.Stderr, "pair:", err)
		os.Exit(1)
	}
}

// errInterrupted ends a run before its last round.
var errInterrupted = errors.New("interrupted")

// pair prints the table, of what was measured until it failed or was interrupted.
func pair(t testing.TB, o options, loads []load) {
	testenv.NeedRoot(t)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	sink, err := backend.OpenCounting("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	t.Cleanup(sink.Close)
	stats, err := ebpf.EnableStats(0) // BPF_STATS_RUN_TIME
	assert.NilError(t, err)
	t.Cleanup(func() { stats.Close() })
	dir, err := os.MkdirTemp("", "pair")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })

	profilers := []profiler{{"correlator", correlator(demo.Agent(t, dir), filepath.Join(dir, "admin"))}}
	if o.against != "" {
		profilers = append(profilers, profiler{"older", correlator(o.against, filepath.Join(dir, "admin"))})
	} else if !o.self {
		binary, err := buildPeer(dir)
		assert.NilError(t, err)
		profilers = append(profilers, profiler{"peer", peer(binary)})
	}
	var all table
	for _, p := range profilers {
		all.profilers = append(all.profilers, p.name)
	}
	defer func() { all.write(os.Stdout, o.foreign) }()
	for _, load := range loads {
		err := demo.Run(func(t testing.TB) {
			running := load.start(t)
			for _, hz := range o.ratesOf(load) {
				for round := range o.rounds {
					for i := range profilers {
						p := profilers[(i+round)%len(profilers)]
						f, err := measure(ctx, t, p, load, running, hz, sink, o)
						if err != nil {
							t.Fatal(err)
						}
						all.add(load, hz, p.name, f)
						fmt.Fprintf(os.Stderr, "%s, %d Hz, %s: %v\n", load.letter, hz, p.name, f)
					}
				}
			}
		})
		if err != nil {
			t.Fatalf("load %s: %v", load.letter, err)
		}
	}
}

func (o *options) ratesOf(l load) []int {
	if len(o.rates) > 0 {
		return o.rates
	}
	return l.rates
}
