package sampling

import (
	"strings"
	"sync"
	"time"

	"correlator/profile"
)

// isIdle reports whether a thread waits for any work at all: a carrier of virtual threads, or another thread of a
// ForkJoinPool. It is on no transaction then, whatever context was left on it.
func isIdle(frames []profile.Frame) bool {
	const pool = "java.util.concurrent.ForkJoinPool."
	called := ""
	for _, f := range frames {
		if f.Kind() != profile.JVMFrame || f.IsInlined() {
			continue
		}
		name := methodOf(f.Name())
		if name == pool+"runWorker" {
			return called == pool+"awaitWork"
		}
		called = name
	}
	return false
}

// methodOf returns class and method of a name with or without return type and arguments.
func methodOf(name string) string {
	if method, _, signed := strings.Cut(name, "("); signed {
		return method[strings.LastIndexByte(method, ' ')+1:]
	}
	return name
}

// idleKey is whose account has time in which a thread was idle.
type idleKey struct {
	program     *program
	tid         int
	trace       [16]byte
	transaction [8]byte // 0 of OpenTelemetry's contexts
}

// maxIdle bounds the accounts of which it is known that threads were idle.
const maxIdle = 4096

// idleTimes is what accounts that come have too much. It is safe for concurrent use.
type idleTimes struct {
	mu    sync.Mutex
	times map[idleKey]*[profile.ThreadStates]time.Duration
}

// add adds a wait of an idle thread.
func (i *idleTimes) add(p *program, sample *profile.Sample) {
	key := idleKey{p, sample.TID, sample.TraceID, sample.TransactionID}
	if sample.Context == profile.OTelContext {
		key.transaction = [8]byte{}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.times) >= maxIdle || i.times == nil { // those of threads that have ended stay until then
		i.times = make(map[idleKey]*[profile.ThreadStates]time.Duration)
	}
	if i.times[key] == nil {
		i.times[key] = new([profile.ThreadStates]time.Duration)
	}
	i.times[key][sample.Wait.State] += sample.Wait.Sum
}

// takeFrom takes the time of idle threads out of an account, as far as that has it; the rest is taken from the next
// one: stacks stand for shorter waits, too, and may be named late.
func (i *idleTimes) takeFrom(p *program, account *profile.Account) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := idleKey{p, account.TID, account.TraceID, account.TransactionID}
	idle := i.times[key]
	if idle == nil {
		return
	}
	left := time.Duration(0)
	for state := range idle {
		of := &account.Times[state]
		taken := min(of.Sum, idle[state])
		idle[state] -= taken
		left += idle[state]
		if of.Sum -= taken; of.Sum == 0 {
			*of = profile.StateTimes{}
		}
		of.Longest = min(of.Longest, of.Sum)
	}
	if left == 0 {
		delete(i.times, key)
	}
}
