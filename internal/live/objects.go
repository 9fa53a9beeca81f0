package live

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"correlator/dots/value"
	"correlator/internal/live/types"
	"correlator/profile"
)

// maxShown is how many transactions are published: the busiest.
const maxShown = 50

// stay is how much busier another transaction must be to replace one that is shown, so that those in
// the middle do not come and go.
const stay = 1.25

// maxText is how long texts of processes are: a name of a function in C++ or Scala with all its types
// may have some hundred bytes.
const maxText = 1024

// share rounds a share of the CPU to a thousandth, so that nothing is published of what is idle.
func share(v float64) value.Opt[float64] { return value.Some(math.Round(v*1000) / 1000) }

// at is a property that is unset without a time.
func at(t time.Time) (o value.Opt[value.Timepoint]) {
	if !t.IsZero() {
		o.Set(value.TimepointOf(t))
	}
	return o
}

// text is a property that is unset when it is empty.
func text(s string) (o value.Opt[string]) {
	if s != "" {
		o.Set(clean(s))
	}
	return o
}

// clean returns what can be published of a text: valid UTF-8 without control characters, not too long.
func clean(s string) string {
	if len(s) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r // also for invalid bytes, which are one
	}, s)
}

func contextOf(kind profile.ContextKind) types.CorrelatorContext {
	if kind == profile.OTelContext {
		return types.CorrelatorContextOpentelemetry
	}
	return types.CorrelatorContextElastic
}

func hexadecimal(id []byte) value.Opt[string] { return value.Some(hex.EncodeToString(id)) }

// objectsOf is for what objects are made: the host's key, and how frames are named.
type objectsOf struct {
	host string
	name namer
}

// threads returns what threads work on.
func (o *objectsOf) threads(t *Tracker) []types.CorrelatorThread {
	objects := make([]types.CorrelatorThread, 0, len(t.threads))
	for id, th := range t.threads {
		x := types.CorrelatorThread{
			Host: value.Some(o.host), Pid: value.Some(uint32(id.pid)), Tid: value.Some(uint32(id.tid)),
			Name: text(th.name), TraceID: hexadecimal(th.transaction.trace[:]),
			TransactionID: hexadecimal(th.transaction.transaction[:]),
			Context:       value.Some(contextOf(th.context)),
			Since:         at(th.since), LastRun: at(th.lastRun), CPU: share(th.cpu.average()),
		}
		if th.span != [8]byte{} {
			x.SpanID = hexadecimal(th.span[:])
		}
		objects = append(objects, x)
	}
	return objects
}

// shownTransaction is one of the busiest.
type shownTransaction struct {
	id transactionID
	*transaction
}

func (s shownTransaction) rank() float64 {
	if s.shown {
		return s.cpu.average() * stay
	}
	return s.cpu.average()
}

// busiest returns the transactions that use the CPU most.
func (t *Tracker) busiest() []shownTransaction {
	all := make([]shownTransaction, 0, len(t.transactions))
	for id, tx := range t.transactions {
		all = append(all, shownTransaction{id, tx})
	}
	slices.SortFunc(all, func(a, b shownTransaction) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), b.lastRun.Compare(a.lastRun),
			slices.Compare(a.id.transaction[:], b.id.transaction[:]), slices.Compare(a.id.trace[:], b.id.trace[:]))
	})
	for i, tx := range all {
		tx.shown = i < maxShown
	}
	return all[:min(len(all), maxShown)]
}

func (o *objectsOf) transactions(shown []shownTransaction) []types.CorrelatorTransaction {
	objects := make([]types.CorrelatorTransaction, 0, len(shown))
	for _, tx := range shown {
		objects = append(objects, types.CorrelatorTransaction{
			Host: value.Some(o.host), TraceID: hexadecimal(tx.id.trace[:]),
			TransactionID: hexadecimal(tx.id.transaction[:]),
			Pid:           value.Some(uint32(tx.pid)), Service: text(tx.service), Since: at(tx.since),
			LastRun: at(tx.lastRun), CPU: share(tx.cpu.average()), CPUTime: value.Some(value.DurationOf(tx.total)),
			Threads: value.Some(uint32(len(tx.threads))), Context: value.Some(contextOf(tx.context)),
		})
	}
	return objects
}

// shares returns how much was used with each stack, and the stacks, which have no names yet.
func (o *objectsOf) shares(shown []shownTransaction) (
	objects []types.CorrelatorTransactionStack, stacks map[profile.StackTraceID]*stackTime,
) {
	stacks = make(map[profile.StackTraceID]*stackTime)
	for _, tx := range shown {
		trace, transaction := hexadecimal(tx.id.trace[:]), hexadecimal(tx.id.transaction[:])
		for id, s := range tx.stacks {
			// The same one each time, if several have it: its names are kept.
			if other := stacks[id]; other == nil || len(s.names.frames) > 0 {
				stacks[id] = s
			}
			objects = append(objects, types.CorrelatorTransactionStack{
				Host: value.Some(o.host), TraceID: trace, TransactionID: transaction,
				StackID: value.Some(id.String()), CPUTime: value.Some(value.DurationOf(s.used)),
			})
		}
	}
	return objects, stacks
}

// namer gives a frame of a process its name, and reports whether it is the one that it will keep.
type namer func(*profile.Resource, profile.Frame) (name string, known bool)

// stackNames are the names of the frames of a stack.
type stackNames struct {
	frames []string
	tries  int
}

// maxTries is how often names are asked for that are not known: they may come after the stack.
const maxTries = 10

// of returns the names of a stack's frames.
func (n *stackNames) of(s *stackTime, name namer) []string {
	if n.tries >= maxTries {
		return n.frames
	}
	known := 0
	frames := make([]string, len(s.stack.Frames))
	for i, f := range s.stack.Frames {
		text, ok := name(s.resource, f)
		if frames[i] = clean(text); ok {
			known++
		}
	}
	if n.tries++; known == len(frames) {
		n.tries = maxTries
	}
	n.frames = frames
	return frames
}

// stacks returns stacks with the names of their frames.
func (o *objectsOf) stacks(stacks map[profile.StackTraceID]*stackTime) []types.CorrelatorStack {
	objects := make([]types.CorrelatorStack, 0, len(stacks))
	for id, s := range stacks {
		objects = append(objects, types.CorrelatorStack{
			Host: value.Some(o.host), ID: value.Some(id.String()), Frames: value.Some(s.names.of(s, o.name)),
		})
	}
	return objects
}
