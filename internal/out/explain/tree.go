package explain

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/out/record"
	"correlator/internal/out/waits"
)

// Method is a function below its callers, and how often it was seen.
type Method struct {
	Name    string `json:"name"`
	File    string `json:"file,omitempty"`  // source file
	Lines   []Line `json:"lines,omitempty"` // the most frequent first
	Samples uint64 `json:"samples"`
	Self    uint64 `json:"self_samples"` // in no other method
	// Wait and SelfWait are the time of threads that waited, of which the stack is known.
	Wait     time.Duration `json:"wait_ns,omitempty"`
	SelfWait time.Duration `json:"self_wait_ns,omitempty"`
	Caller   int           `json:"caller"` // its place in Explanation.Methods; -1: it is an outermost one
	Calls    []*Method     `json:"-"`      // jq stops at a depth of 256

	time     time.Duration // CPU and waits
	children map[methodKey]*Method
	lines    map[uint32]Line
}

// Line is a line of a method's source file, and how often it was seen.
type Line struct {
	Line    uint32        `json:"line"`
	Samples uint64        `json:"samples"`
	Wait    time.Duration `json:"wait_ns,omitempty"`
}

type methodKey struct{ name, file string }

// newTree returns the outermost methods, those with most time first. Where there are several
// processes, these are above their methods.
func newTree(r *record.Recording) []*Method { return newRoot(r, aboveOf(r)).sorted(byTime) }

func aboveOf(r *record.Recording) func(*record.Process) string {
	if len(r.Processes) > 1 {
		return processText
	}
	return nil
}

// newRoot returns a tree of methods. above returns what they are below in a process; nil: nothing.
func newRoot(r *record.Recording, above func(*record.Process) string) *Method {
	root := &Method{}
	add := func(key *record.Key, samples uint64, wait time.Duration) {
		at := root
		root.Samples += samples
		root.Wait += wait
		more := Method{Samples: samples, Wait: wait, time: time.Duration(samples)*r.Period() + wait}
		if above != nil {
			at = at.call(methodKey{name: above(key.Process)}, 0, &more)
		}
		for _, f := range slices.Backward(r.Stacks[key.Stack]) {
			at = at.call(methodKey{waits.Name(f), f.SourceFile()}, f.Line, &more)
		}
		at.Self += samples
		at.SelfWait += wait
	}
	for key, samples := range r.Samples {
		add(&key, samples, 0)
	}
	for key, of := range r.Waits {
		add(&key.Key, 0, of.Sum)
	}
	return root
}

// byTime and byCPU are orders of methods: what waits most may have nothing to do.
func byTime(a, b *Method) int { return cmp.Compare(b.time, a.time) }

func byCPU(a, b *Method) int {
	return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(b.Wait, a.Wait))
}

func processText(p *record.Process) string {
	return fmt.Sprintf("%s (%d)", cmp.Or(p.Service, "process"), p.PID)
}

func (m *Method) call(key methodKey, line uint32, more *Method) *Method {
	called := m.children[key]
	if called == nil {
		called = &Method{Name: key.name, File: key.file}
		if m.children == nil {
			m.children = make(map[methodKey]*Method)
		}
		m.children[key] = called
	}
	called.Samples += more.Samples
	called.Wait += more.Wait
	called.time += more.time
	if line > 0 {
		if called.lines == nil {
			called.lines = make(map[uint32]Line)
		}
		of := called.lines[line]
		called.lines[line] = Line{line, of.Samples + more.Samples, of.Wait + more.Wait}
	}
	return called
}

// sorted sorts what a method calls, and returns it.
func (m *Method) sorted(order func(a, b *Method) int) []*Method {
	m.Calls = slices.SortedFunc(maps.Values(m.children), func(a, b *Method) int {
		return cmp.Or(order(a, b), cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
	m.Lines = slices.SortedFunc(maps.Values(m.lines), func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(b.Wait, a.Wait), cmp.Compare(a.Line, b.Line))
	})
	for _, called := range m.Calls {
		called.sorted(order)
	}
	return m.Calls
}

// flat appends methods and what they call, callers first.
func flat(all, methods []*Method, caller int) []*Method {
	for _, m := range methods {
		m.Caller = caller
		all = append(all, m)
		all = flat(all, m.Calls, len(all)-1)
	}
	return all
}

// maxLines is how many lines of a method are shown.
const maxLines = 3

// place returns the source file with lines, empty when it is not known.
func (m *Method) place() string {
	if m.File == "" {
		return ""
	}
	var lines []string
	for i, l := range m.Lines {
		if i == maxLines {
			lines = append(lines, "...")
			break
		}
		lines = append(lines, strconv.FormatUint(uint64(l.Line), 10))
	}
	if len(lines) == 0 {
		return path.Base(m.File)
	}
	return path.Base(m.File) + ":" + strings.Join(lines, ",")
}

// treeRow is a line of a tree of methods.
type treeRow[M any] struct {
	depth  int // how far it is indented
	method M
	more   []M // those that are left out, if it stands for some
	hidden int // not 0: so many callers that call nothing else
}

// How trees are cut for people: what has less than a part of CPU time, or one sample only, and of waits, and the middle
// of chains of methods each of which calls the next one only.
const (
	leastPart = 200 // half a percent
	fewOf     = 20  // single samples of so many are left out, too: they are chance
	keptAbove = 1
	keptBelow = 4
)

// layout is how a tree is laid out.
type layout[M any] struct {
	calls func(M) []M
	few   func(M) bool           // whether it is left out
	same  func(caller, m M) bool // whether the caller has nothing but m
}

// methodLayout is that of an explanation's methods.
func methodLayout(methods []*Method) *layout[*Method] {
	var total Method
	for _, m := range methods {
		total.Samples += m.Samples
		total.Wait += m.Wait
	}
	return &layout[*Method]{
		calls: func(m *Method) []*Method { return m.Calls },
		few: func(m *Method) bool {
			isFew := m.Samples == 0 || m.Samples < total.Samples/leastPart || m.Samples == 1 && total.Samples >= fewOf
			return isFew && (m.Wait == 0 || m.Wait < total.Wait/leastPart)
		},
		same: func(caller, m *Method) bool { return m.Samples == caller.Samples && m.Wait == caller.Wait },
	}
}

// rows lays a tree out.
func (l *layout[M]) rows(methods []M) (all []treeRow[M]) {
	var add func(methods []M, depth int)
	add = func(methods []M, depth int) {
		var left []M
		for _, m := range methods {
			if l.few(m) {
				left = append(left, m)
				continue
			}
			chain := []M{m}
			for last := m; len(l.calls(last)) == 1 && l.same(last, l.calls(last)[0]); chain = append(chain, last) {
				last = l.calls(last)[0]
			}
			hidden := len(chain) - keptAbove - keptBelow
			for i, m := range chain {
				switch {
				case hidden < 2 || i < keptAbove || i >= keptAbove+hidden:
					all = append(all, treeRow[M]{depth: depth, method: m})
				case i == keptAbove:
					all = append(all, treeRow[M]{depth: depth, method: m, hidden: hidden})
				}
			}
			add(l.calls(chain[len(chain)-1]), depth+1)
		}
		if len(left) > 0 {
			all = append(all, treeRow[M]{depth: depth, more: left})
		}
	}
	add(methods, 0)
	return all
}
