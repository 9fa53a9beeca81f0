// Package waits says what threads waited for in the words of those who are shown it: where in their program, for what,
// and who ended it.
package waits

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"correlator/profile"
)

var stateTexts = [profile.ThreadStates]string{
	profile.OnCPU: "on a CPU", profile.Runnable: "waiting for a CPU", profile.Throttled: "throttled (cgroup quota)",
	profile.Futex: "lock, queue or sleep (futex)", profile.Sleep: "sleep", profile.Net: "network",
	profile.Unix: "Unix socket", profile.Pipe: "pipe", profile.Poll: "poll", profile.Disk: "disk",
	profile.Fault: "page fault", profile.Other: "other",
	profile.Unknown: "on a CPU, in this or another",
}

// State returns what a thread did, in words.
func State(state profile.ThreadState) string { return stateTexts[state] }

// kindTexts are kinds that do not follow from the state.
var kindTexts = map[profile.WaitKind]string{
	profile.GCWait: "GC or safepoint: ", profile.SleepWait: "sleep: ", profile.IdleWait: "idle: ",
}

// Text returns where a thread waited, and for what. The kind is that of the wait with its stack, whose Place is given.
func Text(w *profile.Wait, kind profile.WaitKind, place string) string {
	if kind != profile.KindOf(w.State) {
		place = kindTexts[kind] + place
	}
	if cause := w.Cause(); cause != "" {
		place += "  " + cause
	}
	return place
}

// shownDigits of an id are enough for explain to find it.
const shownDigits = 8

// Waker returns who ended a wait at a Place; empty: that is not known.
func Waker(w *profile.Waker, place string) string {
	switch w.Kind {
	case profile.UnknownWaker:
		return ""
	case profile.ThreadWaker:
	default:
		if strings.HasPrefix(place, gil) {
			return "" // that it asked the other thread to let go has ended nothing
		}
		return w.Kind.String()
	}
	text := cmp.Or(w.Thread, "thread "+strconv.Itoa(w.TID))
	switch {
	case w.TransactionID != [8]byte{}:
		text += " in transaction " + hex.EncodeToString(w.TransactionID[:])[:shownDigits]
	case w.HasTrace():
		text += " in trace " + hex.EncodeToString(w.TraceID[:])[:shownDigits]
	}
	if w.Service != "" {
		text += " of " + w.Service
	}
	return text
}

// maxWakers is of how many of those who ended waits of a Total it is known how much that was.
const maxWakers = 32

// Total is the sum of waits with the same Text.
type Total struct {
	profile.StateTimes
	wakers map[string]time.Duration
}

// Add adds waits that were ended by somebody; empty: that is not known.
func (s *Total) Add(of profile.StateTimes, waker string) {
	s.StateTimes.Add(of)
	if waker == "" {
		return
	}
	if s.wakers == nil {
		s.wakers = make(map[string]time.Duration)
	}
	if _, known := s.wakers[waker]; known || len(s.wakers) < maxWakers {
		s.wakers[waker] += of.Sum
	}
}

// EndedBy returns who ended most of the waits, and of how much of them if not of all.
func (s *Total) EndedBy() string {
	if len(s.wakers) == 0 {
		return ""
	}
	most := slices.SortedFunc(maps.Keys(s.wakers), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.wakers[b], s.wakers[a]), cmp.Compare(a, b))
	})[0]
	if s.wakers[most] < s.Sum {
		return fmt.Sprintf("%s (%s)", most, Exactly(s.wakers[most]))
	}
	return most
}

// Exactly returns a duration that was measured.
func Exactly(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
