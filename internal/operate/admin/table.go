package admin

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/host/sorting"
	"correlator/internal/host/terminal"
	"correlator/internal/out/agent"
	"correlator/internal/stacks/sampling"
	"correlator/internal/stacks/unwind"
	"correlator/messaging"
)

// WriteStatus writes the output of `status`.
func WriteStatus(w io.Writer, s *Status) error {
	columns, _ := terminal.Size(w)
	_, err := io.WriteString(w, strings.Join(newPage(nil, s, columns).lines(0), "\n")+"\n")
	return err
}

func headline(s *Status) string {
	sampling := "samples are fed only"
	switch {
	case s.NoSamples:
		sampling = "no samples"
	case s.SamplesPerSecond > 0:
		sampling = fmt.Sprintf("%d samples/s of every CPU", s.SamplesPerSecond)
	}
	found := "new processes are found by sweeps alone"
	if s.LiveEvents {
		found = "new processes are told by the kernel"
	}
	return fmt.Sprintf("running for %s, %s, %s", age(s.At.Sub(s.StartedAt)), sampling, found)
}

func processTable(s *Status) *terminal.Table {
	table := terminal.NewTable(
		terminal.Column{Title: "PID", Right: true},
		terminal.Column{Title: "SERVICE", Shrink: true},
		terminal.Column{Title: "STATE"},
		terminal.Column{Title: "SINCE", Right: true, Spare: 1},
		terminal.Column{Title: "CONTEXT", Spare: 5},
		terminal.Column{Title: "CONTAINER", Spare: 2},
		terminal.Column{Title: "LIBC", Spare: 4},
		terminal.Column{Title: "TLS", Spare: 3},
		terminal.Column{Title: "SAMPLES", Right: true},
		terminal.Column{Title: "SENT", Right: true},
		terminal.Column{Title: "LATE", Right: true},
		terminal.Column{Title: "DROPPED", Shrink: true},
		terminal.Column{Title: "ERRORS", Right: true},
	)
	for i := range s.Processes {
		p := &s.Processes[i]
		table.Row(strconv.Itoa(p.PID), service(p), p.StateText(), since(s.At, p.RegisteredSince), p.ContextsText(),
			p.ShortContainerID(), p.Libc, p.TLSText(), number(p.Exported+p.Samples-min(p.WithoutTrace, p.Samples)),
			number(p.Sent), number(p.Late), dropped(p.Dropped), errorCount(p))
	}
	for i := range s.Silent {
		p := &s.Silent[i]
		table.Row(strconv.Itoa(p.PID), p.ServiceText(), p.StateText(), "", "", p.ShortContainerID(), "", "", "", "", "",
			"", "")
	}
	return table
}

func service(p *agent.ProcessStatus) string {
	if p.ServiceEnvironment == "" {
		return p.ServiceName
	}
	return p.ServiceName + " (" + p.ServiceEnvironment + ")"
}

func since(now time.Time, at *time.Time) string {
	if at == nil {
		return ""
	}
	return age(now.Sub(*at))
}

// dropped returns numbers of samples, items or messages by reason, the largest first.
func dropped(reasons map[string]uint64) string {
	names := sorting.Sorted(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), strings.Compare(a, b))
	})
	var texts []string
	for _, name := range names {
		if samples := reasons[name]; samples > 0 {
			texts = append(texts, name+" "+number(samples))
		}
	}
	return cmp.Or(strings.Join(texts, ", "), "0")
}

func errorCount(p *agent.ProcessStatus) string {
	if p.LastError == nil {
		return "0"
	}
	return number(p.LastError.Count)
}

// sums is the outcome of all samples with a trace since the agent started.
//
//	samples = sent + late + waiting + the sum of dropped
type sums struct {
	samples, sent, late, waiting uint64
	dropped                      map[string]uint64
}

// newSums adds up the agent's counters. Fed samples of processes that take no part are no loss.
func newSums(counters map[string]uint64) sums {
	s := sums{sent: counters["samples_sent"], dropped: make(map[string]uint64)}
	var dropped uint64 // of those that were queued
	for r := range messaging.NumDropReasons {
		samples := counters["samples_dropped_"+r.String()]
		dropped += samples
		if r == messaging.DropLate || r == messaging.DropAddedLate {
			s.late += samples
		} else {
			s.dropped[r.String()] += samples
		}
	}
	if queued, done := counters["samples_added"], s.sent+dropped; queued > done { // counters are not read atomically
		s.waiting = queued - done
	}
	s.samples = s.sent + dropped + s.waiting
	for o := range process.NumOutcomes {
		if !o.IsLoss() || o.WithoutTrace() {
			continue
		}
		refused := counters["sampled_"+o.String()]
		if o != process.OutcomeUnknownProcess {
			refused += counters["fed_"+o.String()]
		}
		s.dropped[o.String()] += refused
		s.samples += refused
	}
	return s
}

// totals returns lines about all processes since the agent started, including those that are gone.
func totals(s *Status) []string {
	states := make(map[process.State]int)
	for i := range s.Processes {
		states[s.Processes[i].State]++
	}
	var counts []string
	for _, state := range []process.State{process.StateRegistered, process.StateAttached, process.StateReady,
		process.StateNoStorage, process.StateFiltered, process.StateError} {
		if states[state] > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", states[state], state))
		}
	}
	processes := terminal.Count(len(s.Processes), "process", "processes")
	if len(counts) > 0 {
		processes += ": " + strings.Join(counts, ", ")
	}
	if len(s.Silent) > 0 {
		processes += "; " + terminal.Count(len(s.Silent), "JVM", "JVMs") + " whose agent is silent"
	}
	if without := s.WithoutPlace; without.Publishing+without.Others > 0 {
		processes += fmt.Sprintf("; without a place (--max-processes): %d that publish, %d others",
			without.Publishing, without.Others)
	}
	sums := newSums(s.Counters)
	lines := []string{
		processes,
		fmt.Sprintf("samples for APM agents: %s, sent: %s, late: %s, waiting: %s, dropped: %s",
			number(sums.samples), number(sums.sent), number(sums.late), number(sums.waiting), dropped(sums.dropped)),
	}
	if s.Latency.Max > 0 {
		lines = append(lines, fmt.Sprintf("from sample to socket: p50 %s, p99 %s, max %s (promised: %s)",
			duration(s.Latency.P50), duration(s.Latency.P99), duration(s.Latency.Max), duration(s.SamplesDelay)))
	}
	if s.SamplesPerSecond > 0 {
		lines = append(lines, unwinding(s))
	}
	if of := unknownWaits(s.Waits); s.Waits != nil && of != "" {
		lines = append(lines, terminal.Escape(of))
	}
	if of := s.Slow; of != nil {
		lines = append(lines, fmt.Sprintf("slow transactions: %d kept in %s (--keep-slow), %d forgotten for lack of room",
			of.Kept, size(float64(of.Bytes)), of.Forgotten))
	}
	if s.Workers.Hung > 0 {
		lines = append(lines, fmt.Sprintf("%d worker processes hang: processes make the kernel wait (state error, timeout)",
			s.Workers.Hung))
	}
	return lines
}

// unknownWaits is what is not known of what transactions wait for, and why; empty: all is that can be.
func unknownWaits(w *sampling.WaitsStatus) string {
	switch {
	case w == nil:
		return "waits of transactions are not known: the agent does not ask for them (--waits off)"
	case !w.Kept:
		return "waits of transactions are not known: " + w.Error
	case !w.Stacks:
		return "where transactions wait is not known: " + w.StacksError
	case w.StacksError != "":
		return "stacks of waits are walked " + w.StacksError
	}
	return ""
}

// costLine says what the agent takes with its workers: memory now, and CPU on average.
func costLine(s *Status) []string {
	if s.Cost.Processes == 0 {
		return nil // an older agent
	}
	line := "the agent with its workers: " + terminal.Count(s.Cost.Processes, "process", "processes")
	if s.Cost.PSSBytes > 0 {
		line += fmt.Sprintf(", %.1f MB (PSS)", float64(s.Cost.PSSBytes)/(1<<20))
	}
	if ran := s.At.Sub(s.StartedAt); ran > 0 {
		line += fmt.Sprintf(", %.2f %% of a CPU since its start", 100*s.Cost.CPUSeconds/ran.Seconds())
	}
	return []string{line}
}

// unwinding says how stacks are walked.
func unwinding(s *Status) string {
	u := s.Unwinding
	if u == nil {
		return "stacks: walked by frame pointers (--unwinder " + s.Unwinder.String() + ")"
	}
	if err := u.Err(); err != nil {
		return "stacks: walked by frame pointers: " + terminal.Escape(err.Error())
	}
	line := fmt.Sprintf("stacks: unwound in %s, by frame pointers in %d",
		terminal.Count(u.Unwound, "process", "processes"), u.Waiting)
	if u.Native > 0 {
		line += fmt.Sprintf(", as native code alone in %d", u.Native)
	}
	if u.Engine == nil {
		return line
	}
	if n := len(u.Engine.Quarantined); n > 0 {
		line += fmt.Sprintf("; %d left out: the unwinding worker had to be killed", n)
	}
	if u.Engine.WorkerRoot != "" {
		line += "; the unwinding worker is root's: " + terminal.Escape(u.Engine.WorkerRoot)
	}
	if u.Engine.JavaRefused != "" {
		line += "; " + unwind.LossOfJava + ": " + terminal.Escape(u.Engine.JavaRefused)
	}
	if u.Engine.Unreaped > 0 {
		line += fmt.Sprintf("; unwinding workers that hang: %d", u.Engine.Unreaped)
	}
	return line
}

func duration(s agent.Seconds) string { return time.Duration(s).Round(100 * time.Microsecond).String() }

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// age formats a duration in its two largest units: 3d4h, 5h12m, 47s.
func age(d time.Duration) string {
	d = max(d, 0)
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
