package explain

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/flamegraph"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/internal/out/waits"
	"correlator/profile"
)

// ProcessOptions say which processes to explain, and how.
type ProcessOptions struct {
	Record record.Options // Accounts is set
	Format report.Format
	File   string // empty: standard output

	// Brief: a table has no methods.
	Brief bool
}

// ProcessExplanation is what the threads of processes did in a while, whether they have contexts or not.
type ProcessExplanation struct {
	At        time.Time     `json:"at"` // when it begins
	Duration  time.Duration `json:"duration_ns"`
	PerSample time.Duration `json:"cpu_ns_per_sample"`
	Samples   uint64        `json:"samples"`
	Processes []Process     `json:"processes"`
	// Account is the sum of those of Threads: wall_ns, too.
	Account *Account        `json:"account"`
	Threads []ProcessThread `json:"threads"` // those that used most of the CPU first
	Methods []*Method       `json:"methods"` // callers before what they call
	Notes   []string        `json:"notes,omitempty"`

	times  profile.Times
	of     *Explanation // whose transactions are threads
	answer *keep.Answer // that it is of
	brief  bool
}

// Process is one of the processes that were looked at.
type Process struct {
	PID         int    `json:"pid"`
	Service     string `json:"service,omitempty"`
	Environment string `json:"environment,omitempty"`
	ContainerID string `json:"container_id,omitempty"`
}

// ProcessThread is a thread, and what it did. The sum of what Account has is its wall_ns: how long it was seen.
type ProcessThread struct {
	PID     int           `json:"pid"`
	TID     int           `json:"tid"`
	Name    string        `json:"name,omitempty"`
	Samples uint64        `json:"samples"`
	CPU     time.Duration `json:"cpu_ns"`            // by samples
	Account *Account      `json:"account,omitempty"` // nil: it was lost
	Waits   []Wait        `json:"waits,omitempty"`   // the longest first
}

// Processes records what processes do, as record does, and writes what their threads did.
func Processes(ctx context.Context, stdout, stderr io.Writer, options ProcessOptions) error {
	if options.File != "" {
		if err := report.CheckFile(options.File); err != nil {
			return err
		}
	}
	options.Record.Accounts, options.Record.Moments = true, options.Format == report.HTML
	recording, notes, err := report.Take(ctx, stderr, options.Record)
	if err != nil {
		return err
	}
	if len(recording.Processes) == 0 {
		return fmt.Errorf("no process was found that is selected (%d could not be read)", recording.Unreadable)
	}
	return WriteProcesses(stdout, stderr, recording, notes, options)
}

// WriteProcesses writes what threads did, as Processes does, by a recording that was taken with accounts and its notes.
func WriteProcesses(stdout, stderr io.Writer, recording *record.Recording, notes []string,
	options ProcessOptions) error {
	p, shown := explainProcesses(recording)
	p.addNotes(recording, notes)
	p.brief = options.Brief
	content, err := p.encode(shown, options, stdout)
	if err != nil {
		return err
	}
	return write(content, options.File, stdout, stderr)
}

func (p *ProcessExplanation) encode(shown *record.Recording, options ProcessOptions, stdout io.Writer) ([]byte, error) {
	return encodeAs(options.Format, options.File, stdout, p, func() ([]byte, error) {
		about := report.About{Title: "correlator explain", Notes: append([]string{p.At.Local().Format(time.RFC1123Z)},
			p.head()...)}
		about.Timeline = func(of report.Shown) *flamegraph.Timeline { return newTimeline(p.answer, shown, p.of, of) }
		return report.Encode(options.Format, shown, about)
	})
}

// threadID is a thread in an answer.
type threadID struct {
	process *record.Process
	tid     int
}

// explainProcesses computes an explanation of a recording with the names of its frames, and the recording whose waits
// are no more than the accounts. Threads are what the transactions of an Explanation are.
func explainProcesses(r *record.Recording) (*ProcessExplanation, *record.Recording) {
	a := &keep.Answer{At: r.Start, SamplesPerSecond: r.SamplesPerSecond}
	shown := *r
	shown.Samples, shown.Waits = make(map[record.Key]uint64), nil
	shown.Stacks = make(map[profile.StackTraceID][]profile.Frame)
	processes := make(map[*record.Process]int)
	for i, p := range r.Processes {
		processes[p] = i
		a.Processes = append(a.Processes, keep.Process{PID: p.PID, Service: p.Service, Environment: p.Environment,
			ContainerID: p.ContainerID})
	}
	threads := make(map[threadID]int)
	names := []string{}
	thread := func(process *record.Process, tid int, name string) int {
		id := threadID{process, tid}
		i, known := threads[id]
		if !known {
			i = len(a.Transactions)
			threads[id] = i
			// The id tells the accounts of threads apart, and is not shown.
			a.Transactions = append(a.Transactions, keep.Transaction{Process: processes[process],
				ID: fmt.Sprintf("%016x", tid), First: r.Start, Last: r.Start.Add(r.Duration), KeptFrom: r.Start})
			names = append(names, "")
		}
		names[i] = cmp.Or(names[i], name)
		return i
	}
	for i := range r.Accounts {
		of := &r.Accounts[i]
		account := &keep.Account{First: of.First, Last: of.First.Add(of.Observed), Partial: r.LostAccounts > 0,
			Times: make(map[profile.ThreadState]profile.StateTimes)}
		for state, times := range of.Times {
			if times.Count > 0 {
				account.Times[profile.ThreadState(state)] = times
			}
		}
		a.Transactions[thread(of.Process, of.TID, of.Thread)].Account = account
	}
	stacks := make(map[profile.StackTraceID]int)
	stack := func(id profile.StackTraceID) int {
		place, known := stacks[id]
		if !known {
			place = len(a.Stacks)
			stacks[id] = place
			a.Stacks = append(a.Stacks, nil) // shown has them
			shown.Stacks[stackID(place)] = r.Stacks[id]
		}
		return place
	}
	// What began before the recording is shown from there on.
	moments := func(of *record.WaitKey) []keep.Moment {
		all := r.Moments[*of]
		for i := range all {
			all[i].First = max(all[i].First, r.Start.UnixNano())
		}
		return all
	}
	for key, samples := range r.Samples {
		sample := keep.Sample{Transaction: thread(key.Process, key.TID, key.Thread), Stack: stack(key.Stack),
			TID: key.TID, Thread: key.Thread, Count: samples, Moments: moments(&record.WaitKey{Key: key})}
		a.Transactions[sample.Transaction].Samples += samples
		a.Samples = append(a.Samples, sample)
		key.Stack, key.TransactionID, key.SpanID = stackID(sample.Stack), [8]byte{}, [8]byte{}
		key.TraceID, key.Attributes = [16]byte{}, profile.Attributes{}
		shown.Samples[key] += samples
	}
	var keys []record.WaitKey
	for key, times := range r.Waits {
		wait := keep.Wait{Transaction: thread(key.Process, key.TID, key.Thread), Stack: stack(key.Stack), TID: key.TID,
			Thread: key.Thread, State: key.State, StateTimes: times, Peer: key.Peer, Path: key.Path,
			Waker: newWaker(&key.Waker), Moments: moments(&key)}
		a.Waits = append(a.Waits, wait)
		key.Stack = stackID(wait.Stack)
		keys = append(keys, key)
	}
	if r.Waits != nil {
		shown.Waits = make(map[record.WaitKey]profile.StateTimes)
	}
	for i, sum := range newShares(a).sums {
		of := shown.Waits[keys[i]]
		of.Add(profile.StateTimes{Sum: sum, Longest: a.Waits[i].Longest, Count: a.Waits[i].Count})
		shown.Waits[keys[i]] = of
	}
	e := &Explanation{PerSample: r.Period(), outermost: newRoot(&shown, aboveOf(&shown)).sorted(byCPU)}
	for i := range a.Transactions {
		tx := &a.Transactions[i]
		e.Samples += tx.Samples
		e.Transactions = append(e.Transactions, Transaction{ID: tx.ID, PID: a.Processes[tx.Process].PID,
			Samples: tx.Samples, CPU: e.cpu(tx.Samples), Account: newAccount(tx.Account, nil)})
	}
	e.addWaits(a, &shown)
	p := &ProcessExplanation{At: r.Start, Duration: r.Duration, PerSample: e.PerSample, Samples: e.Samples,
		Methods: flat(nil, e.outermost, -1), of: e, answer: a}
	for _, of := range a.Processes {
		p.Processes = append(p.Processes, Process{of.PID, of.Service, of.Environment, of.ContainerID})
	}
	for id, i := range threads {
		tx := &e.Transactions[i]
		p.Threads = append(p.Threads, ProcessThread{PID: tx.PID, TID: id.tid, Name: names[i], Samples: tx.Samples,
			CPU: tx.CPU, Account: tx.Account, Waits: tx.Waits})
	}
	p.sum()
	return p, &shown
}

// newWaker returns who ended waits as answers have it.
func newWaker(w *profile.Waker) *keep.Waker {
	if w.Kind == profile.UnknownWaker {
		return nil
	}
	made := &keep.Waker{Source: w.Kind, PID: w.PID, TID: w.TID, Thread: w.Thread, Service: w.Service}
	if w.TraceID != [16]byte{} {
		made.Trace = hex.EncodeToString(w.TraceID[:])
	}
	if w.TransactionID != [8]byte{} {
		made.ID = hex.EncodeToString(w.TransactionID[:])
	}
	return made
}

// sum adds up the accounts of threads, and sorts these.
func (p *ProcessExplanation) sum() {
	all := keep.Account{Times: make(map[profile.ThreadState]profile.StateTimes)}
	for i := range p.Threads {
		of := p.Threads[i].Account
		if of == nil {
			continue
		}
		all.Last = all.Last.Add(of.Wall)
		all.Partial = all.Partial || of.Partial
		for state, times := range of.times {
			p.times[state].Add(times)
		}
	}
	for state, times := range p.times {
		if times.Count > 0 {
			all.Times[profile.ThreadState(state)] = times
		}
	}
	p.Account = newAccount(&all, nil)
	slices.SortFunc(p.Threads, func(a, b ProcessThread) int {
		return cmp.Or(cmp.Compare(b.onCPU(), a.onCPU()), cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.TID, b.TID))
	})
}

func (t *ProcessThread) onCPU() time.Duration { return t.time(profile.OnCPU) }

// time returns how long the thread was in a state. Where its account was lost, samples tell how long it ran.
func (t *ProcessThread) time(state profile.ThreadState) time.Duration {
	switch {
	case t.Account != nil:
		return t.Account.times[state].Sum
	case state == profile.OnCPU:
		return t.CPU
	}
	return 0
}

// time returns how long all threads were in a state.
func (p *ProcessExplanation) time(state profile.ThreadState) (sum time.Duration) {
	for i := range p.Threads {
		sum += p.Threads[i].time(state)
	}
	return sum
}

// addNotes says what is not in the numbers.
func (p *ProcessExplanation) addNotes(r *record.Recording, notes []string) {
	if r.LostAccounts > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d parts of the accounts of threads are missing: there was no room for "+
			"them, or their process had ended", r.LostAccounts))
	}
	if r.Unaccounted > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d switches of threads are in no account: it had not begun, or there "+
			"was no room, as in a process with more than 10,000 threads", r.Unaccounted))
	}
	if r.LostWaits > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the stacks of %d waits are missing: there was no room for more", r.LostWaits))
	}
	still, hasStack := 0, func(w Wait) bool { return w.text != "" }
	for i := range p.Threads {
		if of := &p.Threads[i]; of.Account != nil && of.onCPU() == 0 && !slices.ContainsFunc(of.Waits, hasStack) {
			still++
		}
	}
	if still > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("there is no stack of %s: one is walked when a wait is over",
			terminal.Count(still, "thread that did not run", "threads that did not run")))
	}
	p.Notes = append(p.Notes, notes...)
}

// head says of which processes it is, and how much of a CPU they used.
func (p *ProcessExplanation) head() []string {
	name := fmt.Sprintf("%d processes", len(p.Processes))
	if len(p.Processes) == 1 {
		one := &p.Processes[0]
		name = "process " + strconv.Itoa(one.PID)
		if one.Service != "" {
			name = one.Service + ", pid " + strconv.Itoa(one.PID)
		}
		if one.ContainerID != "" {
			name += ", container " + one.ContainerID[:min(len(one.ContainerID), 12)]
		}
	}
	ran := 0
	for i := range p.Threads {
		if p.Threads[i].onCPU() > 0 {
			ran++
		}
	}
	onCPU := p.time(profile.OnCPU)
	const clock = "15:04:05.000"
	return []string{name, fmt.Sprintf("%s, %s to %s: %s of CPU time (%s), %s, %d of them ran",
		waits.Exactly(p.Duration), p.At.Local().Format(clock), p.At.Add(p.Duration).Local().Format(clock),
		waits.Exactly(onCPU), ofWall(share(onCPU, p.Duration)),
		terminal.Count(len(p.Threads), "thread", "threads"), ran)}
}

// lines returns an explanation as text for a terminal with so many columns; 0: it is none.
func (p *ProcessExplanation) lines(columns int) (lines []string) {
	lines = below(escaped(p.head(), p.Notes), trimmed(p.threadTable().Lines(columns)))
	lines = more(lines, len(p.Threads)-maxThreadRows)
	lines = below(lines, p.of.stateLines(&p.times, "OF SEEN", p.Account.Wall, 0, columns))
	if p.Samples == 0 {
		lines = append(lines, fmt.Sprintf("no CPU sample was taken: one is for every %v of CPU time", p.PerSample))
	}
	if len(p.of.outermost) > 0 && !p.brief {
		lines = below(lines, p.of.treeTable().Lines(columns))
	}
	return lines
}

// stateTitles are short for states in the table of threads.
var stateTitles = [profile.ThreadStates]string{
	profile.OnCPU: "ON CPU", profile.Runnable: "WAIT CPU", profile.Throttled: "THROTTLED", profile.Futex: "LOCK",
	profile.Sleep: "SLEEP", profile.Net: "NETWORK", profile.Unix: "UNIX", profile.Pipe: "PIPE", profile.Poll: "POLL",
	profile.Disk: "DISK", profile.Fault: "FAULT", profile.Other: "OTHER", profile.Unknown: "UNKNOWN",
}

// threadTable has a row for all threads, and for the busiest, and a column for each state that there was.
func (p *ProcessExplanation) threadTable() *terminal.Table {
	columns := []terminal.Column{{Title: "THREAD", Shrink: true}, {Title: "TID", Right: true, Spare: 2},
		{Title: "SEEN", Right: true, Spare: 1}}
	several := len(p.Processes) > 1
	if several {
		columns = slices.Insert(columns, 1, terminal.Column{Title: "PID", Right: true})
	}
	var states []profile.ThreadState
	for state := range profile.ThreadStates {
		if p.time(state) >= time.Microsecond {
			states = append(states, state)
			columns = append(columns, terminal.Column{Title: stateTitles[state], Right: true})
		}
	}
	t := terminal.NewTable(columns...)
	row := func(name, pid, tid string, account *Account, times func(profile.ThreadState) time.Duration) {
		cells := []string{name, tid, ""}
		if account != nil {
			cells[2] = waits.Exactly(account.Wall)
		}
		if several {
			cells = slices.Insert(cells, 1, pid)
		}
		for _, state := range states {
			text := ""
			if sum := times(state); sum > 0 {
				text = waits.Exactly(sum)
			}
			cells = append(cells, text)
		}
		t.Row(cells...)
	}
	row(fmt.Sprintf("all %d", len(p.Threads)), "", "", p.Account, p.time)
	for i := range p.Threads[:min(len(p.Threads), maxThreadRows)] {
		th := &p.Threads[i]
		row(th.Name, strconv.Itoa(th.PID), strconv.Itoa(th.TID), th.Account, th.time)
	}
	return t
}
