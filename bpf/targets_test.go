package bpf

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/tlsdesc"
)

func TestSetTarget(t *testing.T) {
	s := openSampler(t, SamplerOptions{MaxTargets: 1})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	other := demo.Start(t, demo.Options{})
	first := addDemo(t, s, p)
	waitForOutcome(t, s, Correlated)
	again := addDemo(t, s, p)
	assert.Check(t, again == first, "target %d, and with another rule %d", first, again)
	identity, err := s.Identify(other.PID)
	assert.NilError(t, err)
	_, err = s.SetTarget(identity, TargetRules{Elastic: demoRule(t, other)})
	assert.Check(t, errors.Is(err, errTooManyTargets), "one too many: %v", err)
	for range 2 {
		assert.Check(t, s.RemoveTarget(first))
	}
	waitForOutcome(t, s, NoTarget)
	drainAll(t, s)
	waitForOutcome(t, s, NoTarget)
	counts := drainAll(t, s)
	assert.Check(t, len(counts) == 0, "counted after the removal: %+v", counts)
	assert.Check(t, addDemo(t, s, p) != first, "a target's number was reused")
	waitForOutcome(t, s, Correlated)
}

// Removing a target that was replaced does not remove the one that replaced it.
func TestRemoveReplacedTarget(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	identity, err := s.Identify(p.PID)
	assert.NilError(t, err)
	earlier := identity
	earlier.execID--
	former, err := s.SetTarget(earlier, TargetRules{Elastic: demoRule(t, p)})
	assert.NilError(t, err)
	target, err := s.SetTarget(identity, TargetRules{Elastic: demoRule(t, p)})
	assert.Assert(t, err == nil && target != former, "targets %d, %d, %v", former, target, err)
	assert.NilError(t, s.RemoveTarget(former))
	waitForOutcome(t, s, Correlated)
}

// An entry that differs in any part of the identity, or is inconsistent, is not used.
func TestStale(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1})
	addDemo(t, s, p)
	identity, err := s.Identify(p.PID)
	assert.NilError(t, err)
	var good samplerCorrelatorTarget
	assert.NilError(t, s.objects.Targets.Lookup(&identity.tgid, &good))
	put := func(value samplerCorrelatorTarget) {
		t.Helper()
		assert.NilError(t, s.objects.Targets.Put(&identity.tgid, &value))
	}
	for name, change := range map[string]func(*samplerCorrelatorTarget){
		"another start":   func(v *samplerCorrelatorTarget) { v.StartTime++ },
		"earlier program": func(v *samplerCorrelatorTarget) { v.ExecId-- },
		"another memory":  func(v *samplerCorrelatorTarget) { v.Memory += 64 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			change(&bad)
			bad.Check = checkSum(&bad)
			put(bad)
			verifyStale(t, s)
		})
	}
	t.Run("torn", func(t *testing.T) {
		bad := good
		bad.Elastic.Offset += 8
		put(bad)
		verifyStale(t, s)
	})
	put(good)
	waitForOutcome(t, s, Correlated)
}

// verifyStale checks that samples end as stale, and none is counted.
func verifyStale(t *testing.T, s *Sampler) {
	t.Helper()
	waitForOutcome(t, s, Stale)
	drainAll(t, s)
	before := readCounters(t, s)
	waitForOutcome(t, s, Stale)
	if after := readCounters(t, s); after[Correlated] != before[Correlated] {
		t.Errorf("%d samples were correlated", after[Correlated]-before[Correlated])
	}
	counts := drainAll(t, s)
	assert.Check(t, len(counts) == 0, "counted: %+v", counts)
}

func startExecChild(t *testing.T, attr *syscall.SysProcAttr) *child {
	t.Helper()
	return startProgram(t, attr, compileChild(t, "cc", "exec.c", "-fno-pie", "-no-pie"))
}

// ready waits until testdata/exec.c runs, and returns its rule.
func (c *child) ready() tlsdesc.Rule {
	c.t.Helper()
	rule := tlsdesc.Rule{Kind: tlsdesc.Static}
	_, err := fmt.Sscanf(c.read(), "ready %d", &rule.Offset)
	assert.NilError(c.t, err)
	return rule
}

// A target is a program, not a process: after an exec the process is not sampled, although its slot
// is at the same address, until the new program is made a target.
func TestExec(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	c := startExecChild(t, nil)
	rule := c.ready()
	var last Target
	for generation, thread := range []string{"main", "worker", "main"} {
		target := addTarget(t, s, c.pid, func() tlsdesc.Rule { return rule })
		assert.Check(t, target != last, "the number of the target is still %d", target)
		last = target
		waitForOutcome(t, s, Correlated)
		c.send(thread)
		next := c.ready()
		assert.Assert(t, next == rule, "the slot was at %+v and is at %+v", rule, next)
		waitForOutcome(t, s, Stale)
		for _, count := range drainAll(t, s) {
			assert.Check(t, count.Stack.Target == target && int(count.TraceID[0]) == generation+1,
				"target %d: count %+v", target, count)
		}
		verifyStale(t, s)
	}
}

// A worker of io_uring has the thread pointer of the thread that it works for, but is not sampled
// as it.
func TestIOWorkerIsNotSampled(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	c := startChild(t, "cc", 1, nil)
	// The rule leads to an unmapped address, so that any memory read is unreadable.
	addTarget(t, s, c.pid, func() tlsdesc.Rule { return tlsdesc.Rule{Kind: tlsdesc.Static, Offset: 1 << 40} })
	c.send("ring")
	if c.read() != "ring" {
		testenv.Missing(t, "io_uring is disabled on this machine")
	}
	waitForOutcome(t, s, NoUserCode) // all threads but the worker wait now
	before := readCounters(t, s)
	waitForOutcome(t, s, NoUserCode)
	if after := readCounters(t, s); after[Unreadable] != before[Unreadable] {
		t.Errorf("%d samples of the worker were taken as those of its thread", after[Unreadable]-before[Unreadable])
	}
}

// A thread has no slot if its DTV is too short for the module, of which nothing beyond is read, or
// older than it, or if the module has no block yet.
func TestNoSlotInDTV(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	p := demo.Start(t, demo.Options{Flavor: demo.GlibcDynamic, Busy: 1, Gap: -1})
	for name, change := range map[string]func(*tlsdesc.Rule){
		"too short": func(rule *tlsdesc.Rule) { rule.Module = 1 << 30 },
		"too old":   func(rule *tlsdesc.Rule) { rule.Generation = 1 << 30 },
		"no block":  func(rule *tlsdesc.Rule) { rule.Module += 5 }, // among the DTV's spare entries
	} {
		t.Run(name, func(t *testing.T) {
			rule := demoRule(t, p)
			change(&rule)
			target := addTarget(t, s, p.PID, func() tlsdesc.Rule { return rule })
			waitForOutcome(t, s, NoSlot)
			assert.NilError(t, s.RemoveTarget(target))
			waitForOutcome(t, s, NoTarget) // none of the target is being taken any more
			counters := readCounters(t, s)
			assert.Check(t, counters[Correlated]+counters[Unreadable] == 0, "counters %v", counters)
		})
	}
}

func TestIdentify(t *testing.T) {
	threads := openThreads(t)
	s := openSampler(t, SamplerOptions{})
	c := startChild(t, "cc", 100, nil)
	identity, err := s.Identify(c.pid)
	assert.NilError(t, err)
	again, err := s.Identify(c.pid)
	assert.Check(t, err == nil && again == identity, "%+v, and again %+v, %v", identity, again, err)
	for _, thread := range process(t, threads, c.pid) {
		assert.Check(t, thread.TID != c.pid || thread.StartTime == identity.StartTime,
			"started at %d, the main thread at %d", identity.StartTime, thread.StartTime)
	}
	filters := s.identities.filters
	s.identities.filters = false // as on kernels before 6.1
	again, err = s.Identify(c.pid)
	assert.Check(t, err == nil && again == identity, "%+v, unfiltered %+v, %v", identity, again, err)
	s.identities.filters = filters
	// Now only the other threads identify the program.
	c.ask("leave", "leaving")
	testenv.Poll(t, waiting, "the end of the main thread", func() bool { return state(t, c.pid) == "Z" })
	again, err = s.Identify(c.pid)
	assert.Check(t, err == nil && again == identity, "%+v, without main thread %+v, %v", identity, again, err)
	c.stop()
	for _, pid := range []int{c.pid, kernelThread(t), 0, -1, 1 << 30, 1<<32 + c.pid} {
		identity, err := s.Identify(pid)
		assert.Check(t, errors.Is(err, ErrGone), "pid %d: %+v, %v", pid, identity, err)
	}
}

// checkSum changes with every word. (That it is what the program computes, every test with a target
// shows.)
func TestCheckSum(t *testing.T) {
	var target samplerCorrelatorTarget
	sums := map[uint64]bool{checkSum(&target): true}
	for _, change := range []func(){
		func() { target.StartTime = 1 }, func() { target.ExecId = 1 }, func() { target.Memory = 1 },
		func() { target.Id = 1 }, func() { target.Pid = 1 }, func() { target.Level = 1 },
		func() { target.KnownKeys = 1 }, func() { target.AttributeCount = 1 }, func() { target.Labels = 1 },
		func() { target.AttributeKeys[0] = 1 }, func() { target.AttributeKeys[7] = 1 },
	} {
		change()
		sums[checkSum(&target)] = true
	}
	for _, rule := range []*samplerCorrelatorRule{&target.Elastic, &target.Otel} {
		for _, change := range []func(){
			func() { rule.Offset = 1 }, func() { rule.Module = 1 }, func() { rule.Generation = 1 },
			func() { rule.DtvOffset = 1 }, func() { rule.DtvStride = 1 }, func() { rule.DtvCapacityOffset = 1 },
			func() { rule.Kind = 1 }, func() { rule.Reserved = 1 },
		} {
			change()
			sums[checkSum(&target)] = true
		}
	}
	before := checkSum(&target)
	target.Check = 1
	assert.Check(t, len(sums) == 1+11+2*8 && checkSum(&target) == before,
		"%d different sums, %#x and %#x", len(sums), before, checkSum(&target))
}

// Targets whose pids have the same last bits share a bit of the filter, which is cleared when the
// last of them is removed.
func TestTargetFilter(t *testing.T) {
	s := openSampler(t, SamplerOptions{})
	const tgid = 1<<22 + 7 // above any pid_max
	empty := func() bool {
		t.Helper()
		var bits filterBits
		assert.NilError(t, s.objects.TargetFilter.Get(&bits))
		for i, word := range bits {
			assert.Check(t, word == 0 || i == 0 && word == 1<<7, "word %d is %#x", i, word)
		}
		return bits[0] == 0
	}
	var targets []Target
	for i := range uint32(3) {
		target, err := s.SetTarget(ExecID{tgid: tgid + i<<16}, TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static}})
		assert.NilError(t, err)
		targets = append(targets, target)
	}
	for i, target := range targets {
		assert.Check(t, !empty(), "no bit with %d targets", len(targets)-i)
		assert.NilError(t, s.RemoveTarget(target))
	}
	assert.Check(t, empty(), "a bit without target")
}

// Accounts see the switches of targets that may have contexts, and of those that share a bit with one: the threads of
// all that they see are prepared. Those by thread see all targets.
func TestAccountedTargets(t *testing.T) {
	const tgid = 1<<22 + 7 // above any pid_max
	static := TargetRules{Elastic: tlsdesc.Rule{Kind: tlsdesc.Static}}
	for byThread, want := range map[bool][]bool{false: {true, true, false, true}, true: {true, true, true, true}} {
		s := openSampler(t, SamplerOptions{})
		set := func(tgid uint32, rules TargetRules) {
			t.Helper()
			_, err := s.SetTarget(ExecID{tgid: tgid}, rules)
			assert.NilError(t, err)
		}
		set(tgid, TargetRules{})
		set(tgid+1, static)
		w := openWaits(t, s, WaitOptions{NoWalks: true, ByThread: byThread})
		accounted := func() (all []bool) {
			t.Helper()
			var bits filterBits
			assert.NilError(t, w.objects.Filter.Get(&bits))
			for n := range uint32(4) {
				all = append(all, bits.has(tgid+n))
			}
			for number, entry := range s.table.byTGID {
				assert.Check(t, entry.accounted == bits.has(number), "target %d: %+v", number, entry)
			}
			return all
		}
		assert.DeepEqual(t, accounted(), []bool{byThread, true, false, false})
		set(tgid+2, TargetRules{})
		set(tgid+3, TargetRules{})
		set(tgid+3, TargetRules{OTel: tlsdesc.Rule{Kind: tlsdesc.Static}}) // it begins to publish
		set(tgid+1<<16, static)
		assert.DeepEqual(t, accounted(), want)
	}
}
