package sampling

import (
	"slices"
	"sync"
	"time"

	"correlator/profile"
)

// maxIdle bounds the waits of idle threads of a program that are kept until their account comes, which is within some
// tenths of a second.
const maxIdle = 1024

// idleWait is a wait of an idle thread: in the account of its context, and no other.
type idleWait struct {
	tid         int
	trace       [16]byte
	transaction [8]byte // 0 of OpenTelemetry's contexts
	state       profile.ThreadState
	length      time.Duration
	ended       time.Time
}

// idleWaits are those of a program. It is safe for concurrent use.
type idleWaits struct {
	mu    sync.Mutex
	waits []idleWait
}

// add adds the wait of which a sample has the stack, not the shorter ones that it stands for. It returns how many are
// not kept any more.
func (i *idleWaits) add(sample *profile.Sample) (lost int) {
	wait := idleWait{tid: sample.TID, trace: sample.TraceID, transaction: sample.TransactionID,
		state: sample.Wait.State, length: sample.Wait.Longest, ended: sample.At}
	if sample.Context == profile.OTelContext {
		wait.transaction = [8]byte{}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if lost = max(0, len(i.waits)+1-maxIdle); lost > 0 {
		i.waits = slices.Delete(i.waits, 0, lost)
	}
	i.waits = append(i.waits, wait)
	return lost
}

// clockDrift is by how much the times of accounts and waits may differ that were drained at different times.
const clockDrift = time.Millisecond

// takeFrom takes the waits of idle threads out of the account that has them, and returns how many came too late for
// theirs.
func (i *idleWaits) takeFrom(account *profile.Account) (late int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.waits = slices.DeleteFunc(i.waits, func(w idleWait) bool {
		if w.tid != account.TID || w.trace != account.TraceID || w.transaction != account.TransactionID ||
			w.ended.After(account.Last.Add(clockDrift)) {
			return false
		}
		of := &account.Times[w.state]
		if w.ended.Before(account.First) || of.Sum < w.length || of.Count == 0 {
			late++
			return true
		}
		of.Sum -= w.length
		of.Count--
		of.Longest = min(of.Longest, of.Sum)
		return true
	})
	return late
}
