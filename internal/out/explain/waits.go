package explain

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/internal/out/keep"
	"correlator/internal/out/record"
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
	Count   uint64           `json:"count"`
	Longest time.Duration    `json:"longest_ns"` // 0: not known
	Peer    string           `json:"peer,omitempty"`
	Path    string           `json:"path,omitempty"`
	Futex   string           `json:"futex,omitempty"` // an address
	Waker   *keep.Waker      `json:"waker,omitempty"`
	Frames  []Frame          `json:"frames,omitempty"` // leaf first; nil: no stack is known, or see maxFrameRows

	state profile.ThreadState
	where string
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
		w := &a.Waits[i]
		of := keep.Sample{Transaction: w.Transaction, Stack: w.Stack, Span: w.Span, TID: w.TID, Thread: w.Thread}
		key, err := keyOf(r, a, &of)
		waker, errWaker := wakerOf(w.Waker)
		errPeer := checkPeer(w.Peer)
		if err := errors.Join(err, errPeer, errWaker); err != nil {
			return err
		}
		if w.Stack == keep.LeftOutStack || w.State == profile.OnCPU || w.Sum < 0 || w.Longest < 0 {
			return errAnswer
		}
		keys[i] = record.WaitKey{Key: key, State: w.State, Peer: w.Peer, Path: w.Path, Waker: waker}
	}
	r.Waits = make(map[record.WaitKey]profile.StateTimes)
	for i, sum := range newShares(a).sums {
		of := r.Waits[keys[i]]
		of.Add(profile.StateTimes{Sum: sum, Longest: a.Waits[i].Longest, Count: a.Waits[i].Count})
		r.Waits[keys[i]] = of
	}
	return nil
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
	waits := make(map[ofState][]int)
	for i := range a.Waits {
		w := &a.Waits[i]
		s.sums[i] = w.Sum
		if id := accountOf(&a.Transactions[w.Transaction]); s.rest[id] != nil {
			waits[ofState{id, w.State}] = append(waits[ofState{id, w.State}], i)
		}
	}
	for of, all := range waits {
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
			places[w.Stack] = placeOf(frames)
		}
		of := profile.Wait{State: w.State}
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
				where: places[w.Stack]}
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
				row.Frames = append(row.Frames, Frame{nameOf(f), f.SourceFile(), f.Line})
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

// placeOf returns where in a program a thread waited: the innermost function that is no library's, and what it called.
func placeOf(frames []profile.Frame) string {
	ofRuntime := slices.ContainsFunc(frames, func(f profile.Frame) bool { return f.Kind().OfRuntime() })
	skipped := func(f profile.Frame) bool {
		return f.Name() == "" || f.IsInlined() || f.Kind() == profile.CutFrame || f.Kind() == profile.KernelFrame ||
			ofRuntime && !f.Kind().OfRuntime()
	}
	first, at := -1, -1
	for i, f := range frames {
		if skipped(f) {
			continue
		}
		if first < 0 {
			first = i
		}
		if !ofLibrary(f) {
			at = i
			break
		}
	}
	if at < 0 {
		at = first
	}
	if at < 0 {
		if len(frames) == 0 {
			return "[unknown]"
		}
		return nameOf(frames[0])
	}
	text := nameOf(frames[at])
	for i := at - 1; i >= first; i-- { // what it called, or what that called: of libraries, some have no names
		if called := frames[i]; !skipped(called) {
			text = shortName(nameOf(called)) + " < " + text
			break
		}
	}
	if file := frames[at].SourceFile(); file != "" {
		text += "  " + path.Base(file)
		if line := frames[at].Line; line > 0 {
			text += ":" + strconv.FormatUint(uint64(line), 10)
		}
	}
	return text
}

// shortName returns the name of a Java method without its package.
func shortName(name string) string {
	if parts := strings.Split(name, "."); len(parts) > 2 && !strings.ContainsAny(name, "(<: ") {
		return strings.Join(parts[len(parts)-2:], ".")
	}
	return name
}

// ofLibrary reports whether a frame is of what comes with the language, as far as its name tells.
func ofLibrary(f profile.Frame) bool {
	begins := func(text string, prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
	}
	switch {
	case f.Kind() == profile.JVMFrame:
		return begins(f.Name(), "java.", "javax.", "jdk.", "sun.", "com.sun.")
	case f.Kind() == profile.PythonFrame:
		return strings.Contains(f.SourceFile(), "/lib/python") || begins(f.SourceFile(), "<frozen ")
	case f.Kind() == profile.V8Frame:
		return begins(f.SourceFile(), "node:")
	case f.File != nil:
		return begins(path.Base(f.File.Path), "libc.", "libc-", "libpthread", "ld-", "libjvm.", "linux-vdso", "[vdso]")
	}
	return false
}

// cause returns what was waited for, as far as that is known.
func (w *Wait) cause() string { return cmp.Or(w.Peer, w.Path) }

// kindTexts are kinds that do not follow from the state.
var kindTexts = map[profile.WaitKind]string{profile.GCWait: "GC or safepoint: ", profile.SleepWait: "sleep: "}

// wakerText returns who ended waits; empty: that is not known.
func wakerText(w *keep.Waker) string {
	switch {
	case w == nil:
		return ""
	case w.Source != profile.ThreadWaker:
		return w.Source.String()
	}
	text := cmp.Or(w.Thread, "thread "+strconv.Itoa(w.TID))
	switch {
	case w.ID != "":
		text += " in transaction " + w.ID[:min(len(w.ID), shownDigits)]
	case w.Trace != "":
		text += " in trace " + w.Trace[:min(len(w.Trace), shownDigits)]
	}
	if w.Service != "" {
		text += " of " + w.Service
	}
	return text
}

// shownDigits of an id are enough for explain to find it.
const shownDigits = 8

// waitPlace is waits of one place and cause.
type waitPlace struct {
	profile.StateTimes
	text   string
	wakers map[string]time.Duration
}

// waitPlaces are those of all transactions, by state.
func (e *Explanation) waitPlaces() map[profile.ThreadState][]*waitPlace {
	type placeID struct {
		state profile.ThreadState
		text  string
	}
	all := make(map[placeID]*waitPlace)
	places := make(map[profile.ThreadState][]*waitPlace)
	for i := range e.Transactions {
		for j := range e.Transactions[i].Waits {
			w := &e.Transactions[i].Waits[j]
			if w.where == "" {
				continue
			}
			text := w.where
			if w.Kind != profile.KindOf(w.state) {
				text = kindTexts[w.Kind] + text
			}
			if cause := w.cause(); cause != "" {
				text += "  " + cause
			}
			id := placeID{w.state, text}
			if all[id] == nil {
				all[id] = &waitPlace{text: text, wakers: make(map[string]time.Duration)}
				places[w.state] = append(places[w.state], all[id])
			}
			all[id].Add(profile.StateTimes{Sum: w.Sum, Longest: w.Longest, Count: w.Count})
			if waker := wakerText(w.Waker); waker != "" {
				all[id].wakers[waker] += w.Sum
			}
		}
	}
	for _, of := range places {
		slices.SortStableFunc(of, func(a, b *waitPlace) int { return cmp.Compare(b.Sum, a.Sum) })
	}
	return places
}

// waker returns what ended most of the waits, and of how much of them if not of all.
func (p *waitPlace) waker() string {
	if len(p.wakers) == 0 {
		return ""
	}
	most := slices.SortedFunc(maps.Keys(p.wakers), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.wakers[b], p.wakers[a]), cmp.Compare(a, b))
	})[0]
	if p.wakers[most] < p.Sum {
		return fmt.Sprintf("%s (%s)", most, exactly(p.wakers[most]))
	}
	return most
}
