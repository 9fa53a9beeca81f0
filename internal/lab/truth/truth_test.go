package main

import (
	"os"
	"runtime"
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

// What is counted of folded stacks: each function once in each, cut ones apart, and as wrong those without a function
// that has to be there.
func TestLook(t *testing.T) {
	of := truth{
		Inclusive: map[string]float64{"price": 0.75, "reserve": 0.25}, Self: map[string]float64{"hash": 1},
		Above: map[string][]string{"hash": {"price", "reserve"}},
	}
	s, err := look(&of, `main;work;price;hash 6
main;work;reserve;hash;hash 2
main;work;hash 1
main;work;[stack truncated];hash 3
main;work;memcpy 4
main;work;cpu_time;clock_gettime 5
main;work 7
start_thread;idle 8
`)
	assert.NilError(t, err)
	assert.Check(t, s.samples == 36 && s.cut == 3 && s.cutWith["hash"] == 3 && s.elsewhere == 8, s)
	assert.Check(t, s.self["hash"] == 12 && s.inclusive["hash"] == 12 && s.inclusive["price"] == 6, s)
	assert.DeepEqual(t, s.wrong, map[string]float64{
		"none of [price reserve] above hash": 1, "no function of known share above memcpy": 4,
	})
	_, err = look(&of, "main\n")
	assert.Check(t, err != nil, "a line without a number")
}
