package report

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/host/sorting"
	"correlator/internal/host/terminal"
	"correlator/internal/names/symbolizer"
	"correlator/internal/out/record"
	"correlator/procscan"
	"correlator/profile"
)

// summary summarizes a recording.
type summary struct {
	samples   uint64
	withTrace uint64 // of them

	recording    *record.Recording
	names        *symbolNames
	services     map[service]*share
	transactions map[transaction]uint64
	waits        map[transaction]time.Duration
	processes    map[*record.Process]*quality
	frames       map[profile.Kind]*nameCount
	unknown      uint64            // frames, each as often as it was sampled, at addresses in no known memory
	cut          uint64            // samples of stacks whose callers are missing
	files        map[string]uint64 // samples in which a file has frames without a name
	cpus         uint64
	runtimes     map[string][2]string // by the name of a file, see runtimeOf
}

// Rows of tables, so that all fits on a terminal.
const (
	maxServiceRows     = 10
	maxTransactionRows = 5
)

type service struct{ name, environment string }

type transaction struct {
	traceID       [16]byte
	transactionID [8]byte
	service       service
}

type share struct {
	samples, withTrace uint64
	processes          map[procscan.ProcessID]struct{}
}

// quality counts the samples of a process by how useful they are.
type quality struct {
	samples  uint64
	walked   uint64 // with frames outside the kernel only: others may be from within a system call
	shallow  uint64 // of them, those with one or two
	compiled uint64 // of these, those in code in memory
	unnamed  uint64 // with compiled code that has no name
	// interpreter is a runtime of interpreterNames that the process has, "" for none, or others.
	interpreter string
	unread      string // the same of unreadFiles
}

// nameCount counts frames, each as often as it was sampled.
type nameCount struct{ all, named uint64 }

// summarize computes the summary of a recording. Names may be nil.
func summarize(r *record.Recording, names *symbolNames) *summary {
	s := &summary{
		recording: r, names: names,
		services: make(map[service]*share), transactions: make(map[transaction]uint64),
		waits:     make(map[transaction]time.Duration),
		processes: make(map[*record.Process]*quality), frames: make(map[profile.Kind]*nameCount),
		files: make(map[string]uint64), runtimes: make(map[string][2]string),
		cpus: uint64(runtime.NumCPU()),
	}
	for _, p := range r.Processes {
		s.processes[p] = &quality{unread: matching(unreadFiles, path.Base(p.Executable))}
		s.service(p).processes[p.Identity()] = struct{}{}
	}
	stacks := make(map[processStack]uint64)
	for key, samples := range r.Samples {
		of := s.service(key.Process)
		s.samples += samples
		of.samples += samples
		if key.HasTrace() {
			s.withTrace += samples
			of.withTrace += samples
			s.transactions[transaction{key.TraceID, key.TransactionID, serviceOf(key.Process)}] += samples
		}
		stacks[processStack{key.Process, key.Stack}] += samples
	}
	for key, of := range r.Waits {
		one := transaction{key.TraceID, key.TransactionID, serviceOf(key.Process)}
		s.transactions[one] += 0
		s.waits[one] += of.Sum
	}
	for one, samples := range stacks {
		s.addStack(one.process, r.Stacks[one.stack], samples)
	}
	return s
}

func serviceOf(p *record.Process) service { return service{p.Service, p.Environment} }

func (s *summary) service(p *record.Process) *share {
	of := s.services[serviceOf(p)]
	if of == nil {
		of = &share{processes: make(map[procscan.ProcessID]struct{})}
		s.services[serviceOf(p)] = of
	}
	return of
}

func (s *summary) addStack(p *record.Process, frames []profile.Frame, samples uint64) {
	q := s.processes[p]
	q.samples += samples
	depth, inKernel, unnamed, cut, outermost := 0, false, false, false, ""
	files := make(map[string]struct{})
	for i, f := range frames {
		kind := f.Kind()
		if kind == profile.CutFrame {
			cut = true
			continue
		}
		if kind == profile.AnonymousFrame && f.Address >= symbolizer.KernelSpace {
			kind = profile.KernelFrame
		}
		inKernel = inKernel || kind == profile.KernelFrame
		if kind != profile.KernelFrame {
			depth++
		}
		interpreter, unread := s.runtimeOf(p, f)
		q.interpreter, q.unread = cmp.Or(q.interpreter, interpreter), cmp.Or(q.unread, unread)
		outermost = s.names.name(p, f)
		hasName := outermost != "" && outermost != nameUnknown
		if kind == profile.AnonymousFrame && f.Function == nil && !s.names.compiled(p, f) {
			s.unknown += samples
			continue
		}
		if !hasName && i > 0 && i == len(frames)-1 && f.File.IsCLibrary() {
			continue // where a coroutine begins (makecontext) there is no symbol
		}
		counted := s.frames[kind]
		if counted == nil {
			counted = &nameCount{}
			s.frames[kind] = counted
		}
		counted.all += samples
		if hasName {
			counted.named += samples
			continue
		}
		switch kind {
		case profile.AnonymousFrame:
			unnamed = true
		case profile.NativeFrame:
			files[s.names.path(p, f)] = struct{}{}
		}
	}
	for path := range files {
		s.files[path] += samples
	}
	if cut {
		s.cut += samples
	}
	if !inKernel && depth > 0 {
		q.walked += samples
		if depth <= 2 && !slices.Contains(threadStarts, outermost) {
			q.shallow += samples
			if slices.ContainsFunc(frames, func(f profile.Frame) bool { return f.Kind() == profile.AnonymousFrame }) {
				q.compiled += samples
			}
		}
	}
	if unnamed {
		q.unnamed += samples
	}
}

// write writes the summary as text. Strings of processes are escaped.
func (s *summary) write(w io.Writer) error {
	var b strings.Builder
	columns, _ := terminal.Size(w)
	r := s.recording
	fmt.Fprintf(&b, "%s in %v, %d a second of every CPU: %v of CPU time, %s in %s\n",
		terminal.Count(s.samples, "sample", "samples"),
		r.Duration.Round(100*time.Millisecond), r.SamplesPerSecond, s.cpuTime(s.samples),
		percent(s.withTrace, s.samples), terminal.Count(len(s.transactions), "transaction", "transactions"))
	if r.Waits != nil {
		waits, off := uint64(0), time.Duration(0)
		for _, of := range r.Waits {
			waits += of.Count
			off += of.Sum
		}
		fmt.Fprintf(&b, "off a CPU in transactions: %v, %s with a stack\n", off.Round(time.Millisecond),
			terminal.Count(waits, "wait", "waits"))
	}
	fmt.Fprintln(&b)
	s.writeServices(&b, columns)
	if len(s.transactions) > 0 {
		fmt.Fprintln(&b)
		s.writeTransactions(&b, columns)
	}
	fmt.Fprintln(&b)
	fmt.Fprintln(&b, "frames with a name:", s.namedFrames())
	if s.cut > 0 {
		fmt.Fprintf(&b, "truncated stacks: %s of samples, missing callers are in %s\n", percent(s.cut, s.samples),
			profile.CutName)
	}
	if walked, unknown := r.Walked(); walked > 0 {
		var when []string
		if walked > unknown {
			when = append(when, "taken before their stacks could be unwound, or of processes that cannot be")
		}
		if unknown > 0 {
			when = append(when, "in code that the unwinding engine does not know")
		}
		fmt.Fprintf(&b, "walked by frame pointers: %s of samples, %s\n", percent(walked, s.samples),
			strings.Join(when, ", or "))
	}
	for _, line := range s.losses() {
		fmt.Fprintln(&b, line)
	}
	for _, hint := range s.hints() {
		fmt.Fprintln(&b, "hint:", hint)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cpuTime returns the CPU time that samples stand for, rounded to its precision.
func (s *summary) cpuTime(samples uint64) time.Duration {
	return (time.Duration(samples) * s.recording.Period()).Round(10 * time.Millisecond)
}

func (s *summary) writeServices(b *strings.Builder, columns int) {
	of := sorting.Sorted(maps.Keys(s.services), func(x, y service) int {
		return cmp.Or(cmp.Compare(s.services[y].samples, s.services[x].samples),
			cmp.Compare(x.name, y.name), cmp.Compare(x.environment, y.environment))
	})
	table := terminal.NewTable(terminal.Column{Title: "SERVICE", Shrink: true},
		terminal.Column{Title: "ENVIRONMENT", Shrink: true, Spare: 2},
		terminal.Column{Title: "PROCESSES", Right: true, Spare: 1}, terminal.Column{Title: "SAMPLES", Right: true},
		terminal.Column{Title: "SHARE", Right: true}, terminal.Column{Title: "CPU", Right: true},
		terminal.Column{Title: "IN TRANSACTIONS", Right: true})
	for _, one := range of[:min(len(of), maxServiceRows)] {
		share := s.services[one]
		table.Row(one.name, one.environment, strconv.Itoa(len(share.processes)), strconv.FormatUint(share.samples, 10),
			percent(share.samples, s.samples), s.cpuTime(share.samples).String(),
			percent(share.withTrace, share.samples))
	}
	writeTable(b, table, columns)
	writeMore(b, len(of)-maxServiceRows)
}

func (s *summary) writeTransactions(b *strings.Builder, columns int) {
	of := s.topTransactions()
	columnsOf := []terminal.Column{{Title: "TRANSACTION"}, {Title: "TRACE", Spare: 1}, {Title: "SERVICE", Shrink: true},
		{Title: "SAMPLES", Right: true}, {Title: "SHARE", Right: true}, {Title: "CPU", Right: true}}
	if s.recording.Waits != nil {
		columnsOf = append(columnsOf, terminal.Column{Title: "OFF CPU", Right: true})
	}
	table := terminal.NewTable(columnsOf...)
	for _, one := range of[:min(len(of), maxTransactionRows)] {
		samples := s.transactions[one]
		table.Row(cmp.Or(one.idText(), "-"), hex.EncodeToString(one.traceID[:]), one.service.name,
			strconv.FormatUint(samples, 10), percent(samples, s.samples), s.cpuTime(samples).String(),
			s.waits[one].Round(time.Millisecond/10).String())
	}
	writeTable(b, table, columns)
	writeMore(b, len(of)-maxTransactionRows)
}

func (s *summary) topTransactions() []transaction {
	return sorting.Sorted(maps.Keys(s.transactions), func(x, y transaction) int {
		return cmp.Or(cmp.Compare(s.time(y), s.time(x)), slices.Compare(x.traceID[:], y.traceID[:]),
			slices.Compare(x.transactionID[:], y.transactionID[:]), cmp.Compare(x.service.name, y.service.name))
	})
}

// time returns how long a transaction was on a CPU, and waited, as far as there are stacks.
func (s *summary) time(one transaction) time.Duration {
	return time.Duration(s.transactions[one])*s.recording.Period() + s.waits[one]
}

// topTransaction returns the id of the transaction with most samples, of those that have one, else "".
func (s *summary) topTransaction() string {
	for _, one := range s.topTransactions() {
		if id := one.idText(); id != "" {
			return id
		}
	}
	return ""
}

// idText returns the transaction's id, empty if the context does not say it.
func (tx *transaction) idText() string {
	if tx.transactionID == [8]byte{} {
		return ""
	}
	return hex.EncodeToString(tx.transactionID[:])
}

func (s *summary) namedFrames() string {
	var texts []string
	for _, kind := range []struct {
		kind profile.Kind
		text string
	}{
		{profile.NativeFrame, "native"}, {profile.JVMFrame, "JVM"}, {profile.PythonFrame, "Python"},
		{profile.V8Frame, "V8"}, {profile.PHPFrame, "PHP"}, {profile.AnonymousFrame, "JIT"},
		{profile.KernelFrame, "kernel"},
	} {
		if frames := s.frames[kind.kind]; frames != nil {
			texts = append(texts, percent(frames.named, frames.all)+" of "+kind.text)
		}
	}
	if texts == nil {
		texts = []string{"none"}
	}
	text := strings.Join(texts, ", ")
	if s.unknown > 0 {
		all := s.unknown
		for _, frames := range s.frames {
			all += frames.all
		}
		text += "; at unknown addresses: " + percent(s.unknown, all) + " of all"
	}
	return text
}

func writeTable(b *strings.Builder, table *terminal.Table, columns int) {
	for _, line := range table.Lines(columns) {
		b.WriteString(line + "\n")
	}
}

func writeMore(b *strings.Builder, n int) {
	if n > 0 {
		fmt.Fprintf(b, "... and %d more\n", n)
	}
}

func percent(part, all uint64) string {
	if all == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(all), 'f', 1, 64) + "%"
}
