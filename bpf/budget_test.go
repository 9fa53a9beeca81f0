package bpf

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A dueWait is struct wait of testdata/budget.c.
type dueWait struct {
	target, thread          uint32
	end, length             time.Duration
	weight, refused, period time.Duration
}

// stream adds waits of a thread, one after the other, until an end.
func stream(all []dueWait, target, thread int, until time.Duration, next func() (length time.Duration)) []dueWait {
	for at := time.Duration(0); ; {
		length := next()
		at += length + 10*time.Microsecond
		if at > until {
			return all
		}
		if len(all) == cap(all) {
			// Seldom: memory that is new costs more than what is done with it.
			all = slices.Grow(all, max(1<<12, len(all)))
		}
		all = append(all, dueWait{target: uint32(target), thread: uint32(thread), end: time.Hour + at, length: length})
	}
}

// inOrder returns waits by their ends. It sorts numbers: the race detector is told of all that is moved.
func inOrder(t *testing.T, all []dueWait) []dueWait {
	t.Helper()
	const indexBits = 21 // and 43 for the end: 2 hours
	assert.Assert(t, len(all) < 1<<indexBits)
	keys := make([]uint64, len(all))
	for i := range all {
		keys[i] = uint64(all[i].end)<<indexBits | uint64(i)
	}
	slices.Sort(keys)
	ordered := make([]dueWait, len(all))
	for to, key := range keys {
		ordered[to] = all[key%(1<<indexBits)]
	}
	return ordered
}

// walkDue has the stacks of waits walked by testdata/budget.c, and checks what holds of all: that no more are walked
// than may be, and that what they stand for, what none stands for, and what is left is the time of all waits of each
// thread.
func walkDue(t *testing.T, all []dueWait, constants ...string) []dueWait {
	t.Helper()
	ordered := inOrder(t, all)
	options := append([]string{"-O", "-Wall", "-Werror"}, constants...)
	cmd := exec.Command(testenv.Compile(t, "cc", "testdata/budget.c", options...))
	cmd.Stdin = bytes.NewReader(asBytes(ordered))
	stdout, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	var before, after [1024]time.Duration
	for _, part := range [][]byte{asBytes(before[:]), asBytes(all), asBytes(after[:])} {
		_, err := io.ReadFull(stdout, part)
		assert.NilError(t, err)
	}
	rest, err := io.ReadAll(stdout)
	assert.NilError(t, errors.Join(err, cmd.Wait()))
	assert.Assert(t, len(rest) == 0)
	const ofCPU = 1 << 31
	walks := make(map[uint32][]time.Duration) // of targets and the CPU
	for _, w := range all {
		before[w.thread] += w.length - w.weight - w.refused
		if w.weight > 0 {
			walks[w.target] = append(walks[w.target], w.end)
			walks[ofCPU] = append(walks[ofCPU], w.end)
		}
	}
	assert.Check(t, before == after)
	for of, walks := range walks {
		most := 4
		if of == ofCPU {
			most = windowWalks
		}
		for first := range walks {
			for n := 2 * most; first+n < len(walks); n++ { // as many as in two windows at once
				took := walks[first+n] - walks[first]
				if took < time.Duration(n+1-2*most)*(window/time.Duration(most)-1) {
					t.Fatalf("%d: %d walks in %v", of, n+1, took)
				}
			}
		}
	}
	return all
}

const window = time.Duration(waitsBudgetWINDOW)

// However many waits are short, or a little longer than the least period, those that are much longer have their stacks.
func TestBudgetLongFirst(t *testing.T) {
	const longest = 80 * time.Millisecond // of those that may be refused: 8 times the least period
	for _, short := range []struct {
		threads int
		length  time.Duration
	}{{1, 50 * time.Microsecond}, {1, 10100 * time.Microsecond}, {1, 15 * time.Millisecond},
		{200, 2 * time.Millisecond}, {200, 10100 * time.Microsecond}, {20, 15 * time.Millisecond}} {
		random := rand.New(rand.NewPCG(1, 2))
		var all []dueWait
		for i := range short.threads {
			all = stream(all, 0, i, 10*time.Second, func() time.Duration {
				return short.length/2 + time.Duration(random.Int64N(int64(short.length)))
			})
		}
		for i := range 2 {
			all = stream(all, 0, 1000+i, 10*time.Second, func() time.Duration {
				return time.Duration(200+random.Int64N(200)) * time.Millisecond
			})
		}
		var longs, shorts, refused int
		for _, w := range walkDue(t, all) {
			switch {
			case w.length >= longest && w.weight != w.length:
				refused++
			case w.length >= longest:
				longs++
			case w.weight > 0:
				shorts++
			}
		}
		t.Logf("%+v: %d long, %d refused, %d short", short, longs, refused, shorts)
		assert.Check(t, refused == 0 && longs > 50 && shorts > 100)
	}
}

// A target whose waits are of all lengths, with fewer of the longer ones, has the stacks of nearly all that are long.
func TestBudgetMixed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	var all []dueWait
	for i, length := range []time.Duration{4, 4, 10, 10, 15, 50, 100, 150} {
		length *= time.Millisecond
		all = stream(all, 0, i, 20*time.Second, func() time.Duration {
			return length/2 + time.Duration(random.Int64N(int64(length)))
		})
	}
	var longs, walked int
	for _, w := range walkDue(t, all) {
		if w.length >= 100*time.Millisecond {
			longs++
			if w.weight == w.length {
				walked++
			}
		}
	}
	assert.Check(t, longs > 200 && walked > longs*9/10, "%d of %d", walked, longs)
}

// What stacks stand for is the time of waits of each length, also where most are refused.
func TestBudgetUnbiased(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 3))
	var all []dueWait
	for i := range 20 {
		all = stream(all, 0, i, 100*time.Second, func() time.Duration {
			if random.IntN(10) > 0 {
				return time.Duration(random.IntN(int(2 * time.Millisecond)))
			}
			return time.Duration(4+random.IntN(5)) * time.Millisecond
		})
	}
	var took, stands [2]time.Duration
	var refused time.Duration
	for _, w := range walkDue(t, all) {
		isLong := 0
		if w.length > 2*time.Millisecond {
			isLong = 1
		}
		took[isLong] += w.length
		stands[isLong] += w.weight
		refused += w.refused
	}
	assert.Check(t, refused == 0, refused)
	is, want := float64(stands[1])/float64(stands[0]+stands[1]), float64(took[1])/float64(took[0]+took[1])
	t.Log(is, want)
	assert.Check(t, is > want-0.03 && is < want+0.03, "%.3f, not %.3f", is, want)
}

// Of threads whose waits end together, one after the other, each has its turn.
func TestBudgetTogether(t *testing.T) {
	var all []dueWait
	const threads = 20
	for i := range threads {
		all = stream(all, 0, i, 20*time.Second, func() time.Duration { return 60 * time.Millisecond })
	}
	var stands [threads]time.Duration
	for _, w := range walkDue(t, all) {
		stands[w.thread] += w.weight
	}
	for i, d := range stands {
		assert.Check(t, d > 15*time.Second, "%d: %v of 20 s", i, d)
	}
}

// A period that too many waits have made longer is the least again once they are over.
func TestBudgetPeriod(t *testing.T) {
	var all []dueWait
	for i := range 100 {
		all = stream(all, 0, i, 2*time.Second, func() time.Duration { return 300 * time.Millisecond })
	}
	all = stream(all, 0, 200, 10*time.Second, func() time.Duration { return 11 * time.Millisecond })
	all = walkDue(t, all)
	var longest time.Duration
	for _, w := range all {
		longest = max(longest, w.period)
	}
	last := all[len(all)-1]
	assert.Check(t, longest > 100*time.Millisecond && last.period <= 20*time.Millisecond, "%v, %+v", longest, last)
}

// Targets that want all walks of a CPU leave some to others.
func TestBudgetShared(t *testing.T) {
	for _, length := range []time.Duration{5 * time.Millisecond, 500 * time.Millisecond} {
		random := rand.New(rand.NewPCG(4, 5))
		const other = 3
		var all []dueWait
		for target := range other {
			for i := range 100 {
				all = stream(all, target, 100*target+i, 10*time.Second, func() time.Duration {
					return length + time.Duration(random.Int64N(int64(length)))
				})
			}
		}
		all = stream(all, other, 1000, 10*time.Second, func() time.Duration {
			return time.Duration(50+random.IntN(100)) * time.Millisecond
		})
		var has, of time.Duration
		for _, w := range walkDue(t, all) {
			if w.target == other {
				has += w.weight
				of += w.length
			}
		}
		t.Log(length, has, of)
		assert.Check(t, has > of/2, "%v of %v", has, of)
	}
}

// Long waits that end together have their stacks beside others' many that are a little longer than the least period.
func TestBudgetBesideMany(t *testing.T) {
	random := rand.New(rand.NewPCG(0, 11))
	var all []dueWait
	const target = 3
	for i := range target * 20 {
		all = stream(all, i/20, i, 40*time.Second, func() time.Duration {
			return 15*time.Millisecond - time.Duration(random.Int64N(int64(1500*time.Microsecond)))
		})
	}
	for at := time.Second; at < 40*time.Second; at += time.Second {
		for i := range 6 {
			all = append(all, dueWait{target: target, thread: uint32(1000 + i), end: time.Hour + at,
				length: 150 * time.Millisecond})
		}
	}
	var walked, of int
	for _, w := range walkDue(t, all) {
		if w.target == target {
			of++
			if w.weight == w.length {
				walked++
			}
		}
	}
	assert.Check(t, walked == of, "%d of %d", walked, of)
}

// What waits for a CPU have added up to has 32 bits for 16 ns each, however long periods are.
func TestBudgetFits(t *testing.T) {
	var all []dueWait
	for i := range 1000 {
		all = stream(all, i%4, i, 320*time.Second, func() time.Duration { return 6240 * time.Millisecond })
	}
	for _, least := range []string{"6400000000ULL", "queue_period(MAX_PERIOD)"} {
		for _, w := range walkDue(t, slices.Clone(all), "-DQUEUE", "-DLEAST="+least) {
			assert.Check(t, w.length < w.period)
		}
	}
}

// Many short waits for a CPU, of whose stacks few may be walked, have a part in those.
func TestBudgetOfQueue(t *testing.T) {
	var all []dueWait
	for i := range 400 {
		all = stream(all, 0, i, 10*time.Second, func() time.Duration { return 5 * time.Millisecond })
	}
	var stands, refused time.Duration
	for _, w := range walkDue(t, all, "-DQUEUE") {
		stands += w.weight
		refused += w.refused
	}
	assert.Check(t, stands > 20*time.Minute && refused == 0, "%v, %v not", stands, refused) // of 67
}
