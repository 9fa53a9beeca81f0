package bpf

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

// chain is testdata/chain.bpf.c.
type chain struct {
	chainObjects
	t testing.TB
}

type chainObjects struct {
	Enter    *ebpf.Program  `ebpf:"enter"`
	Walk     *ebpf.Program  `ebpf:"walk"`
	Records  *ebpf.Map      `ebpf:"records"`
	Programs *ebpf.Map      `ebpf:"programs"`
	Asked    *ebpf.Variable `ebpf:"asked"`

	Variables *ebpf.Map `ebpf:".bss"`
}

// asked is what a chain finds.
type asked struct{ KernelFrames, Words, Error, Stacks, Loses uint32 }

type chainRecord struct {
	Entered                 uint64
	KernelFrames, WordCount uint16
	Error                   uint32
	Words                   [1024]uint64
}

var chainLayout = RecordLayout{Words: 16, WordCount: 10, KernelFrames: 8, Error: 12, Size: 16 + 8*1024}

func openChain(t testing.TB) *chain {
	t.Helper()
	c := &chain{t: t}
	assert.NilError(t, compileProgram(t, "chain").LoadAndAssign(&c.chainObjects, nil))
	t.Cleanup(func() {
		_SamplerClose(c.Enter, c.Walk, c.Records, c.Programs, c.Variables)
	})
	assert.NilError(t, c.Programs.Put(uint32(0), c.Walk))
	return c
}

func (c *chain) unwinder() *Unwinder {
	return &Unwinder{
		Entry: c.Enter, Records: c.Records, Layout: chainLayout,
		SetLast: func(last *ebpf.Program) error { return c.Programs.Put(uint32(1), last) },
	}
}

func (c *chain) ask(what asked) {
	c.t.Helper()
	assert.NilError(c.t, c.Asked.Set(what))
}

// entered returns how many samples each CPU has handed to the chain.
func (c *chain) entered() (total uint64, byCPU []uint64) {
	c.t.Helper()
	var records []chainRecord
	assert.NilError(c.t, c.Records.Lookup(uint32(0), &records))
	for i := range records {
		total += records[i].Entered
		byCPU = append(byCPU, records[i].Entered)
	}
	return total, byCPU
}

// openUnwinding returns a sampler with a process whose stacks a chain walks, which finds what is
// asked for.
func openUnwinding(t testing.TB, o demo.Options, options SamplerOptions, what asked) (*Sampler, *chain, *demo.Process,
	Target) {
	t.Helper()
	s := openSampler(t, options)
	c := openChain(t)
	c.ask(what)
	setUnwinder(t, s, c.unwinder())
	p := demo.Start(t, o)
	target := addDemo(t, s, p)
	unwind(t, s, target)
	return s, c, p, target
}

func setUnwinder(t testing.TB, s *Sampler, u *Unwinder) {
	t.Helper()
	assert.NilError(t, s.SetUnwinder(u))
}

func unwind(t testing.TB, s *Sampler, target Target) {
	t.Helper()
	assert.NilError(t, s.Unwind(target, true))
}

// wordsFrom are the words that a chain finds.
func wordsFrom(first, last int) (words []uint64) {
	for i := first; i <= last; i++ {
		words = append(words, uint64(i))
	}
	return words
}

// Samples of an unwound target are counted like others, with the stack that the chain has found. The same
// words are two stacks if one is cut, and each has its own key.
func TestUnwinder(t *testing.T) {
	type found struct {
		asked asked
		want  Stack
	}
	for _, test := range []struct {
		name    string
		options SamplerOptions
		found   []found
	}{
		{"default", SamplerOptions{}, []found{
			{asked{Words: 1}, Stack{Words: wordsFrom(1, 1)}},
			{asked{Words: 5}, Stack{Words: wordsFrom(1, 5)}},
			{asked{Words: 5, Error: 1}, Stack{Words: wordsFrom(1, 5), Error: 1}},
			{asked{Words: 5, Error: 1003}, Stack{Words: wordsFrom(1, 5), Error: 1003}},
			{asked{KernelFrames: 3, Words: 10}, Stack{Words: wordsFrom(4, 10)}},
			{asked{KernelFrames: 127, Words: 127 + 768}, Stack{Words: wordsFrom(128, 895)}},
			{asked{Words: 1024, Error: 1}, Stack{Words: wordsFrom(1, 768), Error: TooManyWords}},
		}},
		{"by thread", SamplerOptions{ByThread: true}, []found{{asked{Words: 3}, Stack{Words: wordsFrom(1, 3)}}}},
		{"by span", SamplerOptions{BySpan: true}, []found{{asked{Words: 300}, Stack{Words: wordsFrom(1, 300)}}}},
		{"kernel", SamplerOptions{KernelStacks: true}, []found{
			{asked{KernelFrames: 3, Words: 10}, Stack{Kernel: wordsFrom(1, 3), Words: wordsFrom(4, 10)}},
			{asked{KernelFrames: 100, Words: 769},
				Stack{Kernel: wordsFrom(1, 100), Words: wordsFrom(101, 768), Error: TooManyWords}},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c, p, target := openUnwinding(t, demo.Options{Busy: 2, Gap: -1}, test.options, test.found[0].asked)
			unwound, walked := uint64(0), uint64(0)
			count := func(verify func(Count, Stack)) {
				for _, count := range drainAll(t, s) {
					whole(t, s, count)
					got := stack(t, s, count.Stack)
					if !count.Stack.Unwound() { // before Unwind
						verifyCode(t, p.PID, got)
						walked += uint64(count.Samples)
						continue
					}
					unwound += uint64(count.Samples)
					assert.Check(t, count.Stack.Target == target && test.options.ByThread == (count.TID != 0),
						"%+v", count)
					verify(count, got)
				}
			}
			keys := make(map[StackKey]int)
			for i, found := range test.found {
				c.ask(found.asked)
				waitForOutcome(t, s, Correlated)
				count(func(Count, Stack) {}) // of what was asked before
				waitForOutcome(t, s, Correlated)
				if i == len(test.found)-1 {
					stop(t, s)
				}
				count(func(count Count, got Stack) {
					assert.Check(t, slices.Equal(got.Kernel, found.want.Kernel) &&
						slices.Equal(got.Words, found.want.Words) && got.Error == found.want.Error && got.User == nil,
						"%+v has the stack %+v", count, got)
					before, known := keys[count.Stack]
					assert.Check(t, !known || before == i, "%+v and %+v have the same key", found, test.found[before])
					keys[count.Stack] = i
				})
			}
			assert.Check(t, len(keys) == len(test.found), "%d keys", len(keys))
			entered, _ := c.entered()
			counters := readCounters(t, s)
			assert.Check(t, unwound != 0 && unwound == entered && unwound+walked == counters[Correlated] &&
				counters[UnwindingFailed] == 0,
				"%d samples unwound, %d walked, %d in the chain, counters %v", unwound, walked, entered, counters)
		})
	}
}

// Where the chain finds nothing of the process, the sampler walks by frame pointers.
func TestNothingUnwound(t *testing.T) {
	for name, what := range map[string]asked{
		"no word": {Error: 4012}, "only kernel": {KernelFrames: 3, Words: 3, Error: 4012},
	} {
		for _, kernelStacks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/kernel stacks %v", name, kernelStacks), func(t *testing.T) {
				options := SamplerOptions{KernelStacks: kernelStacks}
				s, c, p, _ := openUnwinding(t, demo.Options{Busy: 2, Gap: -1}, options, what)
				testenv.Poll(t, waiting, "samples in the chain", func() bool {
					entered, _ := c.entered()
					return entered >= 20
				})
				stop(t, s)
				samples := uint64(0)
				for _, count := range drainAll(t, s) {
					whole(t, s, count)
					samples += uint64(count.Samples)
					if got := stack(t, s, count.Stack); count.Stack.Unwound() || got.Error != 0 {
						t.Errorf("%+v has the stack %+v", count, got)
					} else {
						verifyCode(t, p.PID, got)
					}
				}
				entered, _ := c.entered()
				assert.Equal(t, readSide(t, s).WalkedInstead, entered)
				counters := readCounters(t, s)
				assert.Check(t, samples >= entered && samples == counters[Correlated] && counters[UnwindingFailed] == 0,
					"%d samples walked, %d in the chain, counters %v", samples, entered, counters)
			})
		}
	}
}

// Samples that a chain loses are counted as that, the last ones of each CPU when sampling has stopped.
// The samples between them are counted with their own ids.
func TestUnwinderLoses(t *testing.T) {
	for _, test := range []struct {
		name  string
		asked asked
	}{
		{"all", asked{Words: 10, Loses: 1}},
		{"every third", asked{Words: 10, Loses: 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			enableStats(t)
			s, c, _, _ := openUnwinding(t, demo.Options{Busy: 2, Gap: -1, Transaction: time.Millisecond},
				SamplerOptions{SamplesPerSecond: 2000, BySpan: true}, test.asked)
			testenv.Poll(t, waiting, "samples to be lost", func() bool {
				entered, _ := c.entered()
				return entered > 200
			})
			assert.NilError(t, s.clock.close())
			entered, byCPU := c.entered()
			lost, notYet := entered, uint64(0) // notYet: lost, but not among the counters yet
			if n := uint64(test.asked.Loses); n > 0 {
				lost = 0
				for _, entered := range byCPU {
					lost += entered / n
					if entered > 0 && entered%n == 0 {
						notYet++
					}
				}
			}
			before, taken := readCounters(t, s), uint64(0)
			for cpu := range byCPU {
				n, err := s.takenOn(cpu)
				assert.NilError(t, err)
				taken += n
			}
			stop(t, s)
			counted := uint64(0)
			for _, count := range drainAll(t, s) {
				whole(t, s, count)
				if count.Stack.Unwound() {
					counted += uint64(count.Samples)
				}
			}
			counters := readCounters(t, s)
			assert.Check(t, counters[UnwindingFailed] == lost && counted+lost == entered,
				"%d samples in the chain, %d lost, %d counted, counters %v", entered, lost, counted, counters)
			if ran := runs(t, s.objects.Sample).RunCount; ran != taken || ran != counters.Taken() ||
				ran != before.Taken()+notYet {
				t.Errorf("%d samples: %d taken, %d with an outcome, %d of them lost and counted at the end",
					ran, taken, counters.Taken(), notYet)
			}
		})
	}
}

// waitForStack drains until a sample was counted whose stack is unwound, or is not.
func waitForStack(t testing.TB, s *Sampler, unwound bool) (key StackKey) {
	t.Helper()
	drainAll(t, s)
	testenv.Poll(t, waiting, fmt.Sprintf("a stack with unwound=%v", unwound), func() bool {
		found := false
		for _, count := range drainAll(t, s) {
			stack(t, s, count.Stack)
			if count.Stack.Unwound() == unwound {
				key, found = count.Stack, true
			}
		}
		return found
	})
	return key
}

// onlyStacks checks that what is counted from now on is unwound, or is not.
func onlyStacks(t testing.TB, s *Sampler, unwound bool) {
	t.Helper()
	waitForOutcome(t, s, Correlated) // those that were being taken
	drainAll(t, s)
	for range 3 {
		waitForOutcome(t, s, Correlated)
		for _, count := range drainAll(t, s) {
			stack(t, s, count.Stack)
			assert.Check(t, count.Stack.Unwound() == unwound, "unwound is %v: %+v", !unwound, count)
		}
	}
}

// Unwinders come and go. Without one, and for targets that are not unwound, the sampler walks.
func TestSetUnwinder(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 2, Gap: -1})
	target := addDemo(t, s, p)
	setUnwinder(t, s, nil)
	maps := append(mapNames(t, s.objects.Sample), mapNames(t, s.objects.WalkSample)...)
	if slices.Contains(maps, "unwound_stacks") || len(maps) < 8 {
		t.Errorf("without an unwinder there are the maps %v", maps)
	}
	err := s.Unwind(target, true)
	assert.Check(t, errors.Is(err, ErrNoUnwinder), "without an unwinder: %v", err)
	assert.Check(t, s.Unwind(target, false))
	onlyStacks(t, s, false)
	for range 3 { // each chain has its own record
		c := openChain(t)
		c.ask(asked{Words: 7})
		setUnwinder(t, s, c.unwinder())
		onlyStacks(t, s, false)
		unwind(t, s, target)
		onlyStacks(t, s, true)
		again := addDemo(t, s, p)
		assert.Check(t, again == target, "target %d became %d", target, again)
		onlyStacks(t, s, true)
		assert.Check(t, s.Unwind(target, false))
		onlyStacks(t, s, false)
		unwind(t, s, target)
		waitForStack(t, s, true)

		assert.NilError(t, s.objects.Unwinder.Delete(firstOfChain))
		onlyStacks(t, s, false) // sample by sample
		assert.NilError(t, s.objects.Unwinder.Put(firstOfChain, c.Enter))
		onlyStacks(t, s, true)

		key := waitForStack(t, s, true)
		before := stack(t, s, key)
		for range 2 {
			setUnwinder(t, s, nil)
		}
		after := stack(t, s, key)
		assert.Check(t, slices.Equal(before.Words, after.Words), "words %v were %v", after.Words, before.Words)
		onlyStacks(t, s, false)
		unwound, _ := c.entered()
		assert.Check(t, unwound != 0, "the chain was not entered")
	}
	n := readCounters(t, s)[UnwindingFailed]
	assert.Check(t, n == 0, "%d samples have no stack", n)
}

// mapNames returns the names of the maps that a program uses.
func mapNames(t testing.TB, program *ebpf.Program) (names []string) {
	t.Helper()
	info, err := program.Info()
	assert.NilError(t, err)
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		assert.NilError(t, err)
		defer m.Close()
		info, err := m.Info()
		assert.NilError(t, err)
		names = append(names, info.Name)
	}
	return names
}

// An unwinder replaces the former one, and none is left when one cannot be set.
func TestReplaceUnwinder(t *testing.T) {
	s, former, _, target := openUnwinding(t, demo.Options{Busy: 2, Gap: -1}, SamplerOptions{}, asked{Words: 7})
	onlyStacks(t, s, true)
	c := openChain(t)
	c.ask(asked{Words: 8})
	setUnwinder(t, s, c.unwinder())
	onlyStacks(t, s, false)
	before, _ := former.entered()
	unwind(t, s, target)
	words := stack(t, s, waitForStack(t, s, true)).Words
	assert.Check(t, slices.Equal(words, wordsFrom(1, 8)), "words %v", words)
	after, _ := former.entered()
	assert.Check(t, after == before, "the former chain is still entered")

	wrong := errors.New("wrong")
	for name, change := range map[string]func(*Unwinder){
		"words":         func(u *Unwinder) { u.Layout.Words = 16 + (1024-895)*8 + 1 },
		"word count":    func(u *Unwinder) { u.Layout.WordCount = u.Layout.Size - 1 },
		"kernel frames": func(u *Unwinder) { u.Layout.KernelFrames = 1<<32 - 1 },
		"error":         func(u *Unwinder) { u.Layout.Error = u.Layout.Size - 3 },
		"size":          func(u *Unwinder) { u.Layout.Size++ },
		"records":       func(u *Unwinder) { u.Records = s.objects.Events },
		"entry":         func(u *Unwinder) { u.Entry = openIdentity(t) },
		"last":          func(u *Unwinder) { u.SetLast = func(*ebpf.Program) error { return wrong } },
	} {
		setUnwinder(t, s, c.unwinder())
		unwind(t, s, target)
		u := c.unwinder()
		change(u)
		err := s.SetUnwinder(u)
		assert.Check(t, err != nil && (name != "last" || errors.Is(err, wrong)), "%s: %v", name, err)
		err = s.Unwind(target, true)
		assert.Check(t, errors.Is(err, ErrNoUnwinder), "%s: %v", name, err)
		drainAll(t, s) // before the tables are full: an emulated CPU takes seconds for each of these
	}
	onlyStacks(t, s, false)
}

// openIdentity returns a program of another type than the sampler's.
func openIdentity(t *testing.T) *ebpf.Program {
	t.Helper()
	identities, err := openIdentities()
	assert.NilError(t, err)
	t.Cleanup(func() { identities.close() })
	return identities.program
}

// Only the targets are unwound that were meant, also when others have come in their place.
func TestUnwindTarget(t *testing.T) {
	s, _, p, target := openUnwinding(t, demo.Options{Busy: 1, Gap: -1}, SamplerOptions{}, asked{Words: 7, Error: 5})
	other := addDemo(t, s, demo.Start(t, demo.Options{Busy: 1, Gap: -1}))
	s.table.last = target + 1<<16 - 1 // the next one would have the same bit
	third := addDemo(t, s, demo.Start(t, demo.Options{Busy: 1, Gap: -1}))
	seen := make(map[Target]bool)
	testenv.Poll(t, waiting, "samples of three processes", func() bool {
		for _, count := range drainAll(t, s) {
			seen[count.Stack.Target] = true
			assert.Check(t, count.Stack.Target == target || !count.Stack.Unwound(),
				"targets %d, %d, %d: unwound %+v", target, other, third, count)
		}
		return len(seen) == 3
	})
	stacks := s.objects.Stacks.Iterate()
	value := make([]byte, userStackBytes)
	for key := (samplerStackKey{}); stacks.Next(&key, value); {
		if stack, err := decodeStack(value, true); err != nil || stack.Error != 0 {
			t.Errorf("a walked stack has an error: %+v, %v", stack, err) // and so another key than without
		}
	}

	identity, err := s.Identify(p.PID)
	assert.NilError(t, err)
	identity.execID--
	replaced, err := s.SetTarget(identity, TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static}})
	assert.NilError(t, err)
	for _, gone := range []Target{target, 0, 1 << 31} {
		assert.Check(t, s.Unwind(gone, true))
	}
	unwind(t, s, replaced)
	assert.NilError(t, s.RemoveTarget(replaced))
	var bits filterBits
	err = s.objects.UnwoundTargets.Get(&bits)
	assert.Check(t, err == nil && bits == filterBits{}, "bits of targets that are gone: %v", err)
	again := addDemo(t, s, p)
	drainAll(t, s)
	testenv.Poll(t, waiting, "samples of a new target", func() bool {
		found := false
		for _, count := range drainAll(t, s) {
			if count.Stack.Target == again {
				found = true
				assert.Check(t, !count.Stack.Unwound(), "unwound %+v", count)
			}
		}
		return found
	})
}

// Unwound samples for which tables are full, or whose context could not be read, are deferred with
// their words.
func TestUnwoundDeferred(t *testing.T) {
	for _, test := range []struct {
		name    string
		options SamplerOptions
		asked   asked
	}{
		{"counts", SamplerOptions{MaxCounts: 1}, asked{Words: 20, Error: 9, Stacks: 50}},
		{"stacks", SamplerOptions{MaxUnwound: 1, ByThread: true}, asked{Words: 1024, Stacks: 50}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.SamplesPerSecond = 200 // none may be lost
			test.options.DeferredBytes = 16 << 20
			s, c, p, _ := openUnwinding(t, demo.Options{Busy: 2, Gap: -1}, test.options, test.asked)
			waitForFirst(t, s, TableFull)
			stop(t, s)
			counters := readCounters(t, s)
			var unwound uint64
			verifyDeferred(t, s, counters[TableFull], func(d deferredSample) {
				whole(t, s, d.Count)
				assert.Check(t, d.Outcome == TableFull && d.PID == p.PID && d.TID != 0 &&
					test.options.ByThread == (d.Count.TID == d.TID),
					"deferred %+v", d)
				if !d.Count.Stack.Unwound() {
					verifyCode(t, p.PID, d.Frames)
					return
				}
				unwound++
				verifyWords(t, test.asked, d.Frames)
			})
			for _, count := range drainAll(t, s) {
				if got := stack(t, s, count.Stack); count.Stack.Unwound() {
					unwound += uint64(count.Samples)
					verifyWords(t, test.asked, got)
				}
			}
			if entered, _ := c.entered(); unwound != entered || counters[Lost]+counters[UnwindingFailed] != 0 {
				t.Errorf("%d samples in the chain, %d counted or deferred, counters %v", entered, unwound, counters)
			}
		})
	}
	t.Run("unreadable", func(t *testing.T) {
		want := asked{Words: 20, Error: 9}
		s, _, p, target := openUnwinding(t, demo.Options{Busy: 1, Manual: true},
			SamplerOptions{KeepUntraced: true}, want)
		p.Begin(1)
		p.Spoil(1, "slot-wild")
		thread := p.Threads()[1]
		waitForFirst(t, s, Unreadable)
		stop(t, s)
		verifyDeferred(t, s, readCounters(t, s)[Unreadable], func(d deferredSample) {
			assert.Check(t, d.Outcome == Unreadable && d.PID == p.PID && d.TID == thread.TID &&
				d.ThreadPointer == thread.ThreadPointer && d.Count.Stack.Target == target &&
				d.Count.TraceID == [16]byte{} && d.Count.Stack.Unwound(),
				"deferred %+v", d)
			verifyWords(t, want, d.Frames)
		})
	})
}

// verifyWords checks a stack without frames of the kernel.
func verifyWords(t testing.TB, what asked, got Stack) {
	t.Helper()
	wantError := what.Error
	if what.Words > 768 {
		wantError = TooManyWords
	}
	assert.Check(t, len(got.Words) == int(min(what.Words, 768)) && got.Error == wantError && got.User == nil &&
		len(got.Kernel) == 0 && uint32(got.Words[0]) == 1 &&
		slices.Equal(got.Words[1:], wordsFrom(2, len(got.Words))),
		"asked for %+v: %+v", what, got)
}

// At a high rate, while tables are swapped without pause, stacks are evicted and the unwinder comes
// and goes, each sample is drained once or deferred, with its stack. A slow machine may lose some,
// which are counted.
func TestUnwindingUnderLoad(t *testing.T) {
	what := asked{Words: 60, Stacks: 1000}
	s, c, _, target := openUnwinding(t, demo.Options{Busy: 2, Gap: -1, Transaction: time.Millisecond},
		SamplerOptions{SamplesPerSecond: 5000, MaxUnwound: 64, DeferredBytes: 16 << 20}, what)
	var samples, unwound, deferred uint64
	takeDeferred := func(d deferredSample) {
		deferred++
		if whole(t, s, d.Count); d.Count.Stack.Unwound() {
			unwound++
			verifyWords(t, what, d.Frames)
		}
	}
	drain := func() {
		readDeferred(t, s, takeDeferred) // emulated CPUs take so long that all would find no room
		for _, count := range drainAll(t, s) {
			whole(t, s, count)
			samples += uint64(count.Samples)
			if got := stack(t, s, count.Stack); count.Stack.Unwound() {
				unwound += uint64(count.Samples)
				verifyWords(t, what, got)
			}
		}
	}
	table := s.unwound.Load()
	changes := 0
	testenv.Poll(t, waiting, "stacks to be evicted", func() bool {
		drain()
		assert.NilError(t, table.evictUnused(Now()-uint64(time.Millisecond)))
		if changes < 5 && table.deleted > uint64(changes)*100 {
			changes++
			setUnwinder(t, s, nil)
			setUnwinder(t, s, c.unwinder())
			unwind(t, s, target)
		}
		return table.deleted > 600
	})
	stop(t, s)
	drain()
	counters := readCounters(t, s)
	verifyDeferred(t, s, counters[TableFull]-deferred, takeDeferred)
	// Of lost ones it is not known whether they were unwound.
	entered, _ := c.entered()
	assert.Check(t, samples == counters[Correlated] && unwound <= entered && unwound+counters[Lost] >= entered &&
		counters[UnwindingFailed] == 0,
		"%d samples drained, %d unwound of %d, counters %v", samples, unwound, entered, counters)
	if total, err := s.readCounters(); err != nil || total.UnwoundStored < table.deleted ||
		total.UnwoundStored-table.deleted > uint64(s.options.MaxUnwound) {
		t.Errorf("%d stacks stored, %d evicted, %v", total.UnwoundStored, table.deleted, err)
	}
}
