package bpf

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// With KeepUntraced, samples of threads that have no trace for certain are counted without ids, and
// those of which it is uncertain are not.
func TestUntraced(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, test := range []struct {
			spoil string // empty: between transactions
			ends  KernelOutcome
		}{
			{"", NoTrace},
			{"slot-null", NoSlot},
			{"slot-updating", Updating},
			{"slot-version", Malformed},
		} {
			if !keep && !(test.ends == NoTrace || test.ends == NoSlot) {
				continue // it is not kept even with KeepUntraced
			}
			t.Run(fmt.Sprintf("keep=%v,%v", keep, test.ends), func(t *testing.T) {
				o := demo.Options{Busy: 1, Transaction: 20 * time.Millisecond, Gap: 20 * time.Millisecond}
				o.Manual = test.spoil != ""
				s := openSampler(t, SamplerOptions{KeepUntraced: keep, BySpan: keep})
				p := demo.Start(t, o)
				addDemo(t, s, p)
				if o.Manual {
					p.Begin(1)
					waitForOutcome(t, s, Correlated)
					p.Spoil(1, test.spoil)
				}
				waitForOutcome(t, s, test.ends)
				stop(t, s)
				var traced, untraced uint64
				for _, c := range drainAll(t, s) {
					stack := stack(t, s, c.Stack)
					if c.TraceID != [16]byte{} {
						verifyCode(t, p.PID, stack)
						whole(t, s, c)
						traced += uint64(c.Samples)
						continue
					}
					// It may be of a thread in the C library, which has no frame pointers.
					verifyCode(t, p.PID, Stack{User: stack.User[:min(1, len(stack.User))]})
					if c.TransactionID != [8]byte{} || c.SpanID != [8]byte{} || c.TraceFlags != 0 || c.TID != 0 {
						t.Errorf("without trace: %+v", c)
					}
					untraced += uint64(c.Samples)
				}
				counters := readCounters(t, s)
				want := counters[NoTrace] + counters[NoSlot]
				if !keep {
					want = 0
				}
				assert.Check(t, traced == counters[Correlated] && untraced == want,
					"drained %d samples with a trace and %d without, counters %v", traced, untraced, counters)
			})
		}
	}
}

// Samples for which the tables are full are deferred even if they have no trace.
func TestUntracedOverflow(t *testing.T) {
	s := openSampler(t, SamplerOptions{SamplesPerSecond: 2000, KeepUntraced: true, MaxCounts: 1})
	p := demo.Start(t, demo.Options{Busy: 2, Transaction: time.Millisecond})
	addDemo(t, s, p)
	untraced, deferred := 0, uint64(0)
	take := func(d deferredSample) {
		deferred++
		if d.Count.TraceID == [16]byte{} {
			untraced++
		} else {
			whole(t, s, d.Count)
		}
	}
	for range 5 { // the only entry of the table may be another one each time
		before := deferred
		testenv.Poll(t, waiting, "deferred samples", func() bool {
			readDeferred(t, s, take)
			return deferred >= before+5
		})
		drainAll(t, s)
	}
	stop(t, s)
	verifyDeferred(t, s, readCounters(t, s)[TableFull]-deferred, take)
	assert.Check(t, untraced != 0, "no deferred sample without a trace")
}

// With ByThread, threads are counted separately, even with equal stacks and ids.
func TestByThread(t *testing.T) {
	for _, byThread := range []bool{false, true} {
		t.Run(fmt.Sprint(byThread), func(t *testing.T) {
			s := openSampler(t, SamplerOptions{ByThread: byThread, KeepUntraced: true})
			p := demo.Start(t, demo.Options{Busy: 2, Transaction: 20 * time.Millisecond})
			addDemo(t, s, p)
			threads := []int{0}
			if byThread {
				threads = []int{p.Threads()[1].TID, p.Threads()[2].TID}
			}
			ofTrace := make(map[[16]byte]int)
			ofStack := make(map[StackKey][]int) // without trace
			var samples uint64
			count := func(c Count) {
				stack(t, s, c.Stack)
				samples += uint64(c.Samples)
				if !slices.Contains(threads, c.TID) {
					assert.Check(t, c.TraceID == [16]byte{} && (!byThread || threadOf(p.PID, c.TID)),
						"thread %d of process %d, not one of %v: %+v", c.TID, p.PID, threads, c)
					return // a thread that reads our commands, or the socket
				}
				if c.TraceID == [16]byte{} {
					if !slices.Contains(ofStack[c.Stack], c.TID) {
						ofStack[c.Stack] = append(ofStack[c.Stack], c.TID)
					}
				} else if tid, known := ofTrace[c.TraceID]; known && tid != c.TID {
					t.Errorf("trace of threads %d and %d", tid, c.TID)
				} else {
					ofTrace[c.TraceID] = c.TID
				}
			}
			testenv.Poll(t, waiting, "a stack of all threads", func() bool {
				for _, c := range drainAll(t, s) {
					count(c)
				}
				for _, tids := range ofStack {
					if len(tids) == len(threads) {
						return true
					}
				}
				return false
			})
			stop(t, s)
			for _, c := range drainAll(t, s) {
				count(c)
			}
			counters := readCounters(t, s)
			want := counters[Correlated] + counters[NoTrace] + counters[NoSlot]
			assert.Check(t, samples == want, "drained %d samples, counters %v", samples, counters)
		})
	}
}

// With ByThread, samples have the name that their thread has when they are taken.
func TestSampledThreadNames(t *testing.T) {
	for name, options := range map[string]SamplerOptions{
		"counted": {ByThread: true}, "deferred": {ByThread: true, MaxCounts: 1}, "together": {},
	} {
		t.Run(name, func(t *testing.T) {
			options.KeepUntraced, options.SamplesPerSecond = true, 2000
			s := openSampler(t, options)
			addRules(t, s, os.Getpid(), func() TargetRules { return TargetRules{} })
			runtime.LockOSThread() // and the thread ends with the test
			for _, name := range []string{"first", "a longer second", "\n"} {
				assert.NilError(t, os.WriteFile("/proc/thread-self/comm", []byte(name), 0))
				drainAll(t, s)
				readDeferred(t, s, func(deferredSample) {})
				counted, deferred, burnt := 0, 0, 0
				is := func(c Count) bool {
					if !options.ByThread {
						assert.Check(t, c.TID == 0 && c.Thread == "", "%+v", c)
						return true
					}
					assert.Check(t, c.TID != unix.Gettid() || c.Thread == name, "%q: %+v", name, c)
					return c.TID == unix.Gettid()
				}
				testenv.Poll(t, waiting, "samples of the test", func() bool {
					for i := range 1 << 20 {
						burnt ^= i
					}
					for _, c := range drainAll(t, s) {
						if is(c) {
							counted++
						}
					}
					readDeferred(t, s, func(d deferredSample) {
						if is(d.Count) {
							deferred++
						}
					})
					return options.MaxCounts == 0 && counted > 0 || deferred > 0
				})
			}
		})
	}
}

func threadOf(pid, tid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
	return err == nil
}
