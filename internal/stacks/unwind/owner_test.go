package unwind

import (
	"io"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// works are what Leaves can do.
var works = []string{
	"straight", "branches", "shared", "nulls", "boxes", "loops", "streams", "siblings", "conditions", "copies",
	"rounds", "merged",
}

// A leaf in code that was compiled with the work of two threads in it is not in that of the other thread, whether the
// compiler was told to describe more places than safepoints (its descriptions of these are wrong in part) or not.
func TestInlinedOwner(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	always := []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Leaves$Straight.keep"}
	for jdk := range javaHomes {
		for name, flags := range map[string][]string{
			"C2":            {"-XX:-TieredCompilation"},
			"C2, described": {"-XX:-TieredCompilation", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"},
			"C1":            {"-XX:TieredStopAtLevel=1"},
		} {
			t.Run(jdk+" "+name, func(t *testing.T) {
				works := works
				if of := jdk + " " + name; of == "17 C1" || of == "25 C2, described" {
					// The other JDK has all works in code of this kind.
					works = []string{"branches", "nulls", "loops", "siblings", "copies", "merged"}
				}
				j := startProgram(t, jdk, []string{"Leaves", works[0]}, slices.Concat(always, flags)...)
				e.synchronize(t, j.target)
				for i, work := range works {
					if i > 0 {
						_, err := io.WriteString(j.stdin, work+"\n")
						assert.NilError(t, err)
						j.awaitReady(t)
					}
					e.forget(t)
					e.checkLeaves(t, j, work, 40)
				}
			})
		}
	}
}

// own are the works whose methods of each thread are found in any JVM: at least in a quarter of the stacks. In what
// others do there is too little that is certain, or they have none of their own.
var own = []string{"loops"}

// checkLeaves checks that so many stacks of work that is compiled have no method of another thread, and hardly any that
// takes next to no time. Such a one is right only for the moment in which it runs, is entered or left.
func (e *testEngine) checkLeaves(t *testing.T, j *jvm, work string, stacks int) {
	t.Helper()
	right, rare, unknown := 0, 0, 0
	for n := 0; n < stacks; {
		s := e.next(t, j.target)
		frames, err := e.name(t, j.target, s)
		assert.NilError(t, err)
		thread := numberAfter(frames, ".thread")
		if thread == "" || interpretedAt(s.words) == 0 {
			continue
		}
		n++
		isOwn := false
		for _, f := range frames {
			_, number, own := strings.Cut(f.Function, ".own")
			assert.Assert(t, !own || strings.HasPrefix(number, thread),
				"%s: thread %s is in a method of another: %x\n%+v", work, thread, s.words, frames)
			isOwn = isOwn || own
		}
		if isOwn {
			right++
		}
		if slices.ContainsFunc(frames, func(f Frame) bool { return strings.Contains(f.Function, ".rare") }) {
			rare++
		}
		if frames[0].Kind == InlinedFrame {
			unknown++
		}
	}
	t.Logf("%s: of %d stacks %d have the thread's method, %d are unknown, %d rare", work, stacks, right, unknown, rare)
	assert.Check(t, rare <= stacks/10, "%s: %d of %d stacks are in what takes next to no time", work, rare, stacks)
	assert.Check(t, right >= stacks/4 || !slices.Contains(own, work), "%s: %d of %d", work, right, stacks)
}

// A class that has come to the place of an unloaded one is not taken for that, compiled or not.
func TestUnloadedOwner(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	for jdk := range javaHomes {
		for name, flag := range map[string]string{"compiled": "-XX:+TieredCompilation", "interpreted": "-Xint"} {
			t.Run(jdk+" "+name, func(t *testing.T) {
				j := startProgram(t, jdk, []string{"Generations"}, flag)
				e.synchronize(t, j.target)
				places := make(map[uint64]bool)
				const generations = 8
				for range generations {
					e.forget(t)
					e.checkOwners(t, j, 30, places)
					_, err := io.WriteString(j.stdin, "\n")
					assert.NilError(t, err)
					j.awaitReady(t)
				}
				assert.Check(t, len(places) < generations,
					"in %d places: no class came to the place of another", len(places))
			})
		}
	}
}

// checkOwners checks that so many stacks with methods of threads have none of another thread. It adds the
// addresses of the leaves of these that are interpreted.
func (e *testEngine) checkOwners(t *testing.T, j *jvm, stacks int, places map[uint64]bool) {
	t.Helper()
	leaves := make(map[string]int)
	wrong := 0
	for own := 0; own < stacks; {
		s := e.next(t, j.target)
		frames, err := e.name(t, j.target, s)
		assert.NilError(t, err)
		thread, method := numberAfter(frames, ".thread"), numberAfter(frames, ".own")
		if thread == "" || method == "" {
			continue
		}
		if numberAfter(frames[:1], ".own") != "" && interpretedAt(s.words) == 0 {
			places[s.words[1]] = true
		}
		leaves["thread"+thread+" in "+frames[0].Function]++
		if own++; thread != method {
			wrong++
			assert.Check(t, wrong != 1, "thread %s is in a method of %s: %x\n%+v", thread, method, s.words, frames)
		}
	}
	t.Log(leaves)
	assert.Check(t, wrong <= 0, "of %d stacks, %d have a method of another thread", stacks, wrong)
}

// numberAfter returns what follows a text in the name of a method, "" for none.
func numberAfter(frames []Frame, text string) string {
	for _, f := range frames {
		if _, number, ok := strings.Cut(f.Function, text); ok {
			return number
		}
	}
	return ""
}
