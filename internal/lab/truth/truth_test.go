package main

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// By frame pointers alone, no caller is missing of what Go has compiled, unless the stack says so: of functions
// without a frame, and of those that are making or leaving theirs.
func TestFramePointers(t *testing.T) {
	testenv.NeedRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the subjects are for x86-64")
	}
	agent, err := buildAgent(t.TempDir())
	assert.NilError(t, err)
	s := golang("Go", "local")
	testenv.Poll(t, 2*time.Minute, "samples", func() bool {
		c, err := compare(agent, &s, "frame-pointers", time.Second)
		assert.NilError(t, err)
		for what, n := range c.wrong {
			// The address at which a signal has interrupted code is in no chain of frame pointers.
			assert.Check(t, !strings.HasPrefix(what, "none of"), "%s in %v of %v samples", what, n, c.samples)
		}
		// That is what the program does, not how fast: where an instruction's caller cannot be told.
		cut := c.cutWith["main.hash"]
		assert.Check(t, c.inclusive["main.hash"] < 20 || cut <= c.inclusive["main.hash"]/2,
			"of %v samples of main.hash, %v are cut", c.inclusive["main.hash"], cut)
		return c.inclusive["main.hash"]-cut >= 10 && c.inclusive["main.fib"] >= 1
	})
}

// What is counted of stacks: each function once in each, cut ones apart, and as wrong those without a function that has
// to be there, or with one that cannot be.
func TestLook(t *testing.T) {
	of := truth{
		Inclusive: map[string]float64{"price": 0.75, "reserve": 0.25}, Self: map[string]float64{"hash": 1},
		Above: map[string][]string{"hash": {"price", "reserve"}}, Below: map[string]string{"price": "hash|add"},
		Work: "work", Clock: "cpu_time", Thread: 7,
	}
	var stacks []stack
	for line := range strings.Lines(`main;work;price;hash 6
main;work;reserve;hash;hash 2
main;work;hash 1
main;work;[stack truncated];hash 3
main;work;memcpy 4
main;work;cpu_time;clock_gettime 5
main;work 7
start_thread;idle 8
main;work;price;[inlined code] 10
main;work;price;hash;[inlined code] 20
main;work;price;[inlined code];@add 30
main;work;price;hash;@subtract 40
`) {
		at := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(strings.TrimSpace(line[at:]))
		assert.NilError(t, err)
		s := stack{thread: 7, samples: float64(n)}
		for f := range strings.SplitSeq(line[:at], ";") {
			name, ofRuntime := strings.CutPrefix(f, "@")
			s.frames = append(s.frames, frame{name, ofRuntime})
		}
		stacks = append(stacks, s)
	}
	s, err := look(&of, append(stacks, stack{thread: 8, samples: 100, frames: stacks[0].frames}, stack{thread: 7}))
	assert.NilError(t, err)
	assert.Check(t, s.samples == 136 && s.others == 100 && s.cut == 3 && s.cutWith["hash"] == 3 && s.elsewhere == 8, s)
	assert.Check(t, s.self["hash"] == 12 && s.inclusive["hash"] == 72 && s.inclusive["price"] == 106, s)
	assert.Check(t, s.marked == 60 && s.hidden["hash"] == 40 && s.hiddenSelf["hash"] == 30, s)
	assert.DeepEqual(t, s.wrong, map[string]float64{
		"none of [price reserve] above hash": 1, "no function of known share above memcpy": 4, "subtract below price": 40,
	})

	of.Below["price"] = "("
	_, err = look(&of, nil)
	assert.Check(t, err != nil, "an expression that is none")
}

// A difference counts as far as stacks do not say that they do not know it.
func TestWorst(t *testing.T) {
	c := comparison{truth: truth{
		Inclusive: map[string]float64{"sure": 0.5}, Self: map[string]float64{"inlined": 0.4},
	}, seen: seen{
		samples: 100, inclusive: map[string]float64{"sure": 49}, self: map[string]float64{"inlined": 10},
		hiddenSelf: map[string]float64{"inlined": 30},
	}}
	check := func(inlined, want float64, of string) {
		t.Helper()
		c.Self["inlined"] = inlined
		points, function := c.worst()
		assert.Check(t, math.Abs(points-want) < 1e-9 && function == of, "%v points of %s", points, function)
	}
	check(0.1, 1, "sure")
	check(0.4, 1, "sure")
	check(0.43, 3, "inlined")
	check(0.08, 2, "inlined")
}

// A subject whose runtime is not there is said to be not run.
func TestNotRun(t *testing.T) {
	var table strings.Builder
	summarize(&table, []*comparison{{name: "JDK 8", notRun: "not found"}})
	assert.Check(t, strings.Contains(table.String(), "| JDK 8 | not run: not found |"), table.String())
}
