package explain

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/flamegraph"
	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/report"
	"correlator/internal/out/waits"
	"correlator/profile"
)

// Comparison is where A spent time that B did not, and the other way round. Times of a Side are sums of all that has
// an id, else those of one transaction in the mean.
type Comparison struct {
	A       *Side       `json:"a"`
	B       *Side       `json:"b"`
	InBoth  int         `json:"transactions_in_both"`
	States  []*Spent    `json:"states"`  // the wall time, then by the difference
	Methods []*Compared `json:"methods"` // callers before what they call

	root  *Compared
	waits bool // those of both are known
}

// Side is one of what is compared.
type Side struct {
	*Explanation
	Mean     bool `json:"mean"`              // else times are sums
	Accounts int  `json:"accounts"`          // that states are of
	Known    int  `json:"with_account"`      // transactions
	Partial  int  `json:"partial_accounts"`  // transactions of which an earlier part is missing
	InMean   int  `json:"transactions_mean"` // by how many times of methods are divided

	answered *answered
	spent    spent
}

// Pair is a time in both; nil: it is not known.
type Pair struct {
	A          *time.Duration `json:"a_ns"`
	B          *time.Duration `json:"b_ns"`
	Difference *time.Duration `json:"difference_ns"` // how much more A has
}

// Spent is a time in a state, or in a place in it.
type Spent struct {
	Name string `json:"name"`
	Pair
	TimesA   float64  `json:"a_times,omitempty"`
	TimesB   float64  `json:"b_times,omitempty"`
	EndedByA string   `json:"a_ended_by,omitempty"`
	EndedByB string   `json:"b_ended_by,omitempty"`
	Places   []*Spent `json:"places,omitempty"`

	text string // of a state
}

// Compared is a method below its callers.
type Compared struct {
	Name     string `json:"name"`
	File     string `json:"file,omitempty"`
	CPU      Pair   `json:"cpu"`
	SelfCPU  Pair   `json:"self_cpu"`
	Wait     Pair   `json:"wait"`
	SelfWait Pair   `json:"self_wait"`
	Caller   int    `json:"caller"` // its place in Comparison.Methods; -1: it is an outermost one

	a, b  *Method
	time  Pair          // CPU and waits
	moved time.Duration // the differences of it and what it calls, without sign
	calls []*Compared
}

func newPair(a, b *time.Duration) Pair {
	if a == nil || b == nil {
		return Pair{A: a, B: b}
	}
	difference := *a - *b
	return Pair{a, b, &difference}
}

// more returns the difference, as far as it is known.
func (p *Pair) more() time.Duration {
	switch {
	case p.Difference != nil:
		return *p.Difference
	case p.A != nil:
		return *p.A
	case p.B != nil:
		return -*p.B
	}
	return 0
}

func newSide(of *answered) *Side {
	s := &Side{Explanation: of.Explanation, Mean: of.query.ID == "", answered: of, spent: of.spent(), InMean: 1}
	s.Accounts, s.Known, s.Partial = s.spent.accounts, s.spent.known, s.spent.partial
	if s.Mean {
		s.InMean = len(s.Transactions)
	}
	return s
}

// state returns a sum over accounts as it is compared.
func (s *Side) state(sum time.Duration) *time.Duration {
	if s.Accounts == 0 {
		return nil
	}
	if s.Mean {
		sum /= time.Duration(s.Accounts)
	}
	return &sum
}

func (s *Side) times(count uint64) float64 {
	if s.Mean && s.Accounts > 0 {
		return float64(count) / float64(s.Accounts)
	}
	return float64(count)
}

// method returns a sum over all transactions as it is compared.
func (s *Side) method(sum time.Duration) *time.Duration {
	sum /= time.Duration(s.InMean)
	return &sum
}

// wallTime returns the wall time, and what that is, as Account.WallSource; empty: it is not the same of all. It is of
// transactions with an account, whose states add up to it, if there are any.
func (s *Side) wallTime() (wall *time.Duration, source string) {
	var sum time.Duration
	sources := make(map[string]bool)
	for i := range s.Transactions {
		tx := &s.Transactions[i]
		if sum += tx.Wall; s.Accounts == 0 {
			sources[tx.WallSource] = true
		} else if tx.Account != nil {
			sources[tx.Account.WallSource] = true
		}
	}
	if len(sources) == 1 {
		source = slices.Collect(maps.Keys(sources))[0]
	}
	if s.Accounts > 0 {
		return s.state(s.spent.wall), source
	}
	return s.method(sum), source
}

// wait returns a sum of waits over all transactions as it is compared; nil: it is not known. A mean is of transactions
// that each have an account of their own, as that of states: else the two would be of different ones.
func (s *Side) wait(sum time.Duration) *time.Duration {
	if s.Mean && s.Accounts != len(s.Transactions) || s.Accounts == 0 && len(s.answered.recording.Waits) == 0 {
		return nil
	}
	return s.method(sum)
}

// errPeriods: samples of two agents are no comparison.
var errPeriods = errors.New("the agent began anew in between: ask again")

func encodeComparison(options Options, one, other *answered, stdout io.Writer) ([]byte, error) {
	if one.PerSample != other.PerSample {
		return nil, errPeriods
	}
	c := compare(one, other)
	return encodeAs(options.Format, options.File, stdout, c, func() ([]byte, error) { return c.page() })
}

func compare(one, other *answered) *Comparison {
	c := &Comparison{A: newSide(one), B: newSide(other)}
	type id struct {
		trace, transaction string
		pid                int
	}
	ofA := make(map[id]bool)
	for _, tx := range c.A.Transactions {
		ofA[id{tx.Trace, tx.ID, tx.PID}] = true
	}
	for _, tx := range c.B.Transactions {
		if ofA[id{tx.Trace, tx.ID, tx.PID}] {
			c.InBoth++
		}
	}
	c.addStates()
	c.waits = c.A.wait(0) != nil && c.B.wait(0) != nil
	var above func(*record.Process) string
	services := make(map[string]bool)
	for _, p := range slices.Concat(one.recording.Processes, other.recording.Processes) {
		services[p.Service] = true
	}
	if len(services) > 1 {
		above = func(p *record.Process) string { return cmp.Or(p.Service, "process") }
	}
	c.root = c.method("", "", newRoot(one.recording, above), newRoot(other.recording, above))
	c.flatten(c.root.calls, -1)
	return c
}

func (c *Comparison) flatten(methods []*Compared, caller int) {
	for _, m := range methods {
		m.Caller = caller
		c.Methods = append(c.Methods, m)
		c.flatten(m.calls, len(c.Methods)-1)
	}
}

// addStates compares what threads did, and where.
func (c *Comparison) addStates() {
	a, sourceA := c.A.wallTime()
	b, sourceB := c.B.wallTime()
	wall := &Spent{Name: "wall", text: "wall", Pair: newPair(a, b)}
	if sourceA != sourceB || sourceA == "" { // spans are longer than what samples tell
		wall.Difference = nil
	}
	c.States = []*Spent{wall}
	places := c.places()
	for state := range profile.ThreadStates {
		of := [2]profile.StateTimes{c.A.spent.times[state], c.B.spent.times[state]}
		if of[0].Count+of[1].Count == 0 {
			continue
		}
		s := c.spent(state.String(), of)
		s.text = waits.State(state)
		for _, p := range places[state] {
			row := c.spent(p.text(), [2]profile.StateTimes{p.of[0].StateTimes, p.of[1].StateTimes})
			row.EndedByA, row.EndedByB = p.of[0].EndedBy(), p.of[1].EndedBy()
			s.Places = append(s.Places, row)
			for side := range of {
				of[side].Sum = max(0, of[side].Sum-p.of[side].Sum)
				of[side].Count -= min(of[side].Count, p.of[side].Count)
			}
		}
		if len(s.Places) > 0 && max(of[0].Sum, of[1].Sum) >= time.Microsecond {
			s.Places = append(s.Places, c.spent("no stack", of))
		}
		sortSpent(s.Places)
		c.States = append(c.States, s)
	}
	if a, b := c.A.spent.noThread, c.B.spent.noThread; max(a, b) >= time.Microsecond {
		s := c.spent("no_thread", [2]profile.StateTimes{{Sum: a}, {Sum: b}})
		s.text = "on no known thread"
		if sourceA != "span" || sourceB != "span" { // it is a part of spans
			s.Difference = nil
		}
		c.States = append(c.States, s)
	}
	sortSpent(c.States[1:])
}

func (c *Comparison) spent(name string, of [2]profile.StateTimes) *Spent {
	return &Spent{Name: name, Pair: newPair(c.A.state(of[0].Sum), c.B.state(of[1].Sum)),
		TimesA: c.A.times(of[0].Count), TimesB: c.B.times(of[1].Count)}
}

func sortSpent(all []*Spent) {
	size := func(s *Spent) time.Duration {
		return max(*cmp.Or(s.A, new(time.Duration)), *cmp.Or(s.B, new(time.Duration)))
	}
	slices.SortFunc(all, func(a, b *Spent) int {
		return cmp.Or(cmp.Compare(b.more(), a.more()), cmp.Compare(size(b), size(a)), cmp.Compare(a.Name, b.Name))
	})
}

// placeTimes are waits in a place. What they were for tells them apart if both sides have that: else, as with the port
// of a client, it is no difference.
type placeTimes struct {
	place string
	of    [2]waits.Total
	texts [2]map[string]bool // with what they were for
}

// text returns the place with what the waits were for: of each side, if that is one thing.
func (p *placeTimes) text() string {
	all := maps.Clone(p.texts[0])
	maps.Copy(all, p.texts[1])
	if len(all) == 1 {
		return slices.Collect(maps.Keys(all))[0]
	}
	var of []string
	for side, texts := range p.texts {
		cause := fmt.Sprintf("%d others", len(texts))
		if len(texts) == 1 {
			cause = strings.TrimSpace(strings.TrimPrefix(slices.Collect(maps.Keys(texts))[0], p.place))
		}
		if len(texts) > 0 {
			of = append(of, sideNames[side]+": "+cmp.Or(cause, "not known"))
		}
	}
	return p.place + "  " + strings.Join(of, ", ")
}

var sideNames = [2]string{"A", "B"}

// places returns where threads waited, of transactions with an account.
func (c *Comparison) places() map[profile.ThreadState][]*placeTimes {
	type placeID struct {
		state profile.ThreadState
		text  string
	}
	each := func(do func(side int, id placeID, w *Wait)) {
		for side, of := range []*Side{c.A, c.B} {
			for i := range of.Transactions {
				for j := range of.Transactions[i].Waits {
					if w := &of.Transactions[i].Waits[j]; w.text != "" && of.Transactions[i].Account != nil {
						do(side, placeID{w.state, w.text}, w)
					}
				}
			}
		}
	}
	in := [2]map[placeID]bool{make(map[placeID]bool), make(map[placeID]bool)}
	each(func(side int, id placeID, _ *Wait) { in[side][id] = true })
	known := make(map[placeID]*placeTimes)
	places := make(map[profile.ThreadState][]*placeTimes)
	each(func(side int, id placeID, w *Wait) {
		if !in[1-side][id] {
			id.text = w.place
		}
		p := known[id]
		if p == nil {
			p = &placeTimes{place: w.place, texts: [2]map[string]bool{make(map[string]bool), make(map[string]bool)}}
			known[id] = p
			places[w.state] = append(places[w.state], p)
		}
		p.of[side].Add(profile.StateTimes{Sum: w.Sum, Longest: w.Longest, Count: w.Count}, w.endedBy)
		p.texts[side][w.text] = true
	})
	return places
}

// method compares a method and what it calls; nil: one side does not have it.
func (c *Comparison) method(name, file string, a, b *Method) *Compared {
	a, b = cmp.Or(a, new(Method)), cmp.Or(b, new(Method))
	m := &Compared{Name: name, File: file, a: a, b: b,
		CPU:      newPair(c.A.method(c.A.cpu(a.Samples)), c.B.method(c.B.cpu(b.Samples))),
		SelfCPU:  newPair(c.A.method(c.A.cpu(a.Self)), c.B.method(c.B.cpu(b.Self))),
		Wait:     newPair(c.A.wait(a.Wait), c.B.wait(b.Wait)),
		SelfWait: newPair(c.A.wait(a.SelfWait), c.B.wait(b.SelfWait))}
	m.time = m.CPU
	m.moved = m.SelfCPU.more().Abs()
	if c.waits {
		m.time = newPair(new(*m.CPU.A+*m.Wait.A), new(*m.CPU.B+*m.Wait.B))
		m.moved += m.SelfWait.more().Abs()
	}
	for key, called := range a.children {
		m.calls = append(m.calls, c.method(key.name, key.file, called, b.children[key]))
	}
	for key, called := range b.children {
		if a.children[key] == nil {
			m.calls = append(m.calls, c.method(key.name, key.file, nil, called))
		}
	}
	for _, called := range m.calls {
		m.moved += called.moved
	}
	slices.SortFunc(m.calls, func(a, b *Compared) int {
		return cmp.Or(cmp.Compare(b.time.more(), a.time.more()), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.File, b.File))
	})
	return m
}

// signed returns a difference; empty: there is none.
func signed(d *time.Duration) string {
	switch {
	case d == nil || d.Abs() < time.Microsecond:
		return ""
	case *d < 0:
		return "-" + waits.Exactly(-*d)
	}
	return "+" + waits.Exactly(*d)
}

func exactly(d *time.Duration) string {
	if d == nil {
		return "?"
	}
	return waits.Exactly(*d)
}

// lines returns a comparison as text for a terminal with so many columns; 0: it is none.
func (c *Comparison) lines(columns int) (lines []string) {
	lines = below(escaped(c.notes()), trimmed(c.stateTable().Lines(columns)))
	if len(c.root.calls) > 0 {
		lines = below(lines, trimmed(c.treeTable().Lines(columns)))
	}
	return lines
}

// notes says what is compared, and what is not in the numbers.
func (c *Comparison) notes() (notes []string) {
	for i, s := range []*Side{c.A, c.B} {
		for j, line := range s.head() {
			prefix := sideNames[i] + ": "
			if j > 0 {
				prefix = "   "
			}
			notes = append(notes, prefix+line)
		}
	}
	if c.InBoth > 0 {
		notes = append(notes, fmt.Sprintf("%d of the transactions are in both", c.InBoth))
	}
	if !c.waits {
		notes = append(notes, "waits of methods are not compared: not each transaction has an account of its own")
	}
	return notes
}

// head says what a side is, and what is not in its numbers.
func (s *Side) head() (lines []string) {
	n := len(s.Transactions)
	if n == 1 {
		lines = s.Transactions[0].head()
	} else {
		what, how := fmt.Sprintf("the %d %s transactions", n, s.answered.query.Order), "the mean of one"
		if !s.Mean {
			what, how = fmt.Sprintf("%d transactions of %s", n, s.answered.query.ID), "sums"
		}
		sources := make(map[string]int)
		least, most := s.Transactions[0].Wall, s.Transactions[0].Wall
		for i := range s.Transactions {
			sources[wallTexts[s.Transactions[i].WallSource]]++
			least, most = min(least, s.Transactions[i].Wall), max(most, s.Transactions[i].Wall)
		}
		var of []string
		for _, text := range slices.Sorted(maps.Keys(sources)) {
			of = append(of, fmt.Sprintf("%d %s", sources[text], text))
		}
		lines = []string{what + ", of which times are " + how, fmt.Sprintf("%s to %s, %s", waits.Exactly(least),
			waits.Exactly(most), strings.Join(of, ", "))}
	}
	lines = append(lines, fmt.Sprintf("%d samples, each of %s of CPU time", s.Samples, waits.Exactly(s.PerSample)))
	if !s.Mean && s.More > 0 {
		lines = append(lines, fmt.Sprintf("%d transactions more of it are left out", s.More))
	}
	if s.Known == 0 {
		lines = append(lines, "what threads did is not known")
	} else {
		for _, note := range s.spent.notes(n) {
			lines = append(lines, "states: "+note)
		}
	}
	if s.Accounts < s.Known {
		lines = append(lines, fmt.Sprintf("states: of %d transactions in %d accounts, each of a whole trace", s.Known,
			s.Accounts))
	}
	if n := s.withoutSpan(); s.Mean && s.answered.query.Order == keep.Fastest && n > 0 {
		lines = append(lines, fmt.Sprintf("%d of them may go on: without a span it is not known when they end", n))
	}
	return slices.Concat(lines, s.Explanation.notes(), s.inlined)
}

func (s *Side) withoutSpan() (n int) {
	for i := range s.Transactions {
		if s.Transactions[i].WallSource != "span" {
			n++
		}
	}
	return n
}

func (c *Comparison) stateTable() *terminal.Table {
	t := terminal.NewTable(terminal.Column{Title: "STATE OF THREADS", Shrink: true},
		terminal.Column{Title: "A", Right: true}, terminal.Column{Title: "B", Right: true},
		terminal.Column{Title: "DIFFERENCE", Right: true}, terminal.Column{Title: "TIMES A", Right: true, Spare: 1},
		terminal.Column{Title: "TIMES B", Right: true, Spare: 2},
		terminal.Column{Title: "ENDED BY", Shrink: true, Spare: 3})
	row := func(text string, s *Spent) {
		count := func(n float64, of *time.Duration) string {
			if of == nil || s.Name == "wall" || s.Name == "no_thread" {
				return " "
			}
			return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0")
		}
		ended := s.EndedByA
		if s.more() < 0 {
			ended = s.EndedByB
		}
		difference := signed(s.Difference)
		if s.Difference == nil && s.A != nil && s.B != nil {
			difference = "?"
		}
		t.Row(text, exactly(s.A), exactly(s.B), difference, count(s.TimesA, s.A), count(s.TimesB, s.B),
			cmp.Or(ended, " "))
	}
	for _, s := range c.States {
		row(s.text, s)
		for _, of := range cutPlaces(s.Places) {
			row("  "+of.Name, of)
		}
	}
	return t
}

// cutPlaces returns the places that a table has room for: those with the largest differences.
func cutPlaces(all []*Spent) []*Spent {
	if len(all) <= maxPlaces {
		return all
	}
	largest := slices.Clone(all)
	slices.SortFunc(largest, func(a, b *Spent) int {
		return cmp.Or(cmp.Compare(b.more().Abs(), a.more().Abs()), cmp.Compare(a.Name, b.Name))
	})
	rest := &Spent{Name: fmt.Sprintf("... %d more", len(all)-maxPlaces),
		Pair: newPair(new(time.Duration), new(time.Duration))}
	for _, s := range largest[maxPlaces:] {
		rest.add(s)
	}
	shown := largest[:maxPlaces:maxPlaces]
	sortSpent(shown)
	return append(shown, rest)
}

// add adds times of which both are known, or neither.
func (s *Spent) add(o *Spent) {
	if s.A = sum(s.A, o.A); s.A != nil {
		s.TimesA += o.TimesA
	}
	if s.B = sum(s.B, o.B); s.B != nil {
		s.TimesB += o.TimesB
	}
	s.Pair = newPair(s.A, s.B)
}

func sum(a, b *time.Duration) *time.Duration {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

// treeTable shows the methods: those which differ, from that of which A has most more to that of which B has.
func (c *Comparison) treeTable() *terminal.Table {
	columns := []terminal.Column{{Title: "DIFFERENCE", Right: true}, {Title: "A", Right: true},
		{Title: "B", Right: true}, {Title: "CPU", Right: true, Spare: 3}, {Title: "WAIT", Right: true, Spare: 4},
		{Title: "SELF CPU", Right: true, Spare: 1}, {Title: "SELF WAIT", Right: true, Spare: 2},
		{Title: "METHOD", Shrink: true}}
	t := terminal.NewTable(columns...)
	layout := &layout[*Compared]{
		calls: func(m *Compared) []*Compared { return m.calls },
		few: func(m *Compared) bool {
			of := max(*c.root.time.A, *c.root.time.B)
			chance := max(m.a.Samples, m.b.Samples) <= 1 && c.root.a.Samples+c.root.b.Samples >= fewOf &&
				(!c.waits || m.a.Wait+m.b.Wait == 0)
			return m.moved == 0 || m.moved < of/leastPart || chance
		},
		same: func(caller, m *Compared) bool {
			return m.a.Samples == caller.a.Samples && m.a.Wait == caller.a.Wait &&
				m.b.Samples == caller.b.Samples && m.b.Wait == caller.b.Wait
		},
	}
	for _, of := range layout.rows(c.root.calls) {
		indent := strings.Repeat(" ", of.depth)
		switch {
		case len(of.more) > 0:
			var a, b time.Duration
			for _, m := range of.more {
				a, b = a+*m.time.A, b+*m.time.B
			}
			rest := newPair(&a, &b)
			t.Row(signed(rest.Difference), exactly(rest.A), exactly(rest.B), "", "", "", "",
				fmt.Sprintf("%s... %d more", indent, len(of.more)))
		case of.hidden > 0:
			t.Row("", "", "", "", "", "", "", indent+hiddenText(of.hidden))
		default:
			m, place := of.method, of.method.a.place()
			t.Row(signed(m.time.Difference), exactly(m.time.A), exactly(m.time.B), signed(m.CPU.Difference),
				signed(m.Wait.Difference), signed(m.SelfCPU.Difference), signed(m.SelfWait.Difference),
				strings.TrimRight(indent+m.Name+"  "+cmp.Or(place, m.b.place()), " "))
		}
	}
	return t
}

// page returns a differential flame graph.
func (c *Comparison) page() ([]byte, error) {
	about := report.About{Title: "correlator explain: A against B", Notes: append(
		[]string{c.A.At.Local().Format(time.RFC1123Z)}, c.notes()...)}
	shown := func(s *Side, name string) report.Side {
		lines, recording := s.head(), *s.answered.recording
		if !c.waits {
			recording.Waits = nil
		}
		return report.Side{Recording: &recording, Of: s.InMean,
			Group: flamegraph.Group{Name: name, Detail: name + ": " + lines[0]}}
	}
	return report.EncodeDifference(shown(c.A, "A"), shown(c.B, "B"), about)
}
