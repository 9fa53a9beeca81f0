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
	"correlator/internal/host/textcut"
	"correlator/internal/out/bootclock"
	"correlator/internal/out/live/types"
	"correlator/profile"
)

// maxShown is how many transactions are published: the busiest.
const maxShown = 50

// stay is how much busier another transaction must be to replace one that is shown, so that those in
// the middle do not come and go.
const stay = 1.25

// maxNameBytes is how long the name of a transaction is: there may be as many as transactions are tracked.
const maxNameBytes = 128

// maxText is how long texts of processes are: a name of a function in C++ or Scala with all its types
// may have some hundred bytes.
const maxText = 1024

// cpuShare rounds a share of the CPU to a thousandth, so that nothing is published of what is idle.
func cpuShare(v float64) value.Opt[float64] { return value.Some(math.Round(v*1000) / 1000) }

// at is a property that is unset without a time.
func at(t time.Time) (o value.Opt[value.Timepoint]) {
	if !t.IsZero() {
		o.Set(value.TimepointOf(t))
	}
	return o
}

// at is the same by the clock as it is set now, which guests compare it with.
func (o *objectsOf) at(t time.Time) value.Opt[value.Timepoint] {
	if t.IsZero() {
		return at(t)
	}
	return at(o.clock.Time(o.clock.Ns(t)))
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
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r // also for invalid bytes, which are one
	}, shorten(s, maxText))
}

// shorten returns at most so many bytes of a text, and an ellipsis if that is not all.
func shorten(s string, end int) string {
	if len(s) <= end {
		return s
	}
	return textcut.At(s, end) + "…"
}

// cut shortens the longest names so that all together have no more than so many bytes.
func cut(names []string, most int) {
	lengths, total := make([]int, len(names)), 0
	for i, name := range names {
		lengths[i] = len(name)
		total += len(name)
	}
	if total <= most {
		return
	}
	slices.Sort(lengths)
	longest, left := 0, most
	for i, n := range lengths {
		if longest = left / (len(lengths) - i); n > longest {
			break
		}
		left -= n
	}
	for i, name := range names {
		if len(name) > longest {
			names[i] = shorten(name, max(0, longest-len("…")))
		}
	}
}

func contextOf(kind profile.ContextKind) types.CorrelatorContext {
	if kind == profile.OTelContext {
		return types.CorrelatorContextOpentelemetry
	}
	return types.CorrelatorContextElastic
}

func hexadecimal(id []byte) value.Opt[string] { return value.Some(hex.EncodeToString(id)) }

// objectsOf is for what objects are made: the host's key, and the clock that their times are by.
type objectsOf struct {
	host  string
	clock *bootclock.Clock
}

// threads returns what threads work on.
func (o *objectsOf) threads(t *Tracker) []types.CorrelatorThread {
	objects := make([]types.CorrelatorThread, 0, len(t.threads))
	for id, th := range t.threads {
		x := types.CorrelatorThread{
			Host: value.Some(o.host), Pid: value.Some(uint32(id.pid)), Tid: value.Some(uint32(id.tid)),
			Name: text(th.name), Since: o.at(th.since), LastRun: o.at(th.lastRun), CPU: cpuShare(th.cpu.average()),
		}
		if th.transaction != (transactionID{}) {
			x.TraceID, x.TransactionID = hexadecimal(th.transaction.trace[:]),
				hexadecimal(th.transaction.transaction[:])
			x.Context = value.Some(contextOf(th.context))
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

// maxAsked is of how many transactions in which threads wait it is asked whether somebody has selected them.
const maxAsked = 1000

// busiest returns the transactions that use the CPU most, and those that somebody may select: the same, others of which
// stacks are collected, and then those in which a thread waits.
func (t *Tracker) busiest() (shown, candidates []shownTransaction) {
	all := make([]shownTransaction, 0, len(t.transactions))
	for id, tx := range t.transactions {
		all = append(all, shownTransaction{id, tx})
	}
	slices.SortFunc(all, func(a, b shownTransaction) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), b.lastRun.Compare(a.lastRun),
			slices.Compare(a.id.transaction[:], b.id.transaction[:]), slices.Compare(a.id.trace[:], b.id.trace[:]))
	})
	var waiting []shownTransaction
	for i, tx := range all {
		tx.shown = i < maxShown
		switch {
		case tx.shown, tx.stacks != nil:
			candidates = append(candidates, tx)
		case !tx.waited.IsZero() && tx.waited.Equal(t.ticked) && len(waiting) < maxAsked:
			waiting = append(waiting, tx)
		}
	}
	return all[:min(len(all), maxShown)], append(candidates, waiting...)
}

func (o *objectsOf) transactions(shown []shownTransaction) []types.CorrelatorTransaction {
	objects := make([]types.CorrelatorTransaction, 0, len(shown))
	for _, tx := range shown {
		x := types.CorrelatorTransaction{
			Host: value.Some(o.host), TraceID: hexadecimal(tx.id.trace[:]),
			TransactionID: hexadecimal(tx.id.transaction[:]),
			Pid:           value.Some(uint32(tx.pid)), Service: text(tx.service), Since: o.at(tx.since),
			LastRun: o.at(tx.lastRun), CPU: cpuShare(tx.cpu.average()), CPUTime: value.Some(value.DurationOf(tx.total)),
			Threads: value.Some(uint32(len(tx.threads))), Context: value.Some(contextOf(tx.context)),
			StacksSince: o.at(tx.stacksSince), Name: text(tx.name),
		}
		if tx.lost > 0 {
			x.StacksLost = value.Some(value.DurationOf(tx.lost))
		}
		objects = append(objects, x)
	}
	return objects
}
