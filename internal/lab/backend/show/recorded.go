package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"
)

// transaction is what a recording has of one trace of a process.
type transaction struct {
	trace    string // hexadecimal digits
	contexts map[context]uint64
	samples  uint64
	named    uint64            // with methods
	methods  map[string]uint64 // of a JVM, or functions of Python: samples in them and in what they call
}

// context is what samples say of a trace beside its id.
type context struct {
	span  string // hexadecimal digits
	route string // http.route, may be empty
}

// truth is what a demo process says of a transaction that it has served.
type truth struct {
	TraceID string           `json:"trace_id"`
	SpanID  string           `json:"span_id"`
	Route   string           `json:"route"`
	BeganNs int64            `json:"began_ns"` // since 1970
	EndedNs int64            `json:"ended_ns"`
	CPUNs   int64            `json:"cpu_ns"`
	Methods map[string]int64 `json:"methods"` // CPU time, in nanoseconds
}

func showRecording(w io.Writer, path string, methods, contexts demoProcess, rate int) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	recorded, err := pprof.Parse(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := showHottest(w, transactions(recorded, methods.pid), methods.events); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return showContexts(w, recorded, contexts, rate)
}

func transactions(recorded *pprof.Profile, pid int64) map[string]*transaction {
	found := make(map[string]*transaction)
	for _, s := range recorded.Sample {
		label := func(name string) string { return strings.Join(s.Label[name], " ") }
		trace, n := label("trace_id"), uint64(s.Value[0])
		if trace == "" || !slices.Contains(s.NumLabel["pid"], pid) {
			continue
		}
		t := found[trace]
		if t == nil {
			t = &transaction{trace: trace, contexts: make(map[context]uint64), methods: make(map[string]uint64)}
			found[trace] = t
		}
		t.contexts[context{label("span_id"), label("http.route")}] += n
		t.samples += n
		seen := make(map[string]bool)
		for _, l := range s.Location {
			if kind := l.Mapping.File; len(l.Line) > 0 && (kind == "[jvm]" || kind == "[cpython]") {
				seen[l.Line[0].Function.Name] = true
			}
		}
		for name := range seen {
			t.methods[name] += n
		}
		if len(seen) > 0 {
			t.named += n
		}
	}
	return found
}

// readTruth reads from the events of a demo process the transactions that it has served, by their
// trace.
func readTruth(path string) (map[string]truth, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	served := make(map[string]truth)
	for events := json.NewDecoder(file); ; {
		var event struct {
			Event string
			truth
		}
		if err := events.Decode(&event); errors.Is(err, io.EOF) {
			return served, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the events of a process: %w", err)
		}
		if event.Event == "served" {
			served[event.TraceID] = event.truth
		}
	}
}

// most returns the transaction of which a number is largest, nil if there is none.
func most(all map[string]*transaction, of func(*transaction) uint64) (found *transaction) {
	for _, trace := range slices.Sorted(maps.Keys(all)) {
		if t := all[trace]; found == nil || of(t) > of(found) {
			found = t
		}
	}
	return found
}

// showHottest prints the methods of the transaction with the most samples.
func showHottest(w io.Writer, all map[string]*transaction, events string) error {
	t := most(all, func(t *transaction) uint64 { return t.samples })
	if t == nil {
		return errors.New("no sample is of a transaction of the process")
	}
	served, err := readTruth(events)
	if err != nil {
		return err
	}
	truth, known := served[t.trace]
	if !known {
		return fmt.Errorf("the process has served no trace %s", t.trace)
	}
	fmt.Fprintf(w, "  Of %d transactions, trace %s has the most samples, %d:\n\n", len(all), t.trace, t.samples)
	return showMethods(w, t, truth.Methods)
}

// showMethods prints the methods of a transaction that the process tells of. It is an error when one was not seen.
func showMethods(w io.Writer, t *transaction, truth map[string]int64) error {
	names := slices.SortedFunc(maps.Keys(truth), func(a, b string) int {
		return cmp.Or(cmp.Compare(truth[b], truth[a]), cmp.Compare(a, b))
	})
	fmt.Fprintf(w, "  %7s  %6s  %20s  %s\n", "SAMPLES", "SHARE", "BY ITS OWN CLOCK", "METHOD")
	line := func(samples uint64, said, name string) {
		fmt.Fprintf(w, "  %7d  %4.1f %%  %20s  %s\n", samples, 100*float64(samples)/float64(t.samples), said, name)
	}
	var missing []string
	for _, name := range names {
		line(t.methods[name], fmt.Sprintf("%8.1f ms  %5.1f %%", float64(truth[name])/1e6,
			100*float64(truth[name])/float64(truth[names[0]])), name)
		if t.methods[name] == 0 {
			missing = append(missing, name)
		}
	}
	if nameless := t.samples - t.named; nameless > 0 {
		line(nameless, "", "(no method: work of the runtime itself, or walked by frame pointers)")
	}
	if len(missing) > 0 {
		return fmt.Errorf("of trace %s, these methods were not seen: %s", t.trace, strings.Join(missing, ", "))
	}
	return nil
}

// deviations is how many standard deviations of as many independent samples the number of samples may
// be off. The samples of a CPU come at even intervals, so that 5 are never exceeded by chance.
const deviations = 5

// leastSamples is how many must be expected for their number to tell something.
const leastSamples = 40

// showContexts prints the transactions that a process has served while samples were taken, beside what
// it says of them, and the methods of one. It is an error when a transaction, samples or methods are
// missing, or when they are not what the process says.
func showContexts(w io.Writer, recorded *pprof.Profile, process demoProcess, rate int) error {
	served, err := readTruth(process.events)
	if err != nil {
		return err
	}
	all := transactions(recorded, process.pid)
	for trace := range all {
		if _, known := served[trace]; !known {
			return fmt.Errorf("the process has served no trace %s", trace)
		}
	}
	began, ended := recorded.TimeNanos, recorded.TimeNanos+recorded.DurationNanos
	whole := slices.SortedFunc(maps.Values(served), func(a, b truth) int { return cmp.Compare(a.BeganNs, b.BeganNs) })
	whole = slices.DeleteFunc(whole, func(t truth) bool { return t.BeganNs < began || t.EndedNs > ended })
	expected := func(ns int64) float64 { return time.Duration(ns).Seconds() * float64(rate) }
	var cpu int64
	var samples uint64
	complete := make(map[string]*transaction)
	fmt.Fprintf(w, "  %-32s  %-16s  %-14s  %7s  %8s  %7s\n", "TRACE", "SPAN", "http.route", "CPU ms", "EXPECTED",
		"SAMPLES")
	for _, said := range whole {
		t := all[said.TraceID]
		if t == nil {
			if expected(said.CPUNs) >= leastSamples {
				return fmt.Errorf("trace %s has no sample", said.TraceID)
			}
			continue
		}
		if want := (context{said.SpanID, said.Route}); len(t.contexts) != 1 || t.contexts[want] == 0 {
			return fmt.Errorf("samples of trace %s say %+v, the process says %+v", said.TraceID, t.contexts, want)
		}
		complete[said.TraceID] = t
		cpu, samples = cpu+said.CPUNs, samples+t.samples
		fmt.Fprintf(w, "  %-32s  %-16s  %-14s  %7.1f  %8.1f  %7d\n", said.TraceID, said.SpanID, said.Route,
			float64(said.CPUNs)/1e6, expected(said.CPUNs), t.samples)
	}
	want := expected(cpu)
	fmt.Fprintf(w, "  in all: %.2f s of CPU x %d Hz = %.1f; recorded %d\n\n", time.Duration(cpu).Seconds(), rate, want,
		samples)
	if want < leastSamples {
		return fmt.Errorf("%.1f samples expected: too few to tell anything", want)
	}
	if math.Abs(float64(samples)-want) > deviations*math.Sqrt(want) {
		return fmt.Errorf("%d samples, %.1f expected", samples, want)
	}
	// Some samples of the first transaction may be from before the stacks of the process were unwound.
	t := most(complete, func(t *transaction) uint64 { return t.named })
	fmt.Fprintf(w, "  Trace %s:\n\n", t.trace)
	return showMethods(w, t, served[t.trace].Methods)
}
