package unwind

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// A continuation that goes on at another depth than it began at has saved an rbp that is not of enterSpecial's frame:
// hardly any stack ends there.
func TestJVMThawed(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	j := startProgram(t, "25", []string{"Thawed"}, "-Xcomp", "-XX:-TieredCompilation", "-XX:-Inline",
		"--add-exports=java.base/jdk.internal.vm=ALL-UNNAMED")
	e.synchronize(t, j.target)
	const stacks, most = 500, 10 // where Continuation.enter returns, rbp is not known
	ended := 0
	for range stacks {
		testenv.Poll(t, deadline, "a stack with enterSpecial", func() bool {
			s := e.next(t, j.target)
			if len(s.words) > maxWords { // of a compiler
				return false
			}
			frames, err := e.name(t, j.target, s)
			assert.NilError(t, err)
			has := func(function string) bool {
				return slices.ContainsFunc(frames, func(f Frame) bool { return f.Function == function })
			}
			entered := has("jdk.internal.vm.Continuation.enterSpecial")
			if entered && !has("Thawed.runAt") {
				ended++
			}
			return entered
		})
	}
	assert.Check(t, ended <= most, "%d of %d stacks end in enterSpecial", ended, stacks)
}
