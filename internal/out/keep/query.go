package keep

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"time"

	"correlator/profile"
	"correlator/profile/ids"
)

// step is how many transactions or samples a query looks at, and copies, before it releases the lock that
// Add waits for. All else it does without the lock. That Add gets it then, sync.Mutex sees to: it is handed
// to who has waited for a millisecond.
const step = 1024

// Answer answers a query; queries wait for each other. The error is one of its regular expression, or that
// of the context. Samples that come meanwhile may be in the answer or not.
func (s *Store) Answer(ctx context.Context, q Query, now time.Time) (*Answer, error) {
	f := finder{store: s, ctx: ctx, query: q, begins: ids.NewPattern(q.ID), ids: make(map[string]struct{}),
		most: MaxTransactions}
	if q.Service != "" {
		var err error
		if f.service, err = regexp.Compile(`^(?:` + q.Service + `)$`); err != nil {
			return nil, fmt.Errorf("reading the name of services: %w", err)
		}
	}
	if q.Most > 0 && q.Most < f.most {
		f.most = q.Most
	}
	s.querying.Lock()
	defer s.querying.Unlock()
	s.mu.Lock()
	s.clock.Look(now)
	f.settled = s.clock.Ns(now) - int64(settled)
	s.mu.Unlock()
	if !q.Since.IsZero() {
		f.since = q.Since.UnixNano() - s.clock.Behind()
	}
	s.query++
	stats := s.Stats()
	a := &Answer{At: now, Keep: s.period, Oldest: stats.Oldest, Complete: stats.Complete,
		Kept: stats.Samples, Evicted: stats.Evicted}
	if err := f.find(); err != nil {
		return nil, fmt.Errorf("looking for samples: %w", err)
	}
	if !f.exact && len(f.ids) > 1 {
		ids := slices.Sorted(maps.Keys(f.ids))
		a.Ambiguous = ids[:min(len(ids), MaxTransactions)]
		return a, nil
	}
	if len(f.best) == 0 {
		a.Filtered = f.filtered
	}
	a.More = f.found - len(f.best)
	c := newCollector(ctx, s, a)
	if err := c.collect(f.best); err != nil {
		return nil, fmt.Errorf("collecting samples: %w", err)
	}
	s.setGone(a, &f)
	return a, nil
}

// setGone says what is known of samples that are not there: of the transactions, and of what the id is of.
func (s *Store) setGone(a *Answer, f *finder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range a.Transactions {
		tx := &a.Transactions[i]
		tx.Gone, _ = s.goneOf(cmp.Or(tx.ID, tx.Trace))
	}
	if len(a.Transactions) > 0 { // an id of which there are others is ambiguous
		for _, text := range []string{a.Transactions[0].Trace, a.Transactions[0].ID} {
			if id, err := hex.DecodeString(text); f.query.ID != "" && err == nil && f.begins.Matches(id) {
				a.Gone, a.GoneAt = s.goneOf(text)
				return
			}
		}
		return
	}
	asked := f.begins.InFull()
	if only := f.query.Only; only != nil && only.Transaction != [8]byte{} {
		asked = [][]byte{only.Transaction[:]}
	} else if only != nil {
		asked = [][]byte{only.Trace[:]}
	}
	for _, id := range asked {
		if a.Gone == "" {
			a.Gone, a.GoneAt = s.goneOf(hexadecimal(id))
		}
	}
}

// goneOf returns what is known of samples of an id in full that are not there.
func (s *Store) goneOf(text string) (why string, at time.Time) {
	id, err := hex.DecodeString(text)
	if err != nil {
		return "", time.Time{}
	}
	found, ns := s.gone.find(id)
	if found == 0 {
		return "", time.Time{}
	}
	return goneNames[found], s.clock.Time(ns)
}

// finder finds the transactions of a query. What it holds is bounded, whatever there is.
type finder struct {
	store   *Store
	ctx     context.Context
	query   Query
	begins  ids.Pattern
	service *regexp.Regexp // nil: any
	since   int64
	settled int64 // what has ended before is complete
	most    int

	process  *process // of the last candidate, and whether it is wanted
	wanted   bool
	ids      map[string]struct{} // that begin so, up to one more than MaxTransactions
	exact    bool                // the id is one in full: then others that begin so do not matter
	best     []candidate         // in order, the most that are wanted
	found    int
	filtered int // that have the id, and are not wanted
}

// candidate is a copy of a transaction, as it was when it was found.
type candidate struct {
	*transaction // of which only what never changes is read
	first, last  int64
	spanned      *Interval // of the transaction; nil: it is not known
	samples      uint64
	cpu          time.Duration // by its own account, as far as there is one, else by samples
	whole        bool          // it has a span, or an account from its begin on
	span         [8]byte       // by which it was found; zero: by its own id, or that of its trace
}

// newCandidate copies a transaction. The caller holds the lock.
func (s *Store) newCandidate(tx *transaction, span [8]byte) candidate {
	c := candidate{transaction: tx, first: tx.first, last: tx.last, samples: tx.samples, span: span,
		cpu: time.Duration(tx.samples) * s.perSample}
	if a, wholeTrace := tx.accounted(); a != nil {
		c.first, c.last = min(c.first, a.first), max(c.last, a.last)
		c.whole = !a.partial
		if !wholeTrace {
			exactly := a.times[profile.OnCPU].Sum
			c.cpu = max(exactly, min(c.cpu, exactly+a.times[profile.Unknown].Sum))
		}
	}
	if of := s.span(tx, c.first, c.last); of != nil {
		c.spanned, c.whole = &Interval{s.clock.Time(of.start), s.clock.Time(of.end)}, true
	}
	return c
}

// wall returns how long a transaction was.
func (c *candidate) wall() time.Duration {
	if c.spanned != nil {
		return c.spanned.End.Sub(c.spanned.Start)
	}
	return time.Duration(c.last - c.first)
}

// find finds transactions by their ids, or else by those of their spans.
func (f *finder) find() error {
	if err := f.findTransactions(); err != nil {
		return err
	}
	if f.query.ID == "" || f.found+f.filtered > 0 {
		return nil
	}
	return f.findSpans()
}

// findTransactions looks at all transactions. The maps may change whenever the lock is released: what
// comes and goes during a range over a map may be seen or not (Go's specification), all else is seen.
func (f *finder) findTransactions() error {
	s := f.store
	some, n := make([]candidate, 0, step), 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owners {
		for _, p := range o.processes {
			for tx := range f.query.transactions(p) {
				if tx != nil && tx.entries > 0 && f.hasID(tx) && !tx.isOfOthers() {
					some = append(some, s.newCandidate(tx, [8]byte{}))
				}
				if n++; n%step > 0 {
					continue
				}
				if err := f.addUnlocked(some); err != nil {
					return err
				}
				some = some[:0]
			}
		}
	}
	return f.addUnlocked(some)
}

// transactions yields the transactions of a process that may be wanted, or nil.
func (q *Query) transactions(p *process) iter.Seq[*transaction] {
	if q.Only == nil {
		return p.transactions.values()
	}
	var found *transaction
	if q.Only.Owner == p.owner.name {
		found = p.transactions.get(transactionID{q.Only.Trace, q.Only.Transaction})
	}
	return slices.Values([]*transaction{found})
}

func (f *finder) hasID(tx *transaction) bool {
	return f.query.ID == "" || f.begins.Matches(tx.id.trace[:]) ||
		tx.id.transaction != [8]byte{} && f.begins.Matches(tx.id.transaction[:])
}

// addUnlocked adds candidates without the lock, which the caller holds.
func (f *finder) addUnlocked(some []candidate) error {
	f.store.mu.Unlock()
	defer f.store.mu.Lock()
	for i := range some {
		f.add(some[i])
	}
	return f.ctx.Err()
}

// add adds a transaction that has the id.
func (f *finder) add(c candidate) {
	wanted := c.last >= f.since && f.wantsProcess(c.transaction.process)
	if f.query.ID != "" && !f.enterIDs(c, wanted) {
		return
	}
	if !wanted {
		f.filtered++
		return
	}
	f.found++
	i, _ := slices.BinarySearchFunc(f.best, c, f.compare)
	if i < f.most {
		f.best = slices.Insert(f.best, i, c)
		f.best = f.best[:min(len(f.best), f.most)]
	}
}

func (f *finder) wantsProcess(p *process) bool {
	if p != f.process { // transactions come by the process
		f.process, f.wanted = p, f.service == nil || f.service.MatchString(p.resource.Name)
	}
	return f.wanted
}

// enterIDs takes note of the ids of a candidate that begin as the query's, and reports whether one is asked
// for.
func (f *finder) enterIDs(c candidate, wanted bool) bool {
	if c.span != [8]byte{} {
		return f.enter(c.span[:], wanted)
	}
	entered := f.enter(c.id.trace[:], wanted)
	if c.id.transaction == [8]byte{} {
		return entered
	}
	return f.enter(c.id.transaction[:], wanted) || entered
}

// enter takes note of an id, and reports whether it is one of those that are asked for.
func (f *finder) enter(id []byte, wanted bool) bool {
	switch {
	case !f.begins.Matches(id):
		return false
	case f.begins.Is(id):
		if !f.exact {
			f.exact, f.best, f.found, f.filtered = true, nil, 0, 0
		}
	case f.exact:
		return false
	case wanted && len(f.ids) <= MaxTransactions:
		f.ids[hexadecimal(id)] = struct{}{}
	}
	return true
}

// settled is how long nothing is heard of a transaction that has ended, as far as that is known without its span. Of
// those that go on, what is known is short, and they may be slow.
const settled = 10 * time.Second

// rank puts those first of which it is known how long they were.
func (f *finder) rank(c *candidate) int {
	if c.whole && (c.spanned != nil || c.last <= f.settled) {
		return 0
	}
	return 1
}

func (f *finder) compare(a, b candidate) int {
	var first int
	switch f.query.Order {
	case Slowest:
		first = cmp.Compare(b.wall(), a.wall())
	case Fastest:
		first = cmp.Or(cmp.Compare(f.rank(&a), f.rank(&b)), cmp.Compare(a.wall(), b.wall()))
	}
	return cmp.Or(first, cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.samples, a.samples),
		cmp.Compare(a.first, b.first),
		bytes.Compare(a.id.trace[:], b.id.trace[:]), bytes.Compare(a.id.transaction[:], b.id.transaction[:]),
		cmp.Compare(a.process.resource.PID, b.process.resource.PID))
}

// findSpans looks at all samples. Each transaction is added once, with the first of its spans that begins
// so.
func (f *finder) findSpans() error {
	all, err := f.slices()
	if err != nil {
		return err
	}
	for _, slice := range all {
		if err := addSpans(f, func() []entry { return slice.entries }); err != nil {
			return err
		}
		if err := addSpans(f, func() []waitEntry { return slice.waits }); err != nil {
			return err
		}
	}
	return nil
}

// addSpans adds the transactions of entries whose spans begin so.
func addSpans[E keyed](f *finder, entries func() []E) error {
	candidates := make([]candidate, 0, step)
	for some, err := range steps(f.ctx, f.store, entries) {
		if err != nil {
			return err
		}
		some = slices.DeleteFunc(some, func(e E) bool { return !f.isNew(e.of()) })
		candidates = candidates[:0]
		f.store.mu.Lock()
		for i := range some {
			if e := some[i].of(); e.transaction.entries > 0 { // it is not forgotten
				candidates = append(candidates, f.store.newCandidate(e.transaction, e.span))
			}
		}
		f.store.mu.Unlock()
		for i := range candidates {
			f.add(candidates[i])
		}
	}
	return nil
}

// isNew reports whether an entry is the first of its transaction with a span that begins so.
func (f *finder) isNew(e entryKey) bool {
	if e.span == [8]byte{} || e.transaction.found == f.store.query || !f.begins.Matches(e.span[:]) {
		return false
	}
	e.transaction.found = f.store.query
	return true
}

// slices returns all slices that there are.
func (f *finder) slices() (all []*timeSlice, err error) {
	n := 0
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for _, o := range f.store.owners {
		all = append(append(append(all, o.slow.slices...), o.slices...), o.waits.slices...)
		if n++; n%step > 0 {
			continue
		}
		if err := f.addUnlocked(nil); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// steps yields copies of what is counted in a slice, some at a time, which is valid until the next. A slice that
// ends or is forgotten meanwhile keeps its entries, and their order.
func steps[E any](ctx context.Context, s *Store, entries func() []E) iter.Seq2[[]E, error] {
	return func(yield func([]E, error) bool) {
		buffer := make([]E, step)
		for at := 0; ; {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			s.mu.Lock()
			n := copy(buffer, entries()[at:])
			s.mu.Unlock()
			at += n
			if n == 0 || !yield(buffer[:n], nil) {
				return
			}
		}
	}
}

func hexadecimal(id []byte) string { return hex.EncodeToString(id) }

func (tx *transaction) traceText() string { return hexadecimal(tx.id.trace[:]) }

// text returns the transaction's id, empty if it is not known.
func (tx *transaction) text() string {
	if tx.id.transaction == [8]byte{} {
		return ""
	}
	return hexadecimal(tx.id.transaction[:])
}
