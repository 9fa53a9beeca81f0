package explain

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"correlator/internal/out/keep"
	"correlator/internal/out/record"
	"correlator/internal/out/waits"
	"correlator/profile"
)

// maxFrameRows is how many waits have their frames in JSON, those that took longest: the answer shares stacks, and
// JSON does not.
const maxFrameRows = 1000

// Wait is what threads of a transaction waited for: with the same stack, or where none is known. The sums of those that
// block, by transaction, are Account.Blocked; those of kinds runnable and throttled are a part of what is.
type Wait struct {
	Kind    profile.WaitKind `json:"kind"`
	Sum     time.Duration    `json:"ns"`
	Count   uint64           `json:"count,omitzero"`      // 0: not known
	Longest time.Duration    `json:"longest_ns,omitzero"` // 0: not known
	Peer    string           `json:"peer,omitempty"`
	Path    string           `json:"path,omitempty"`
	Futex   string           `json:"futex,omitempty"` // an address
	Waker   *keep.Waker      `json:"waker,omitempty"`
	Frames  []Frame          `json:"frames,omitempty"` // leaf first; nil: no stack is known, or see maxFrameRows

	state   profile.ThreadState
	text    string // of those with a stack
	place   string // text without what was waited for
	endedBy string
}

// Frame is a frame of a wait's stack.
type Frame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line uint32 `json:"line,omitempty"`
}

// addWaits adds the waits of an answer, each with its share of the account.
func addWaits(r *record.Recording, a *keep.Answer) error {
	if len(a.Waits) == 0 {
		return nil
	}
	keys := make([]record.WaitKey, len(a.Waits))
	for i := range a.Waits {
		var err error
		if keys[i], err = waitKeyOf(r, a, &a.Waits[i]); err != nil {
			return err
		}
	}
	r.Waits = make(map[record.WaitKey]profile.StateTimes)
	for i, sum := range newShares(a).sums {
		of := r.Waits[keys[i]]
		of.Add(profile.StateTimes{Sum: sum, Longest: a.Waits[i].Longest, Count: a.Waits[i].Count})
		r.Waits[keys[i]] = of
	}
	return nil
}

func waitKeyOf(r *record.Recording, a *keep.Answer, w *keep.Wait) (made record.WaitKey, err error) {
	of := keep.Sample{Transaction: w.Transaction, Stack: w.Stack, Span: w.Span, TID: w.TID, Thread: w.Thread}
	key, err := keyOf(r, a, &of)
	waker, errWaker := wakerOf(w.Waker)
	errPeer := checkPeer(w.Peer)
	if err := errors.Join(err, errPeer, errWaker); err != nil {
		return made, err
	}
	if w.Stack == keep.LeftOutStack || w.State == profile.OnCPU || w.Sum < 0 || w.Longest < 0 {
		return made, errAnswer
	}
	return record.WaitKey{Key: key, State: w.State, Peer: w.Peer, Path: w.Path, Waker: waker}, nil
}

func checkPeer(text string) error {
	if text == "" {
		return nil
	}
	_, err := netip.ParseAddrPort(text)
	return err
}

func wakerOf(w *keep.Waker) (made profile.Waker, err error) {
	if w == nil {
		return made, nil
	}
	made = profile.Waker{Kind: w.Source, PID: w.PID, TID: w.TID, Thread: w.Thread, Service: w.Service}
	return made, errors.Join(decodeID(made.TraceID[:], w.Trace), decodeID(made.TransactionID[:], w.ID))
}

// accountID tells which transactions have one account.
type accountID struct {
	trace, transaction string
	process            int
}

func accountOf(tx *keep.Transaction) accountID {
	id := accountID{tx.Trace, tx.ID, tx.Process}
	if tx.Account != nil && tx.Account.WholeTrace {
		id.transaction = ""
	}
	return id
}

// shares is which part of accounts waits have. A wait stands for shorter ones of its thread, too, of which some may
// have been in other transactions: so the waits of a state may have more than its account, and are scaled down. They
// are not where the account is known to lack some: it comes later than the waits of a thread that goes on, and an
// earlier part may be forgotten.
type shares struct {
	sums []time.Duration              // of each of Answer.Waits
	rest map[accountID]*profile.Times // what is of no wait, of transactions with an account
}

func newShares(a *keep.Answer) *shares {
	s := &shares{sums: make([]time.Duration, len(a.Waits)), rest: make(map[accountID]*profile.Times)}
	for i := range a.Transactions {
		if of := a.Transactions[i].Account; of != nil {
			times := new(profile.Times)
			for state, sum := range of.Times {
				if state < profile.ThreadStates {
					times[state] = sum
				}
			}
			s.rest[accountOf(&a.Transactions[i])] = times
		}
	}
	type ofState struct {
		accountID
		state profile.ThreadState
	}
	byState := make(map[ofState][]int)
	for i := range a.Waits {
		w := &a.Waits[i]
		s.sums[i] = w.Sum
		if id := accountOf(&a.Transactions[w.Transaction]); s.rest[id] != nil {
			byState[ofState{id, w.State}] = append(byState[ofState{id, w.State}], i)
		}
	}
	for of, all := range byState {
		s.scale(a, all, &s.rest[of.accountID][of.state])
	}
	return s
}

// lateness is how much later than the last switch that is accounted the stack of the wait before is walked at most.
const lateness = 5 * time.Millisecond

// lacks reports whether an account lacks some of the waits.
func lacks(a *keep.Answer, all []int) bool {
	for _, i := range all {
		of := a.Transactions[a.Waits[i].Transaction].Account
		if of.Partial || a.Waits[i].Last.Sub(of.Last) > lateness {
			return true
		}
	}
	return false
}

// scale makes the sums of some waits no more than what is in their account, from which they are taken.
func (s *shares) scale(a *keep.Answer, all []int, account *profile.StateTimes) {
	sum, longest := time.Duration(0), time.Duration(0)
	for _, i := range all {
		sum += s.sums[i]
		longest = max(longest, a.Waits[i].Longest)
		account.Count -= min(account.Count, a.Waits[i].Count)
	}
	if longest >= account.Longest {
		account.Longest = 0 // the longest has a stack
	}
	if sum <= account.Sum {
		account.Sum -= sum
		return
	}
	if lacks(a, all) {
		account.Sum, account.Count, account.Longest = 0, 0, 0
		return
	}
	left := account.Sum
	for _, i := range all {
		high, low := bits.Mul64(uint64(s.sums[i]), uint64(account.Sum))
		part, _ := bits.Div64(high, low, uint64(sum)) // less than account.Sum
		s.sums[i] = time.Duration(part)
		left -= s.sums[i]
	}
	s.sums[all[0]] += left // some nanoseconds
	account.Sum, account.Count, account.Longest = 0, 0, 0
}

// addWaits adds to transactions what their threads waited for, the longest first.
func (e *Explanation) addWaits(a *keep.Answer, r *record.Recording) {
	s := newShares(a)
	type waitID struct {
		transaction, stack int
		kind               profile.WaitKind
		peer, path, futex  string
		waker              keep.Waker
	}
	rows := make(map[waitID]*Wait)
	stackOf := make(map[*Wait][]profile.Frame)
	places := make(map[int]string)
	for i := range a.Waits {
		w := &a.Waits[i]
		frames := r.Stacks[stackID(w.Stack)]
		if _, known := places[w.Stack]; !known {
			places[w.Stack] = waits.Place(frames)
		}
		of := profile.Wait{State: w.State, Peer: w.Peer, Path: w.Path}
		of.Waker, _ = wakerOf(w.Waker) // it was checked
		id := waitID{transaction: w.Transaction, stack: w.Stack, kind: of.Kind(e.Transactions[w.Transaction].PID,
			frames),
			peer: w.Peer, path: w.Path}
		if w.Futex != 0 {
			id.futex = fmt.Sprintf("%#x", w.Futex)
		}
		if w.Waker != nil {
			id.waker = *w.Waker
		}
		row := rows[id]
		if row == nil {
			row = &Wait{Kind: id.kind, Peer: w.Peer, Path: w.Path, Futex: id.futex, Waker: w.Waker, state: w.State,
				text: waits.Text(&of, id.kind, places[w.Stack]), endedBy: waits.Waker(&of.Waker, places[w.Stack]),
				place: waits.Text(&profile.Wait{State: w.State}, id.kind, places[w.Stack])}
			rows[id] = row
			stackOf[row] = frames
		}
		row.Sum += s.sums[i]
		row.Count += w.Count
		row.Longest = max(row.Longest, min(w.Longest, s.sums[i]))
	}
	keys := slices.SortedFunc(maps.Keys(rows), func(a, b waitID) int {
		return cmp.Or(cmp.Compare(rows[b].Sum, rows[a].Sum), cmp.Compare(a.transaction, b.transaction),
			cmp.Compare(a.stack, b.stack), cmp.Compare(a.kind, b.kind), cmp.Compare(a.peer, b.peer),
			cmp.Compare(a.path, b.path), cmp.Compare(a.futex, b.futex), cmp.Compare(a.waker.TID, b.waker.TID),
			cmp.Compare(a.waker.Trace, b.waker.Trace), cmp.Compare(a.waker.ID, b.waker.ID))
	})
	for i, id := range keys {
		row := rows[id]
		if i < maxFrameRows {
			for _, f := range stackOf[row] {
				row.Frames = append(row.Frames, Frame{waits.Name(f), f.SourceFile(), f.Line})
			}
		}
		tx := &e.Transactions[id.transaction]
		tx.Waits = append(tx.Waits, *row)
	}
	for i := range e.Transactions {
		e.addRest(&e.Transactions[i], s.rest[accountOf(&a.Transactions[i])], s)
		delete(s.rest, accountOf(&a.Transactions[i])) // others of the trace have the same
	}
}

// addRest adds what a transaction waited for without a stack that is known.
func (e *Explanation) addRest(tx *Transaction, rest *profile.Times, s *shares) {
	if rest == nil {
		return
	}
	for state, of := range rest {
		state := profile.ThreadState(state)
		if state.Blocks() && of.Sum > 0 {
			tx.Waits = append(tx.Waits, Wait{Kind: profile.KindOf(state), Sum: of.Sum, Count: of.Count,
				Longest: of.Longest,
				state:   state})
		}
	}
	slices.SortStableFunc(tx.Waits, func(a, b Wait) int { return cmp.Compare(b.Sum, a.Sum) })
}

// waitPlace is waits of one place and cause.
type waitPlace struct {
	waits.Total
	host, text string
}

// waitPlaces are those of all transactions, by state.
func (e *Explanation) waitPlaces() map[profile.ThreadState][]*waitPlace {
	type placeID struct {
		state      profile.ThreadState
		host, text string
	}
	all := make(map[placeID]*waitPlace)
	places := make(map[profile.ThreadState][]*waitPlace)
	for i := range e.Transactions {
		tx := &e.Transactions[i]
		for j := range tx.Waits {
			w := &tx.Waits[j]
			if w.text == "" || tx.Account == nil && e.From == "" { // no state has its time
				continue
			}
			id := placeID{w.state, tx.Host, w.text}
			if all[id] == nil {
				all[id] = &waitPlace{host: tx.Host, text: w.text}
				places[w.state] = append(places[w.state], all[id])
			}
			all[id].Add(profile.StateTimes{Sum: w.Sum, Longest: w.Longest, Count: w.Count}, w.endedBy)
		}
	}
	for _, of := range places {
		slices.SortStableFunc(of, func(a, b *waitPlace) int {
			return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(a.host, b.host))
		})
	}
	return places
}
