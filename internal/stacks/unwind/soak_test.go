//go:build soak

package unwind

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// All versions of Node.js that there are, besides that of TestRuntimes: node18, node24 and so on in PATH.
func TestSoakNodeVersions(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	tried := 0
	for version := 14; version < 40; version++ {
		node, err := exec.LookPath(fmt.Sprintf("node%d", version))
		if err != nil {
			continue
		}
		tried++
		t.Run(filepath.Base(node), func(t *testing.T) {
			b := busies["node"]
			j := startBusy(t, node, "testdata/"+b.script)
			e.synchronize(t, j.target)
			refused, unknown := e.Runtimes(&j.target)
			assert.Check(t, refused == "" && unknown == "", "%s%s", refused, unknown)
			b.checkStacks(t, e, j)
			assert.Check(t, e.Remove(t.Context(), j.target))
			e.checkNothingOf(t, j.target)
		})
	}
	assert.Check(t, tried > 0, "there is no node14 to node39 in PATH")
}

// All versions of Python that there are, besides that of TestRuntimes.
func TestSoakPythonVersions(t *testing.T) {
	usual := versionOf(t, testenv.NeedTool(t, "python3"))
	e := shareEngine(t)
	e.sample(t)
	tried := 0
	for _, version := range []string{"3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"} {
		python, err := exec.LookPath("python" + version)
		if err != nil || version == fmt.Sprintf("3.%d", usual) || exec.Command(python, "-c", "").Run() != nil {
			continue
		}
		tried++
		t.Run(version, func(t *testing.T) {
			b := busies["python3"].ofVersion(t, python)
			j := startBusy(t, python, "testdata/"+b.script)
			e.synchronize(t, j.target)
			b.checkStacks(t, e, j)
			assert.Check(t, e.Remove(t.Context(), j.target))
			e.checkNothingOf(t, j.target)
		})
	}
	assert.Check(t, tried > 0, "there is no other Python in PATH")
}

// With -X perf, Python's stacks are whole, and have functions alone: no trampolines, and none of CPython 3.12's frames
// of no function.
func TestSoakPythonPerf(t *testing.T) {
	e := shareEngine(t)
	e.sample(t)
	tried := 0
	for _, version := range []string{"3.12", "3.13", "3.14"} {
		python, err := exec.LookPath("python" + version)
		if err != nil || exec.Command(python, "-X", "perf", "-c", "").Run() != nil {
			continue
		}
		tried++
		t.Run(version, func(t *testing.T) {
			j := startBusy(t, python, "-X", "perf", "testdata/busy.py")
			e.synchronize(t, j.target)
			e.eachWhole(t, j.target, 20, func(frames []Frame) bool {
				var names []string
				for _, f := range frames {
					if f.Kind == PythonFrame {
						names = append(names, f.Function)
					}
				}
				called := []string{"inner", "Work.middle", "outer", "<module>"}
				n := len(names)
				assert.Check(t, n > 0 && n <= 4 && slices.Equal(names, called[4-n:]), "%q", names)
				return n == 4
			})
			assert.Check(t, e.Remove(t.Context(), j.target))
			e.checkNothingOf(t, j.target)
		})
	}
	assert.Check(t, tried > 0, "there is no python3.12 to python3.14 in PATH")
}

// More heaps than in TestV8FramesOfAnything, others each time.
func TestSoakV8FramesOfAnything(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	testV8FramesOfAnything(t, seed, 3000)
}
