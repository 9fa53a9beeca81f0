package record

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"correlator/internal/attach/process"
	"correlator/internal/host/share"
	"correlator/internal/host/sorting"
	"correlator/internal/host/textcut"
	"correlator/internal/out/keep"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// maxKeys is how many different Keys a recording may have: with 97 samples a second those of 90
	// minutes of a busy CPU, all different. They take 95 MB, and twice as much at the end. No
	// process gets more than are left for the others: one that is alone half of them, one that
	// comes late some.
	maxKeys = 1 << 19

	// maxFrames is how many frames all different stacks may have together, shared in the same way;
	// functions, and attributes of Keys, count as the frames that would take as much memory. A stack is
	// the process's that had it first. They take 64 MB.
	maxFrames = 2 << 20

	// functionBytes is what a function takes besides its strings: profile.Function, and the entry in
	// the aggregate.
	functionBytes = 64
	frameBytes    = int(unsafe.Sizeof(profile.Frame{}))

	// partOfWaits is which part of either there may be of waits, beside those.
	partOfWaits = 4

	// waitBytes is what the key of a wait takes beyond that of a sample.
	waitBytes = int(unsafe.Sizeof(WaitKey{})-unsafe.Sizeof(Key{})) * 2
)

var errTruncated = errors.New("no room for more different stacks and transactions of it")

// aggregate counts samples, from when it is begun until it is closed.
type aggregate struct {
	selection Selection

	mu     sync.Mutex
	keys   *share.Budget[procscan.ProcessID] // of samples, with all programs that a process executes
	frames *share.Budget[procscan.ProcessID] // of stacks

	// Of waits, and of stacks that they had first: samples have room, however many there are.
	waitKeys, waitFrames *share.Budget[procscan.ProcessID]

	samples map[Key]uint64                 // without Thread
	waits   map[WaitKey]profile.StateTimes // without Thread; nil: nobody asked for them
	stacks  map[profile.StackTraceID][]profile.Frame

	timed   bool // moments are kept
	moments []moment
	least   float64 // moments of no higher rank are left out

	accounts     map[thread]*ThreadAccount // nil: nobody asked for them
	lostAccounts uint64                    // there was no room for

	names map[thread]threadName
	known map[processStack]struct{}
	// functions are those of stacks. One text can be several functions, which all count.
	functions map[*profile.Function]struct{}
	truncated map[procscan.ProcessID]time.Time // when the first sample was lost for want of room
	walks     map[*Process]Walks
	lost      map[string]uint64
	total     uint64 // of samples
	traced    uint64
	early     uint64    // before start
	others    uint64    // not selected
	lostWaits uint64    // not in waits
	start     time.Time // zero: not begun yet
	closed    bool
}

// thread is a thread of a process.
type thread struct {
	process *Process
	tid     int
}

// threadName is what a thread was called at a time.
type threadName struct {
	text string
	at   time.Time
}

// moment is when samples or a wait were.
type moment struct {
	keep.Moment
	key  WaitKey // without Thread
	rank float64
}

// maxMoments is how many there may be: a picture cannot show more.
const maxMoments = 5000

type processStack struct {
	process *Process
	stack   profile.StackTraceID
}

func newAggregate() *aggregate {
	return &aggregate{
		keys:   share.NewBudget[procscan.ProcessID](maxKeys),
		frames: share.NewBudget[procscan.ProcessID](maxFrames),

		waitKeys:   share.NewBudget[procscan.ProcessID](maxKeys / partOfWaits),
		waitFrames: share.NewBudget[procscan.ProcessID](maxFrames / partOfWaits),

		samples:   make(map[Key]uint64),
		stacks:    make(map[profile.StackTraceID][]profile.Frame),
		names:     make(map[thread]threadName),
		known:     make(map[processStack]struct{}),
		truncated: make(map[procscan.ProcessID]time.Time),
		walks:     make(map[*Process]Walks),
		lost:      make(map[string]uint64),
		functions: make(map[*profile.Function]struct{}),
	}
}

// begin has samples counted that are taken from a time on.
func (a *aggregate) begin(start time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.start = start
}

// add counts samples of a process. It reports whether their stack is new, and counted, for the
// process.
func (a *aggregate) add(process *Process, s *profile.Sample) (isNew bool) {
	key := Key{Process: process, TID: s.TID, TraceID: s.TraceID, TransactionID: s.TransactionID, SpanID: s.SpanID,
		Attributes: s.Attributes, Stack: s.Stack.ID}
	samples := s.Count
	if s.Wait != nil {
		samples = 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	if a.start.IsZero() || s.At.Before(a.start) {
		a.early += samples
		return false
	}
	if !a.selection.has(s) {
		a.others += samples
		return false
	}
	if s.Wait != nil {
		return a.addWait(key, s)
	}
	if _, known := a.samples[key]; !known {
		if !a.enter(process, s, 0) {
			return false
		}
	}
	a.addMoment(&WaitKey{Key: key}, s)
	a.samples[key] += s.Count
	a.total += s.Count
	walks := a.walks[process]
	if s.Served {
		walks.Served += s.Count
	}
	if s.Unwound {
		walks.Unwound += s.Count
	}
	a.walks[process] = walks
	if key.HasTrace() {
		a.traced += s.Count
	}
	return a.seen(process, s)
}

// account adds to the account of a thread, which has room as the key of a wait.
func (a *aggregate) account(process *Process, of *profile.Account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.accounts == nil || a.closed {
		return
	}
	one := thread{process, of.TID}
	sum := a.accounts[one]
	if sum == nil {
		if !a.waitKeys.Take(process.Identity(), 1) {
			a.lostAccounts++
			return
		}
		sum = &ThreadAccount{Process: process, TID: of.TID, First: of.First}
		a.accounts[one] = sum
	}
	a.call(one, of.Thread, of.Last)
	if of.Last.After(sum.Last) {
		sum.Last = of.Last
	}
	sum.Observed += of.Last.Sub(of.First)
	sum.Times.Add(&of.Times)
}

// maxTextBytes is the most that is recorded of a path, and of the name of a thread or a service.
const maxTextBytes = 256

// addWait counts waits with a key.
func (a *aggregate) addWait(of Key, s *profile.Sample) (isNew bool) {
	if a.waits == nil {
		return false
	}
	w := s.Wait
	key := WaitKey{Key: of, State: w.State, Peer: w.Peer, Path: shorten(w.Path), Waker: w.Waker}
	key.Waker.Thread, key.Waker.Service = shorten(w.Waker.Thread), shorten(w.Waker.Service)
	sum, known := a.waits[key]
	if !known && !a.enter(of.Process, s, waitBytes+len(key.Path)+len(key.Waker.Thread)+len(key.Waker.Service)) {
		return false
	}
	a.addMoment(&key, s)
	sum.Add(profile.StateTimes{Sum: w.Sum, Longest: w.Longest, Count: s.Count})
	a.waits[key] = sum
	return a.seen(of.Process, s)
}

// addMoment keeps when samples or a wait were, and no more than twice as many as are shown.
func (a *aggregate) addMoment(key *WaitKey, s *profile.Sample) {
	if !a.timed {
		return
	}
	of, known := keep.MomentOf(s)
	rank := of.Rank(rand.Float64())
	if !known || rank <= a.least {
		return
	}
	a.moments = append(a.moments, moment{of, *key, rank})
	if len(a.moments) == 2*maxMoments {
		a.leaveOut()
	}
}

// leaveOut leaves out the moments that are too many, those of the lowest ranks.
func (a *aggregate) leaveOut() {
	if len(a.moments) > maxMoments {
		slices.SortFunc(a.moments, func(x, y moment) int { return cmp.Compare(y.rank, x.rank) })
		a.least = a.moments[maxMoments].rank
		clear(a.moments[maxMoments:])
		a.moments = a.moments[:maxMoments]
	}
}

func shorten(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	return strings.Clone(textcut.At(text, maxTextBytes))
}

// enter makes room for a new key of a process, with texts of its own. If there is none, the samples or waits are lost.
func (a *aggregate) enter(process *Process, s *profile.Sample, texts int) bool {
	id := process.Identity()
	keys, frames := a.keys, a.frames
	if s.Wait != nil {
		keys, frames = a.waitKeys, a.waitFrames
	}
	reason := a.admit(id, s.Stack, s.Attributes.Bytes()+texts, keys, frames)
	if _, before := a.truncated[id]; reason == LostTooMany && !before {
		a.truncated[id] = s.At
	}
	switch {
	case reason == "":
		return true
	case s.Wait != nil:
		a.lostWaits += s.Count
	default:
		a.lost[reason] += s.Count
	}
	return false
}

// seen takes note of the thread and the stack of samples. It reports whether the stack is new for the process.
func (a *aggregate) seen(process *Process, s *profile.Sample) (isNew bool) {
	one := thread{process, s.TID}
	a.call(one, s.Thread, s.At)
	stack := processStack{process, s.Stack.ID}
	_, known := a.known[stack]
	a.known[stack] = struct{}{}
	return !known
}

// admit makes room for a new key with a stack and texts, or returns why there is none.
func (a *aggregate) admit(id procscan.ProcessID, stack *profile.Stack, texts int,
	keys, frames *share.Budget[procscan.ProcessID]) (reason string) {
	var functions map[*profile.Function]struct{}
	size := framesIn(texts)
	_, known := a.stacks[stack.ID]
	if !known {
		if len(stack.Frames) == 0 {
			return process.OutcomeNoStack.String()
		}
		var more int
		functions, more = a.size(stack)
		size += more
	}
	if !keys.Take(id, 1) {
		return LostTooMany
	}
	if !frames.Take(id, size) {
		keys.Give(id, 1)
		return LostTooMany
	}
	if !known {
		a.stacks[stack.ID] = stack.Frames
		maps.Copy(a.functions, functions)
	}
	return ""
}

// framesIn returns how many frames take as much memory.
func framesIn(bytes int) int { return (bytes + frameBytes - 1) / frameBytes }

// size returns how many frames a new stack counts as, and its functions that are new.
func (a *aggregate) size(stack *profile.Stack) (functions map[*profile.Function]struct{}, frames int) {
	functions, bytes := make(map[*profile.Function]struct{}), len(stack.Frames)*frameBytes
	for _, f := range stack.Frames {
		if f.Function == nil {
			continue
		}
		_, known := a.functions[f.Function]
		if _, again := functions[f.Function]; !known && !again {
			functions[f.Function] = struct{}{}
			bytes += functionBytes + f.Function.TextBytes()
		}
	}
	return functions, framesIn(bytes)
}

// failures returns the processes that had no room for all of their samples.
func (a *aggregate) failures() (failures []Failure) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, since := range a.truncated {
		failures = append(failures, Failure{PID: id.PID, Err: errTruncated, Since: since})
	}
	return failures
}

// call stores what a thread is called at a time. One that has just begun has its creator's name. Samples and accounts
// do not come in the order of their times.
func (a *aggregate) call(one thread, name string, at time.Time) {
	if before := a.names[one]; before.text == "" || name != "" && !at.Before(before.at) {
		a.names[one] = threadName{name, at}
	}
}

// progress lacks what only the processes know.
func (a *aggregate) progress() Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Progress{Start: a.start, Samples: a.total, WithTrace: a.traced}
}

// close puts all that was counted into a recording, to which it then belongs.
func (a *aggregate) close(into *Recording) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	into.Start = a.start
	into.Samples = make(map[Key]uint64, len(a.samples))
	for key, samples := range a.samples {
		key.Thread = a.names[thread{key.Process, key.TID}].text
		into.Samples[key] = samples
	}
	if a.waits != nil {
		into.Waits = make(map[WaitKey]profile.StateTimes, len(a.waits))
	}
	for key, of := range a.waits {
		key.Thread = a.names[thread{key.Process, key.TID}].text
		into.Waits[key] = of
	}
	a.leaveOut()
	if a.timed {
		into.Moments = make(map[WaitKey][]keep.Moment)
	}
	for i := range a.moments {
		m := &a.moments[i]
		m.key.Thread = a.names[thread{m.key.Process, m.key.TID}].text
		into.Moments[m.key] = append(into.Moments[m.key], m.Moment)
	}
	if a.accounts != nil {
		into.Accounts = make([]ThreadAccount, 0, len(a.accounts))
	}
	for one, of := range a.accounts {
		of.Thread = a.names[one].text
		into.Accounts = append(into.Accounts, *of)
	}
	sorting.Sort(into.Accounts, func(x, y ThreadAccount) int {
		return cmp.Or(cmp.Compare(x.Process.PID, y.Process.PID), cmp.Compare(x.TID, y.TID), x.First.Compare(y.First))
	})
	into.LostWaits, into.LostAccounts = a.lostWaits, a.lostAccounts
	into.Unselected, into.Walks = a.others, a.walks
	into.Stacks, into.Lost = a.stacks, maps.Clone(a.lost)
	a.accounts, a.samples, a.waits, a.moments, a.names, a.known, a.functions = nil, nil, nil, nil, nil, nil, nil
}
