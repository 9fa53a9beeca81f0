package main

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// once returns a subject that is built once, in a directory of the test's.
func once(t *testing.T, s subject) *subject {
	t.Helper()
	command, err := s.build(t.TempDir())
	assert.NilError(t, err)
	s.build = func(string) ([]string, error) { return command, nil }
	return &s
}

// By frame pointers alone, no caller is missing of what Go has compiled, unless the stack says so: of functions
// without a frame, and of those that are making or leaving theirs.
func TestFramePointers(t *testing.T) {
	testenv.NeedRoot(t)
	agent := demo.Agent(t, t.TempDir())
	s := once(t, golang("Go", "local"))
	testenv.Poll(t, 2*time.Minute, "samples", func() bool {
		c, err := compare(agent, s, "frame-pointers", time.Second)
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

// No stack of a program in Python or JavaScript has a call that the program does not make, and all say where the
// program's first function is.
func TestScripts(t *testing.T) {
	testenv.NeedRoot(t)
	t.Setenv("PROFILING", "1")
	agent := demo.Agent(t, t.TempDir())
	for command, s := range map[string]script{
		"node":    {file: "truth.js", versionFlags: []string{"--version"}},
		"python3": {file: "truth.py", versionFlags: []string{"--version"}},
	} {
		t.Run(command, func(t *testing.T) {
			s.commands = []string{testenv.NeedTool(t, command)}
			subject := once(t, s.subject())
			testenv.Poll(t, 2*time.Minute, "samples", func() bool {
				c, err := compare(agent, subject, "full", time.Second)
				assert.NilError(t, err)
				assert.Check(t, len(c.wrong) == 0 && c.marked == 0, "%v", c.wrong)
				assert.Check(t, c.cut+c.elsewhere <= c.samples/2+5, "of %v samples, %v are cut, and %v elsewhere",
					c.samples,
					c.cut, c.elsewhere)
				sum := 0.0
				for f, callers := range c.Callers {
					if slices.Contains(callers, c.Work) {
						sum += c.inclusive[f]
					}
				}
				assert.Check(t, sum <= c.samples, "%v of %v samples are in phases", sum, c.samples)
				return sum > 50 && c.inclusive["fib"] > 0 && c.inclusive["sorting"] > 0 && c.self["spin"] > 0
			})
		})
	}
}

// A program whose runtime is not in PATH, or of another version, is not run.
func TestScriptNotFound(t *testing.T) {
	s := script{language: "L", commands: []string{"no-such-program", "echo"}, version: "3.",
		versionFlags: []string{"2.9"}}
	_, err := s.subject().build(t.TempDir())
	assert.Error(t, err, "not run: no no-such-program or echo in PATH is of L 3")
	s.language, s.commands, s.version = "Ruby", s.commands[:1], ""
	_, err = s.subject().build(t.TempDir())
	assert.Error(t, err, "not run: no no-such-program in PATH is of Ruby")
	s.commands, s.version = append(s.commands, "echo"), "2."
	s.nativeOnly = true
	assert.Check(t, s.subject().name == "Ruby 2.9 (native frames only)", s.subject().name)
	command, version, err := s.find()
	assert.Check(t, err == nil && command == "echo" && version == "2.9", "%s, %s, %v", command, version, err)
}

// A program whose functions are all known is wrong where one is called by one that does not call it, also in a stack
// that is cut, but for what is behind the cut; functions of other files are not compared.
func TestCallers(t *testing.T) {
	of := truth{
		File: "a.py", Self: map[string]float64{"spin": 1},
		Callers: map[string][]string{"main": {""}, "price": {"main"}, "hash": {"price"}, "spin": {"price"}},
	}
	var stacks []stack
	for _, functions := range []string{
		"_start;main@a.py;price@a.py;hash@a.py;memcpy", "main@a.py;price@a.py;library@b.py;spin;libc",
		"[stack truncated];price@a.py;hash@a.py", "_start;other@b.py", // right
		"main@a.py;hash@a.py", "price@a.py", "[stack truncated];hash@a.py;hash@a.py", "main@a.py;price@a.py;odd@a.py",
	} {
		s := stack{samples: 1}
		for f := range strings.SplitSeq(functions, ";") {
			function, file, ofRuntime := strings.Cut(f, "@")
			s.frames = append(s.frames, frame{function, file, ofRuntime})
		}
		stacks = append(stacks, s)
	}
	s, err := look(&of, stacks)
	assert.NilError(t, err)
	assert.Check(t, s.samples == 8 && s.cut == 1 && s.elsewhere == 1, "%+v", s)
	assert.Check(t, s.self["hash"] == 4 && s.self["spin"] == 1 && s.self["memcpy"] == 0, s.self)
	assert.DeepEqual(t, s.wrong, map[string]float64{
		`hash called by "main"`: 1, `price called by ""`: 1, `hash called by "hash"`: 1, `odd called by "price"`: 1,
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
			s.frames = append(s.frames, frame{function: name, ofRuntime: ofRuntime})
		}
		stacks = append(stacks, s)
	}
	s, err := look(&of, append(stacks, stack{thread: 8, samples: 100, frames: stacks[0].frames}, stack{thread: 7}))
	assert.NilError(t, err)
	assert.Check(t, s.samples == 136 && s.others == 100 && s.cut == 3 && s.cutWith["hash"] == 3 && s.elsewhere == 8, s)
	assert.Check(t, s.self["hash"] == 12 && s.inclusive["hash"] == 72 && s.inclusive["price"] == 106, s)
	assert.Check(t, s.marked == 60 && s.hidden["hash"] == 40 && s.hiddenSelf["hash"] == 30, s)
	assert.DeepEqual(t, s.wrong, map[string]float64{
		"none of [price reserve] above hash": 1, "no function of known share above memcpy": 4,
		"subtract below price": 40,
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

// In a JVM no function is below one that does not call it, and none lacks its caller, in more than a few
// samples. Each method is called, so that many of these are where frames are made and left.
func TestJava(t *testing.T) {
	testenv.NeedRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the frames of methods are only found so on x86-64")
	}
	testenv.NeedTool(t, "javac")
	agent, classes := demo.Agent(t, t.TempDir()), t.TempDir()
	for _, release := range []string{"17", "25"} {
		t.Run("JDK "+release, func(t *testing.T) {
			path := findJDKs([]string{"/usr/lib/jvm"})[release].java
			if path == "" {
				testenv.Missing(t, "needs JDK "+release+" below /usr/lib/jvm")
			}
			s := subject{name: release, build: func(string) ([]string, error) {
				return javaCommand(classes, path,
					[]string{"-Dpause=200", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-Inline"})
			}}
			testenv.Poll(t, 4*time.Minute, "samples", func() bool {
				c, err := compare(agent, &s, "full", 2*time.Second)
				assert.NilError(t, err)
				if c.samples < 200 {
					return false
				}
				wrong := c.allWrong() * c.samples
				assert.Check(t, wrong <= 1+c.samples/200, "wrong of %v samples: %v, such as %v", c.samples, c.wrong,
					c.example)
				assert.Check(t, c.cut <= 5+c.samples/25, "of %v samples %v are cut: %v", c.samples, c.cut, c.cutWith)
				return true
			})
		})
	}
}
