package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/internal/out/waits"
)

// Explanation is where the CPU time of transactions went.
type Explanation struct {
	Host         string        `json:"host,omitempty"`
	From         string        `json:"from,omitempty"` // a backend: samples are microseconds of CPU time
	At           time.Time     `json:"at"`
	KeptSince    time.Time     `json:"kept_since,omitzero"`
	Complete     time.Time     `json:"complete_since,omitzero"` // since when nothing was forgotten; zero: nothing was
	PerSample    time.Duration `json:"cpu_ns_per_sample"`
	Samples      uint64        `json:"samples"`
	Transactions []Transaction `json:"transactions"`
	More         int           `json:"more_transactions"`
	Threads      []Thread      `json:"threads"`
	Spans        []Span        `json:"spans"`
	Methods      []*Method     `json:"methods"` // callers before what they call

	// LeftOut is how many samples are in no Thread and Span, since there was no room, and some of them in one
	// Method together.
	LeftOut uint64 `json:"left_out_samples,omitempty"`
	// LeftOutWaits is how many waits there was no room for: their time is among what has no stack.
	LeftOutWaits uint64 `json:"left_out_waits,omitempty"`
	// UnknownWaits is what the agent does not know of waits, and why.
	UnknownWaits string `json:"unknown_waits,omitempty"`
	// LeftOutSeries is how many series of a backend there was no room for.
	LeftOutSeries int `json:"left_out_series,omitempty"`
	// Gone is why other samples of the trace or the transaction are not there, and GoneAt when the last ones
	// were lost.
	Gone   string    `json:"gone,omitempty"`
	GoneAt time.Time `json:"gone_at,omitzero"`

	outermost []*Method
	inlined   []string // see report.InlinedNotes
}

// Transaction is a transaction of a process. Wall is that of its span where that is known; else the time from its first
// sample to its last one, and one period: what came before and after is not known. Of one whose earlier samples are no
// longer kept it begins with those that are, and all numbers are of these.
type Transaction struct {
	Trace       string            `json:"trace_id"`
	ID          string            `json:"transaction_id,omitempty"`
	Context     string            `json:"context"`
	Host        string            `json:"host,omitempty"` // of a backend's
	Service     string            `json:"service"`
	Environment string            `json:"environment,omitempty"`
	PID         int               `json:"pid"`
	ContainerID string            `json:"container_id,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	First       time.Time         `json:"first_sample,omitzero"`
	Last        time.Time         `json:"last_sample,omitzero"`
	Wall        time.Duration     `json:"wall_ns,omitzero"`      // zero: not known
	WallSource  string            `json:"wall_source,omitempty"` // "span", "switches" or "samples"
	CPU         time.Duration     `json:"cpu_ns"`
	Share       float64           `json:"cpu_of_wall,omitzero"` // 2: two CPUs all the time
	Samples     uint64            `json:"samples"`
	Earlier     uint64            `json:"earlier_samples,omitempty"` // that are no longer kept
	KeptFrom    time.Time         `json:"kept_from,omitzero"`        // First, or since when all are kept
	Gone        string            `json:"gone,omitempty"`
	Account     *Account          `json:"account,omitempty"` // nil: it is not known what it waited for
	Waits       []Wait            `json:"waits,omitempty"`   // the longest first

	first time.Time // when Wall begins
	at    time.Time // of the answer
}

// Thread is what a thread used of the CPU.
type Thread struct {
	Host    string        `json:"host,omitempty"` // of a backend's
	PID     int           `json:"pid"`
	TID     int           `json:"tid"`
	Name    string        `json:"name,omitempty"`
	Samples uint64        `json:"samples"`
	CPU     time.Duration `json:"cpu_ns"`
	Share   float64       `json:"cpu_of_wall,omitzero"`
}

// Span is what was used in a span of a transaction.
type Span struct {
	Trace       string        `json:"trace_id"`
	Transaction string        `json:"transaction_id,omitempty"`
	ID          string        `json:"span_id,omitempty"` // empty: in none but the transaction
	PID         int           `json:"pid"`
	Samples     uint64        `json:"samples"`
	CPU         time.Duration `json:"cpu_ns"`
	Share       float64       `json:"cpu_of_wall,omitzero"`
}

type threadKey struct {
	host     string
	pid, tid int
	name     string
}

type spanKey struct {
	transaction int
	span        string
}

// explain computes an explanation. The answer has been checked.
func explain(a *keep.Answer, r *record.Recording) *Explanation {
	e := &Explanation{Host: a.Host, From: a.From, At: a.At, KeptSince: a.Oldest, Complete: a.Complete,
		PerSample: r.Period(), More: a.More, Gone: a.Gone, GoneAt: a.GoneAt, outermost: newTree(r),
		inlined: report.InlinedNotes(r)}
	e.Methods = flat(nil, e.outermost, -1)
	for i := range a.Transactions {
		tx := &a.Transactions[i]
		p := &a.Processes[tx.Process]
		made := Transaction{Trace: tx.Trace, ID: tx.ID, Context: tx.Context, Host: p.Host, Service: p.Service,
			Environment: p.Environment, PID: p.PID, ContainerID: p.ContainerID, Attributes: tx.Attributes,
			First: tx.First, Last: tx.Last, CPU: e.cpu(tx.Samples), Samples: tx.Samples, Earlier: tx.Earlier,
			KeptFrom: keptFrom(tx), Gone: tx.Gone, Account: newAccount(tx.Account, tx.Span)}
		made.at = a.At
		if a.From == "" {
			made.first, made.Wall, made.WallSource = wall(tx, e.PerSample)
		}
		made.Share = share(made.CPU, made.Wall)
		e.Samples += tx.Samples
		e.Transactions = append(e.Transactions, made)
	}
	e.addWaits(a, r)
	e.LeftOutWaits, e.LeftOutSeries, e.UnknownWaits = a.LeftOutWaits, a.LeftOutSeries, a.UnknownWaits
	threads, spans := make(map[threadKey]*Thread), make(map[spanKey]*Span)
	for i := range a.Samples {
		s := &a.Samples[i]
		if s.Stack == keep.LeftOutStack || s.Several {
			e.LeftOut += s.Count
			continue
		}
		tx := &e.Transactions[s.Transaction]
		key := threadKey{tx.Host, tx.PID, s.TID, s.Thread}
		th := threads[key]
		if th == nil {
			th = &Thread{Host: tx.Host, PID: tx.PID, TID: s.TID, Name: s.Thread}
			threads[key] = th
		}
		th.Samples += s.Count
		sp := spans[spanKey{s.Transaction, s.Span}]
		if sp == nil {
			sp = &Span{Trace: tx.Trace, Transaction: tx.ID, ID: s.Span, PID: tx.PID}
			spans[spanKey{s.Transaction, s.Span}] = sp
		}
		sp.Samples += s.Count
	}
	wall := e.wall()
	nameThreads(threads)
	for _, th := range threads {
		th.CPU = e.cpu(th.Samples)
		th.Share = share(th.CPU, wall)
		e.Threads = append(e.Threads, *th)
	}
	for _, sp := range spans {
		sp.CPU = e.cpu(sp.Samples)
		sp.Share = share(sp.CPU, wall)
		e.Spans = append(e.Spans, *sp)
	}
	e.sort()
	return e
}

// nameThreads adds what was sampled of a thread before its name was known to what was sampled later, if it
// had one name only.
func nameThreads(threads map[threadKey]*Thread) {
	names := make(map[threadKey][]string) // of what is unnamed
	for key := range threads {
		if key.name != "" {
			unnamed := threadKey{key.host, key.pid, key.tid, ""}
			names[unnamed] = append(names[unnamed], key.name)
		}
	}
	for unnamed, all := range names {
		if before := threads[unnamed]; before != nil && len(all) == 1 {
			threads[threadKey{unnamed.host, unnamed.pid, unnamed.tid, all[0]}].Samples += before.Samples
			delete(threads, unnamed)
		}
	}
}

func (e *Explanation) sort() {
	slices.SortFunc(e.Threads, func(a, b Thread) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.TID, b.TID), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(e.Spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Trace, b.Trace),
			cmp.Compare(a.Transaction, b.Transaction), cmp.Compare(a.ID, b.ID), cmp.Compare(a.PID, b.PID))
	})
}

// wall returns when a transaction was first seen, how long it was, and by what.
func wall(tx *keep.Transaction, period time.Duration) (first time.Time, wall time.Duration, source string) {
	if tx.Span != nil {
		return tx.Span.Start, tx.Span.End.Sub(tx.Span.Start), "span"
	}
	if tx.Account == nil {
		return keptFrom(tx), max(tx.Last.Sub(keptFrom(tx)), 0) + period, "samples"
	}
	first, last := tx.Account.First, tx.Account.Last
	if tx.Samples > 0 && keptFrom(tx).Before(first) {
		first = keptFrom(tx)
	}
	if tx.Last.After(last) {
		last = tx.Last
	}
	return first, last.Sub(first), "switches"
}

// wallTexts are what the time of a transaction is, by WallSource.
var wallTexts = map[string]string{"span": "by its span", "switches": "from the first switch to the last",
	"samples": "from the first sample to the last"}

// cpu returns the CPU time that samples stand for.
func (e *Explanation) cpu(samples uint64) time.Duration { return time.Duration(samples) * e.PerSample }

// wall returns the times of the transactions together, as those of their accounts are.
func (e *Explanation) wall() (sum time.Duration) {
	traces := make(wholeTraces)
	for i := range e.Transactions {
		if tx := &e.Transactions[i]; !traces.isCounted(tx) {
			sum += tx.Wall
		}
	}
	return sum
}

func share(part, all time.Duration) float64 {
	if all <= 0 {
		return 0
	}
	return float64(part) / float64(all)
}

// about returns what a flame graph says beside its frames.
func (e *Explanation) about() report.About {
	about := report.About{Title: "correlator explain", Notes: []string{e.At.Local().Format(time.RFC1123Z)}}
	if e.Host != "" {
		about.Notes = append(about.Notes, "host "+e.Host)
	}
	if e.From != "" {
		about.Notes = append(about.Notes, e.backendNotes()...)
	} else if len(e.Transactions) == 1 {
		tx := &e.Transactions[0]
		about.Title = strings.TrimSpace(cmp.Or(tx.Service, "process") + " " + tx.name())
		about.Notes = append(about.Notes, "trace "+tx.Trace)
		about.Notes = append(about.Notes, tx.attributeTexts()...)
		about.Notes = append(about.Notes, tx.times())
	}
	about.Notes = append(about.Notes, e.notes()...)
	return about
}

// notes says what is not in the numbers.
func (e *Explanation) notes() (notes []string) {
	earlier, transactions := uint64(0), 0
	for i := range e.Transactions {
		if tx := &e.Transactions[i]; tx.Earlier > 0 {
			earlier += tx.Earlier
			transactions++
		}
	}
	if len(e.Transactions) > 1 && earlier > 0 {
		notes = append(notes, fmt.Sprintf("%d earlier samples of %d of the transactions are no longer kept; all numbers are "+
			"of those that are", earlier, transactions))
	}
	if gone := e.goneNote(); gone != "" {
		notes = append(notes, gone)
	}
	if e.LeftOut > 0 {
		notes = append(notes, fmt.Sprintf("%d samples are counted without thread and span, or without stack: the answer "+
			"would be too large (ask for fewer transactions)", e.LeftOut))
	}
	if e.LeftOutWaits > 0 {
		notes = append(notes, fmt.Sprintf("the stacks of %d waits are left out: the answer would be too large "+
			"(ask for fewer transactions)", e.LeftOutWaits))
	}
	if e.UnknownWaits != "" {
		notes = append(notes, e.UnknownWaits)
	}
	if e.LeftOutSeries > 0 {
		notes = append(notes, fmt.Sprintf("%d more series of profiles there are left out: of other types, or there was no "+
			"room",
			e.LeftOutSeries))
	}
	return notes
}

// goneNote says why other samples are not there; empty: of none that is known.
func (e *Explanation) goneNote() string {
	if e.Gone != "" {
		return fmt.Sprintf("other samples of this are not kept: %s, the last ones at %s",
			cmp.Or(goneTexts[e.Gone], e.Gone), clockOn(e.GoneAt, e.At, "15:04:05"))
	}
	n := 0
	for i := range e.Transactions {
		if e.Transactions[i].Gone != "" {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("other samples of %d of the transactions are not kept (explain them by their ids to see why)", n)
}

var goneTexts = map[string]string{
	"expired": "they were too long ago (--keep)", "evicted": "there was no room for them (--keep-bytes)",
	"no_stack": "they had no stack", "too_large": "their stacks are too large to be kept",
}

// name returns what a transaction is called among others.
func (tx *Transaction) name() string {
	if tx.ID != "" {
		return tx.ID
	}
	return "of trace " + tx.Trace
}

// onCPU returns how long a transaction was on a CPU: exactly, as far as that is known of itself, else by samples.
func (tx *Transaction) onCPU() time.Duration {
	if a := tx.Account; a != nil && !a.WholeTrace {
		return max(a.OnCPU, min(tx.CPU, a.OnCPU+a.Unaccounted))
	}
	return tx.CPU
}

func (tx *Transaction) attributeTexts() (texts []string) {
	for _, key := range slices.Sorted(maps.Keys(tx.Attributes)) {
		texts = append(texts, key+"="+tx.Attributes[key])
	}
	return texts
}

// times says when a transaction was seen, and how much of that time it was on a CPU.
func (tx *Transaction) times() string {
	const clock = "15:04:05.000"
	from := clockOn(tx.first, tx.at, clock)
	var text string
	if a := tx.Account; a != nil {
		wall := tx.Wall
		if a.WholeTrace {
			wall = a.Wall
		}
		of := func(d time.Duration) string { return ofWall(share(d, wall)) }
		whole := ""
		if a.WholeTrace {
			whole = "of the " + waits.Exactly(wall) + " of the trace in this process, "
		}
		text = fmt.Sprintf("%s %s, %s to %s: %son a CPU %s, waiting for one %s, blocked %s", waits.Exactly(tx.Wall),
			wallTexts[tx.WallSource], from, tx.first.Add(tx.Wall).Local().Format(clock), whole, of(a.OnCPU),
			of(a.Runnable+a.Throttled), of(a.Blocked))
		if unaccounted := share(a.Unaccounted, wall); unaccounted >= 0.01 {
			text += ", on a CPU in this or another " + ofWall(unaccounted)
		}
		if missing := share(a.NoThread, wall); missing >= 0.01 {
			text += ", on no known thread " + ofWall(missing)
		}
	} else {
		last := tx.Last
		if tx.WallSource == "span" {
			last = tx.first.Add(tx.Wall)
		}
		text = fmt.Sprintf("%s of CPU time in %s %s, %s to %s: %s", lasted(tx.CPU), lasted(tx.Wall),
			wallTexts[tx.WallSource], from, last.Local().Format(clock), ofWall(tx.Share))
	}
	if tx.Earlier > 0 {
		text += fmt.Sprintf("; before that, %d samples since %s, which are no longer kept", tx.Earlier,
			clockOn(tx.First, tx.at, clock))
	}
	return text
}

// ofWall returns how much of a time something was on a CPU.
func ofWall(share float64) string {
	if share > 1.05 {
		return fmt.Sprintf("%.1f CPUs", share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// lasted returns a duration in the precision of samples.
func lasted(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return waits.Exactly(d)
}
