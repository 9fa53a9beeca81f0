package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// transaction is what is known of one trace of a process.
type transaction struct {
	trace    string // hexadecimal digits
	contexts map[context]uint64
	stacks   []stack
}

// context is what samples say of a trace beside its id.
type context struct {
	span  string // hexadecimal digits
	route string // http.route, may be empty
}

type stack struct {
	frames  []frame // leaf first
	samples uint64
}

type frame struct {
	name   string // of the function, or of the file
	source string // file of source code, may be empty
	line   int64  // 0: unknown
	method bool   // of a JVM, or a function of Python
}

// hottest returns the one with the most samples.
func hottest(all map[string]*transaction) *transaction {
	var most *transaction
	for _, trace := range slices.Sorted(maps.Keys(all)) {
		if most == nil || all[trace].samples() > most.samples() {
			most = all[trace]
		}
	}
	return most
}

func (t *transaction) samples() (n uint64) {
	for _, s := range t.stacks {
		n += s.samples
	}
	return n
}

// node is what was called, with what that has called.
type node struct {
	frame
	samples uint64
	lines   map[int64]uint64
	callees map[string]*node
}

func newNode(f frame) *node {
	return &node{frame: f, lines: make(map[int64]uint64), callees: make(map[string]*node)}
}

// add adds a stack from its first method in a source file on; what is called by itself is one node. It
// reports whether there is one.
func (n *node) add(s stack) bool {
	begun := false
	for _, f := range slices.Backward(s.frames) {
		if begun = begun || f.method && f.source != ""; !begun {
			continue
		}
		if n.name == f.name {
			continue
		}
		callee := n.callees[f.name]
		if callee == nil {
			callee = newNode(f)
			n.callees[f.name] = callee
		}
		callee.samples += s.samples
		callee.lines[f.line] += s.samples
		n = callee
	}
	return begun
}

// where returns a node's source file and the lines of most samples.
func (n *node) where() string {
	lines := slices.SortedFunc(maps.Keys(n.lines), func(a, b int64) int {
		return cmp.Or(cmp.Compare(n.lines[b], n.lines[a]), cmp.Compare(a, b))
	})
	lines = slices.DeleteFunc(lines, func(line int64) bool { return line == 0 })
	if n.source == "" || len(lines) == 0 {
		return n.source
	}
	const most = 3
	var texts []string
	for _, line := range lines[:min(most, len(lines))] {
		texts = append(texts, strconv.FormatInt(line, 10))
	}
	if len(lines) > most {
		texts = append(texts, "...")
	}
	return n.source + ":" + strings.Join(texts, ",")
}

// truth is what a demo process says of a transaction that it has served. Those in C say less.
type truth struct {
	TraceID string           `json:"trace_id"`
	SpanID  string           `json:"span_id"`
	Route   string           `json:"route"`
	BeganNs int64            `json:"began_ns"` // since 1970
	EndedNs int64            `json:"ended_ns"`
	CPUNs   int64            `json:"cpu_ns"`
	Methods map[string]int64 `json:"methods"` // CPU time, in nanoseconds
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

// leastShare is that of what is shown.
const leastShare = 0.03

// showTree prints the methods of a transaction as a tree, beside what the process says of them. It
// is an error when one of these was not seen.
func showTree(w io.Writer, t *transaction, truth map[string]int64) error {
	root := newNode(frame{})
	var nameless uint64
	for _, s := range t.stacks {
		if !root.add(s) {
			nameless += s.samples
		}
	}
	p := treePrinter{w: w, all: t.samples(), truth: truth, missing: maps.Clone(truth)}
	if len(truth) > 0 {
		p.allNs = slices.Max(slices.Collect(maps.Values(truth)))
	}
	fmt.Fprintf(w, "  %7s  %6s  %20s  %s\n", "SAMPLES", "SHARE", "BY ITS OWN CLOCK", "METHOD")
	p.print(root, 0)
	if nameless > 0 {
		p.line(nameless, "", "(no method: work of the runtime itself, or walked by frame pointers)")
	}
	if len(p.missing) > 0 {
		return fmt.Errorf("of trace %s, these methods were not seen: %s", t.trace,
			strings.Join(slices.Sorted(maps.Keys(p.missing)), ", "))
	}
	return nil
}

type treePrinter struct {
	w       io.Writer
	all     uint64
	truth   map[string]int64
	allNs   int64
	missing map[string]int64 // of truth, not printed yet
}

func (p *treePrinter) print(n *node, depth int) {
	callees := slices.SortedFunc(maps.Values(n.callees), func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.name, b.name))
	})
	for _, callee := range callees {
		if float64(callee.samples) < leastShare*float64(p.all) {
			continue
		}
		said := ""
		if ns, ok := p.missing[callee.name]; ok && callee.method {
			delete(p.missing, callee.name)
			said = fmt.Sprintf("%8.1f ms  %5.1f %%", float64(ns)/1e6, 100*float64(ns)/float64(p.allNs))
		}
		name := strings.TrimRight(strings.Repeat(" ", depth)+callee.name+"  "+callee.where(), " ")
		p.line(callee.samples, said, name)
		p.print(callee, depth+1)
	}
}

func (p *treePrinter) line(samples uint64, said, name string) {
	fmt.Fprintf(p.w, "  %7d  %4.1f %%  %20s  %s\n", samples, 100*float64(samples)/float64(p.all), said, name)
}
