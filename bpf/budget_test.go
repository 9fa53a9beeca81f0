package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A stream is struct stream of testdata/budget.c: waits of a thread, one after the other.
type stream struct {
	target, thread uint32
	until, gap     time.Duration
	least, spread  [2]time.Duration // lengths; if there is a second, each tenth has that
	_, _           time.Duration    // the program's
}

// streams are of threads of a target.
func streams(target, first, threads int, until, least, spread time.Duration) (all []stream) {
	for thread := first; thread < first+threads; thread++ {
		all = append(all, stream{
			target: uint32(target), thread: uint32(thread), until: until, gap: 10 * time.Microsecond,
			least: [2]time.Duration{least}, spread: [2]time.Duration{spread},
		})
	}
	return all
}

// A dueSum is struct sum of testdata/budget.c.
type dueSum struct {
	count, walked, whole, overdue int
	length, weight, refused       time.Duration
}

// A due is struct result of testdata/budget.c.
type due struct {
	before, after [1024]time.Duration
	sums          [1024][2]dueSum // not long, and long
	longest, last time.Duration   // periods
}

// of adds up sums of threads, from the first to before the last.
func (d *due) of(first, last int, long bool) (sum dueSum) {
	for _, both := range d.sums[first:last] {
		of := both[0]
		if long {
			of = both[1]
		}
		sum.count, sum.walked, sum.whole = sum.count+of.count, sum.walked+of.walked, sum.whole+of.whole
		sum.overdue, sum.length = sum.overdue+of.overdue, sum.length+of.length
		sum.weight, sum.refused = sum.weight+of.weight, sum.refused+of.refused
	}
	return sum
}

// walkDue has the stacks of waits walked by testdata/budget.c, and checks what holds of all: that no more are walked
// than may be, and that what they stand for, what none stands for, and what is left is the time of all waits of each
// thread.
func walkDue(t *testing.T, all []stream, long time.Duration, constants ...string) *due {
	t.Helper()
	options := append([]string{"-O", "-Wall", "-Werror"}, constants...)
	cmd := exec.Command(testenv.Compile(t, "cc", "testdata/budget.c", options...), fmt.Sprint(int64(long)))
	cmd.Stdin = bytes.NewReader(asBytes(all))
	out, err := cmd.Output()
	assert.NilError(t, err)
	d := new(due)
	walked := len(out) - int(unsafe.Sizeof(*d))
	assert.Assert(t, walked > 0)
	copy(asBytes(unsafe.Slice(d, 1)), out[walked:])
	for thread, of := range d.sums {
		for _, sum := range of {
			d.before[thread] += sum.length - sum.weight - sum.refused
		}
	}
	assert.Check(t, d.before == d.after)
	const ofCPU = 1 << 31
	walks := make(map[uint64][]time.Duration) // of targets and the CPU
	for ; len(out) > int(unsafe.Sizeof(*d)); out = out[16:] {
		target, end := binary.NativeEndian.Uint64(out), time.Duration(binary.NativeEndian.Uint64(out[8:]))
		walks[target] = append(walks[target], end)
		walks[ofCPU] = append(walks[ofCPU], end)
	}
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
	return d
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
		all := append(streams(0, 0, short.threads, 10*time.Second, short.length/2, short.length),
			streams(0, 1000, 2, 10*time.Second, 200*time.Millisecond, 200*time.Millisecond)...)
		d := walkDue(t, all, longest)
		longs, shorts := d.of(1000, 1002, true), d.of(0, short.threads, false)
		t.Logf("%+v: %+v, %+v", short, longs, shorts)
		assert.Check(t, longs.whole == longs.count && longs.whole > 50 && shorts.walked > 100)
	}
}

// A target whose waits are of all lengths, with fewer of the longer ones, has the stacks of nearly all that are long.
func TestBudgetMixed(t *testing.T) {
	var all []stream
	for i, length := range []time.Duration{4, 4, 10, 10, 15, 50, 100, 150} {
		length *= time.Millisecond
		all = append(all, streams(0, i, 1, 20*time.Second, length/2, length)...)
	}
	long := walkDue(t, all, 100*time.Millisecond).of(0, len(all), true)
	assert.Check(t, long.count > 200 && long.whole > long.count*9/10, "%+v", long)
}

// What stacks stand for is the time of waits of each length, also where most are refused.
func TestBudgetUnbiased(t *testing.T) {
	all := streams(0, 0, 20, 100*time.Second, 0, 2*time.Millisecond)
	for i := range all {
		all[i].least[1], all[i].spread[1] = 4*time.Millisecond, 5*time.Millisecond
	}
	d := walkDue(t, all, 4*time.Millisecond)
	long, short := d.of(0, len(all), true), d.of(0, len(all), false)
	assert.Check(t, long.refused+short.refused == 0)
	is := float64(long.weight) / float64(short.weight+long.weight)
	want := float64(long.length) / float64(short.length+long.length)
	t.Log(is, want)
	assert.Check(t, is > want-0.03 && is < want+0.03, "%.3f, not %.3f", is, want)
}

// Of threads whose waits end together, one after the other, each has its turn.
func TestBudgetTogether(t *testing.T) {
	const threads = 20
	d := walkDue(t, streams(0, 0, threads, 20*time.Second, 60*time.Millisecond, 0), 0)
	for i := range threads {
		stands := d.sums[i][1].weight
		assert.Check(t, stands > 15*time.Second, "%d: %v of 20 s", i, stands)
	}
}

// A period that too many waits have made longer is the least again once they are over.
func TestBudgetPeriod(t *testing.T) {
	d := walkDue(t, append(streams(0, 0, 100, 2*time.Second, 300*time.Millisecond, 0),
		streams(0, 200, 1, 10*time.Second, 11*time.Millisecond, 0)...), 0)
	assert.Check(t, d.longest > 100*time.Millisecond && d.last <= 20*time.Millisecond, "%v, %v", d.longest, d.last)
}

// Targets that want all walks of a CPU leave some to others.
func TestBudgetShared(t *testing.T) {
	for _, length := range []time.Duration{5 * time.Millisecond, 500 * time.Millisecond} {
		const other = 3
		var all []stream
		for target := range other {
			all = append(all, streams(target, 100*target, 100, 10*time.Second, length, length)...)
		}
		all = append(all, streams(other, 1000, 1, 10*time.Second, 50*time.Millisecond, 100*time.Millisecond)...)
		of := walkDue(t, all, 0).of(1000, 1001, true)
		t.Log(length, of)
		assert.Check(t, of.weight > of.length/2, "%v of %v", of.weight, of.length)
	}
}

// Long waits that end together have their stacks beside others' many that are a little longer than the least period.
func TestBudgetBesideMany(t *testing.T) {
	const target = 3
	var all []stream
	for i := range target {
		all = append(all, streams(i, 20*i, 20, 40*time.Second, 13500*time.Microsecond, 1500*time.Microsecond)...)
	}
	long := streams(target, 1000, 6, 40*time.Second-1, 150*time.Millisecond, 0)
	for i := range long {
		long[i].gap = 850 * time.Millisecond
	}
	of := walkDue(t, append(all, long...), 0).of(1000, 1006, true)
	assert.Check(t, of.whole == of.count && of.count == 6*39, "%+v", of)
}

// What waits for a CPU have added up to has 32 bits for 16 ns each, however long periods are.
func TestBudgetFits(t *testing.T) {
	var all []stream
	for i := range 1000 {
		all = append(all, streams(i%4, i, 1, 320*time.Second, 6240*time.Millisecond, 0)...)
	}
	for _, least := range []string{"6400000000ULL", "queue_period(MAX_PERIOD)"} {
		d := walkDue(t, all, 0, "-DQUEUE", "-DLEAST="+least)
		assert.Check(t, d.of(0, 1000, true).overdue == 0)
	}
}

// Many short waits for a CPU, of whose stacks few may be walked, have a part in those.
func TestBudgetOfQueue(t *testing.T) {
	all := streams(0, 0, 400, 10*time.Second, 5*time.Millisecond, 0)
	of := walkDue(t, all, 0, "-DQUEUE").of(0, 400, true)
	assert.Check(t, of.weight > 20*time.Minute && of.refused == 0, "%+v", of) // of 67
}
