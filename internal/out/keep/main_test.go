package keep

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

func TestMain(m *testing.M) {
	worker.Main(symbolizer.LiveKind)
	os.Exit(testenv.Main(m))
}

// begin is when samples of tests begin.
var begin = time.Unix(1_800_000_000, 0)

func resource(owner string, pid int) *profile.Resource {
	r := &profile.Resource{PID: pid, Owner: owner, Process: procscan.ProcessID{PID: pid, StartTime: uint64(pid)}}
	r.Name = "shop-" + owner
	return r
}

// stackOf returns a stack of methods, leaf first.
func stackOf(names ...string) *profile.Stack {
	var frames []profile.Frame
	for i, name := range names {
		frames = append(frames, profile.NewJVMFrame(profile.NewFunction(name, "Shop.java"), uint32(i+1)))
	}
	return &profile.Stack{ID: profile.TraceID(frames), Frames: frames}
}

// newSample returns a sample of the transaction with a number.
func newSample(r *profile.Resource, transaction int, at time.Time, stack *profile.Stack) *profile.Sample {
	s := &profile.Sample{Resource: r, Stack: stack, TID: 7, Thread: "worker", Count: 1, At: at, Last: at,
		Start: at, End: at}
	binary.BigEndian.PutUint64(s.TraceID[:], uint64(transaction)*0x9e3779b97f4a7c15+1)
	binary.BigEndian.PutUint64(s.TransactionID[:], uint64(transaction)*0xbf58476d1ce4e5b9+1)
	return s
}

// newAccount returns an account of a sample's thread in the same transaction, until now.
func newAccount(s *profile.Sample, state profile.ThreadState, now time.Time, took time.Duration) *profile.Account {
	a := &profile.Account{Resource: s.Resource, TraceID: s.TraceID, TransactionID: s.TransactionID, Context: s.Context,
		TID: s.TID, First: now.Add(-took), Last: now}
	a.Times[state] = profile.StateTimes{Sum: took, Longest: took, Count: 1}
	return a
}

// newWait returns a sample of the transaction with a number that waited.
func newWait(r *profile.Resource, transaction int, at time.Time, stack *profile.Stack, w profile.Wait) *profile.Sample {
	s := newSample(r, transaction, at, stack)
	s.Wait = &w
	return s
}

func traceOf(s *profile.Sample) string { return hex.EncodeToString(s.TraceID[:]) }

// answer answers a query, and checks that the answer fits together.
func answer(tb testing.TB, s *Store, q Query, now time.Time) *Answer {
	tb.Helper()
	a, err := s.Answer(tb.Context(), q, now)
	if err != nil {
		tb.Fatal(err)
	}
	counts := make([]uint64, len(a.Transactions))
	for _, sample := range a.Samples {
		counts[sample.Transaction] += sample.Count
		if sample.Stack == LeftOutStack {
			continue
		}
		for _, frame := range a.Stacks[sample.Stack] {
			if f := a.Frames[frame]; f.File != nil && *f.File >= len(a.Files) {
				tb.Fatalf("frame %+v of %d files", f, len(a.Files))
			}
		}
	}
	for i, tx := range a.Transactions {
		if tx.Samples != counts[i] || tx.Process >= len(a.Processes) {
			tb.Fatalf("%+v: %d samples, %d processes", tx, counts[i], len(a.Processes))
		}
	}
	return a
}

// addUp checks the sums of a store, and that what it counts as its memory is what its parts have.
func addUp(tb testing.TB, s *Store) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	assert.Assert(tb, st.Added == st.Samples+st.Evicted+st.Expired &&
		st.Waits.Added == st.Waits.Kept+st.Waits.Evicted+st.Waits.Expired, "%+v do not add up", st)
	bytes, samples, transactions, waits := 0, uint64(0), 0, uint64(0)
	for name, o := range s.owners {
		bytes += o.bytes
		if want := measure(o); o.bytes != want || o.name != name ||
			!o.hasOthers() && o.slow.bytes == 0 {
			tb.Fatalf("owner %s has %d bytes, its parts %d, and %d slices", name, o.bytes, want, len(o.slices))
		}
		if bytes := o.accounts.bytes(); bytes > s.limit/partOfAccounts {
			tb.Fatalf("owner %s has accounts of %d bytes", name, bytes)
		}
		if o.waits.bytes > s.limit/partOfWaits || len(o.waits.slices) == 0 && o.waits.bytes != 0 {
			tb.Fatalf("owner %s has waits of %d bytes in %d slices", name, o.waits.bytes, len(o.waits.slices))
		}
		for _, p := range o.processes {
			transactions += p.transactions.len()
			traces := make(map[[16]byte]int)
			for tx := range p.transactions.values() {
				if tx.context == profile.OTelContext && tx.id.transaction != [8]byte{} {
					traces[tx.id.trace]++
				}
			}
			for id, n := range traces {
				assert.Assert(tb, p.traces.get(id) == n, "%d transactions of %d of a trace", p.traces.get(id), n)
			}
			assert.Assert(tb, p.traces.len() == len(traces), "%d traces of %d", p.traces.len(), len(traces))
		}
	}
	slow, moments := 0, 0
	for _, o := range s.owners {
		slow += o.slow.bytes
		if want := measureSlow(o); o.slow.bytes != want {
			tb.Fatalf("owner %s has slow transactions of %d bytes, its parts %d", o.name, o.slow.bytes, want)
		}
		for _, slice := range o.slow.slices {
			moments += len(slice.moments)
		}
		for _, slice := range slices.Concat(o.slices, o.slow.slices) {
			for i := range slice.entries {
				samples += slice.entries[i].count
			}
		}
		for _, slice := range slices.Concat(o.waits.slices, o.slow.slices) {
			for i := range slice.waits {
				waits += slice.waits[i].Count
			}
		}
	}
	assert.Assert(tb, slow == s.stats.Slow.Bytes && slow <= s.limit/partOfSlow && moments == s.slow.moments.Used(),
		"%+v of %d, %d moments of %d", s.stats.Slow, slow, s.slow.moments.Used(), moments)
	if bytes != s.bytes || waits != s.stats.Waits.Kept ||
		samples != s.stats.Samples || transactions != s.stats.Transactions || bytes > s.limit {
		tb.Fatalf("%d bytes of %d, limit %d; %d samples of %d; %d transactions of %d", s.bytes, bytes, s.limit,
			s.stats.Samples, samples, s.stats.Transactions, transactions)
	}
}

func costOfMoments(slice *timeSlice) int {
	if slice.ended == 0 {
		return openMomentBytes * len(slice.moments)
	}
	return momentBytes * len(slice.moments)
}

func measure(o *owner) int {
	bytes := ownerBytes + (o.accounts.len()+o.slow.accounts.Len())*accountBytes
	for _, slice := range o.slow.slices {
		bytes += slice.size()
	}
	for _, slice := range o.slices {
		cost := entryBytes
		if slice.ended == 0 {
			cost = openEntryBytes
		}
		bytes += sliceBytes + cost*len(slice.entries) + costOfMoments(slice)
	}
	for _, slice := range o.waits.slices {
		cost := waitBytes
		if slice.ended == 0 {
			cost = openWaitBytes
		}
		bytes += sliceBytes + cost*len(slice.waits) + costOfMoments(slice)
	}
	for _, p := range o.processes {
		bytes += sizeOfProcess(p.resource)
		for tx := range p.transactions.values() {
			bytes += transactionBytes + tx.attributes.Bytes()
		}
		for st := range p.stacks.values() {
			bytes += stackBytes + pointerBytes*len(st.frames)
		}
		for f := range p.frames.values() {
			bytes += sizeOfFrame(f.Frame) + sizeOfFunction(f.function)
		}
		for th := range p.threads.values() {
			bytes += threadBytes + len(th.name)
		}
		for of := range p.causes.values() {
			bytes += causeBytes + of.textBytes()
		}
	}
	return bytes
}

// measureSlow returns what slow transactions of an owner take that are kept, with what they refer to.
func measureSlow(o *owner) int {
	bytes := o.slow.accounts.Len() * accountBytes
	seen := make(map[any]bool)
	once := func(of any, size int) {
		if !seen[of] {
			bytes += size
		}
		seen[of] = true
	}
	transaction := func(tx *transaction) {
		once(tx, transactionBytes+tx.attributes.Bytes())
		once(tx.process, sizeOfProcess(tx.process.resource))
	}
	entry := func(e *entryKey) {
		transaction(e.transaction)
		once(e.stack, stackBytes+pointerBytes*len(e.stack.frames))
		for _, f := range e.stack.frames {
			once(f, sizeOfFrame(f.Frame)+sizeOfFunction(f.function))
		}
		once(e.thread, threadBytes+len(e.thread.name))
	}
	for at := o.slow.accounts.Front(); at != nil; at = at.Next() {
		transaction(at.Value.(*account).transaction)
	}
	for _, slice := range o.slow.slices {
		bytes += slice.size()
		for i := range slice.entries {
			entry(&slice.entries[i].entryKey)
		}
		for i := range slice.waits {
			entry(&slice.waits[i].entryKey)
			once(slice.waits[i].cause, causeBytes+slice.waits[i].cause.textBytes())
		}
	}
	return bytes
}

// methods returns n methods of a number.
func methods(number, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("com.example.shop.Class%d.method%d", number, i))
	}
	return names
}
