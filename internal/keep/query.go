package keep

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"correlator/profile"
)

// Answer answers a query. The error is one of its regular expression.
func (s *Store) Answer(q Query, now time.Time) (*Answer, error) {
	var service *regexp.Regexp
	if q.Service != "" {
		var err error
		if service, err = regexp.Compile(`^(?:` + q.Service + `)$`); err != nil {
			return nil, fmt.Errorf("reading the name of services: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.statsNow()
	a := &Answer{At: now, Keep: s.period, Oldest: stats.Oldest, Kept: stats.Samples, Evicted: stats.Evicted}
	found := s.find(q.ID, func(tx *transaction) bool {
		return (service == nil || service.MatchString(tx.process.resource.Name)) && tx.last >= since(q.Since)
	})
	if ids := distinct(q.ID, found); len(ids) > 1 {
		a.Ambiguous = ids[:min(len(ids), MaxTransactions)]
		return a, nil
	}
	if id, err := hex.DecodeString(q.ID); err == nil && len(found) == 0 {
		why, at := s.gone.find(id)
		a.Gone, a.GoneAt = goneNames[why], at
	}
	order(found, q.Order)
	most := MaxTransactions
	if q.Most > 0 && q.Most < most {
		most = q.Most
	}
	a.More = max(len(found)-most, 0)
	w := writer{answer: a, processes: make(map[*process]int), files: make(map[*profile.File]int),
		frames: make(map[*frame]uint32), stacks: make(map[*stack]int)}
	w.write(s, found[:min(len(found), most)])
	return a, nil
}

func since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// spanDigits is the length of the id of a span.
const spanDigits = 16

// find returns the transactions of a trace, a transaction or a span whose id begins so.
func (s *Store) find(id string, wanted func(*transaction) bool) (found []*transaction) {
	begins := newPrefix(id)
	for tx := range s.transactions {
		if begins.has(tx.id.trace[:]) || tx.id.transaction != [8]byte{} && begins.has(tx.id.transaction[:]) {
			if !wanted(tx) {
				continue
			}
			found = append(found, tx)
		}
	}
	if len(found) > 0 || len(id) != spanDigits {
		return found
	}
	span, err := hex.DecodeString(id)
	if err != nil {
		return nil
	}
	for e := range s.entries {
		if tx := e.transaction; bytes.Equal(e.span[:], span) && wanted(tx) && !slices.Contains(found, tx) {
			found = append(found, tx)
		}
	}
	return found
}

// prefix is how an id begins.
type prefix struct {
	bytes []byte
	half  bool // there is a digit more
	digit byte // in the upper half
}

// newPrefix returns the prefix in hexadecimal digits; of anything else it is one that no id has.
func newPrefix(digits string) (p prefix) {
	even := digits
	if p.half = len(digits)%2 == 1; p.half {
		even = digits + "0"
	}
	all, err := hex.DecodeString(even)
	if err != nil {
		return prefix{bytes: make([]byte, len(transactionID{}.trace)+1)}
	}
	if p.half {
		p.digit, all = all[len(all)-1], all[:len(all)-1]
	}
	p.bytes = all
	return p
}

func (p *prefix) has(id []byte) bool {
	if !bytes.HasPrefix(id, p.bytes) {
		return false
	}
	return !p.half || len(id) > len(p.bytes) && id[len(p.bytes)]&0xf0 == p.digit
}

// transactions yields all transactions.
func (s *Store) transactions(yield func(*transaction) bool) {
	for _, o := range s.owners {
		for _, p := range o.processes {
			for _, tx := range p.transactions {
				if !yield(tx) {
					return
				}
			}
		}
	}
}

// entries yields all that is counted.
func (s *Store) entries(yield func(*entry) bool) {
	for _, o := range s.owners {
		for _, slice := range o.slices {
			for i := range slice.entries {
				if !yield(&slice.entries[i]) {
					return
				}
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

// distinct returns the ids of traces and of transactions that begin with a prefix, if that is more than
// one: a trace and its transactions are one.
func distinct(prefix string, found []*transaction) (ids []string) {
	if prefix == "" {
		return nil
	}
	known := make(map[string]bool)
	for _, tx := range found {
		for _, id := range []string{tx.traceText(), tx.text()} {
			if strings.HasPrefix(id, prefix) && !known[id] {
				known[id] = true
				ids = append(ids, id)
			}
		}
	}
	if slices.Contains(ids, prefix) {
		return nil
	}
	slices.Sort(ids)
	return ids
}

func order(found []*transaction, by Order) {
	slices.SortFunc(found, func(a, b *transaction) int {
		var first int
		if by == Slowest {
			first = cmp.Compare(b.last-b.first, a.last-a.first)
		}
		return cmp.Or(first, cmp.Compare(b.samples, a.samples), cmp.Compare(a.first, b.first),
			bytes.Compare(a.id.trace[:], b.id.trace[:]), bytes.Compare(a.id.transaction[:], b.id.transaction[:]),
			cmp.Compare(a.process.resource.PID, b.process.resource.PID))
	})
}

// writer writes transactions into an answer, all that they share once.
type writer struct {
	answer    *Answer
	processes map[*process]int
	files     map[*profile.File]int
	frames    map[*frame]uint32
	stacks    map[*stack]int
}

func (w *writer) write(s *Store, selected []*transaction) {
	for i, tx := range selected {
		tx.selected = int32(i + 1)
		w.answer.Transactions = append(w.answer.Transactions, w.transaction(tx))
	}
	counts := make(map[entryKey]uint64)
	var keys []entryKey // in the order of time
	for _, slice := range slicesOf(selected) {
		for i := range slice.entries {
			e := &slice.entries[i]
			if e.transaction.selected == 0 {
				continue
			}
			if _, known := counts[e.entryKey]; !known {
				keys = append(keys, e.entryKey)
			}
			counts[e.entryKey] += uint64(e.count)
		}
	}
	for _, key := range keys {
		sample := Sample{Transaction: int(key.transaction.selected) - 1, Stack: w.stack(key.stack), TID: int(key.tid),
			Count: counts[key]}
		if key.span != [8]byte{} {
			sample.Span = hexadecimal(key.span[:])
		}
		if th := key.transaction.process.threads[key.tid]; th != nil {
			sample.Thread = th.name
		}
		w.answer.Samples = append(w.answer.Samples, sample)
	}
	for _, tx := range selected {
		tx.selected = 0
	}
}

// maxDelay is how much later than it was taken a sample is added at most: the longest samples-delay, twice.
const maxDelay = 2 * time.Minute

// slicesOf returns the slices that may have samples of transactions: Add waits while they are looked at.
func slicesOf(selected []*transaction) (all []*timeSlice) {
	type interval struct{ first, last int64 }
	owners := make(map[*owner]interval)
	for _, tx := range selected {
		in, known := owners[tx.process.owner]
		if !known {
			in = interval{tx.first, tx.last}
		}
		owners[tx.process.owner] = interval{min(in.first, tx.first), max(in.last, tx.last)}
	}
	for o, in := range owners {
		for _, slice := range o.slices {
			tooEarly := slice.ended != 0 && slice.ended < in.first-int64(maxDelay)
			if !tooEarly && slice.began <= in.last+int64(maxDelay) {
				all = append(all, slice)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *timeSlice) int { return cmp.Compare(a.began, b.began) })
	return all
}

func (w *writer) transaction(tx *transaction) Transaction {
	made := Transaction{Trace: tx.traceText(), ID: tx.text(), Process: w.process(tx.process),
		Context: tx.context.String(), First: time.Unix(0, tx.first), Last: time.Unix(0, tx.last), Samples: tx.samples,
		Earlier: tx.earlier}
	for key, value := range tx.attributes.All() {
		if made.Attributes == nil {
			made.Attributes = make(map[string]string)
		}
		made.Attributes[key] = value
	}
	return made
}

func (w *writer) process(p *process) int {
	i, known := w.processes[p]
	if !known {
		i = len(w.answer.Processes)
		w.processes[p] = i
		r := p.resource
		w.answer.Processes = append(w.answer.Processes, Process{PID: r.PID, StartTime: r.Process.StartTime,
			Service: r.Name, Environment: r.Environment, ContainerID: r.ContainerID})
	}
	return i
}

func (w *writer) stack(st *stack) int {
	i, known := w.stacks[st]
	if !known {
		i = len(w.answer.Stacks)
		w.stacks[st] = i
		frames := make([]uint32, len(st.frames))
		for j, f := range st.frames {
			frames[j] = w.frame(f)
		}
		w.answer.Stacks = append(w.answer.Stacks, frames)
	}
	return i
}

func (w *writer) frame(f *frame) uint32 {
	if i, known := w.frames[f]; known {
		return i
	}
	made := Frame{Kind: f.Kind(), Address: f.Address, Line: f.Line}
	if f.File != nil {
		file := w.file(f.File)
		made.File = &file
	}
	function := f.function
	if function == nil {
		function = f.Function
	}
	if function != nil {
		made.Function, made.Source = function.Name, function.SourceFile
	}
	i := uint32(len(w.answer.Frames))
	w.frames[f] = i
	w.answer.Frames = append(w.answer.Frames, made)
	return i
}

func (w *writer) file(f *profile.File) int {
	i, known := w.files[f]
	if !known {
		i = len(w.answer.Files)
		w.files[f] = i
		w.answer.Files = append(w.answer.Files, File{ID: f.ID, Kind: f.Kind, BuildID: f.BuildID, Path: f.Path})
	}
	return i
}
