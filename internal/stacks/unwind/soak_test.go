//go:build soak

package unwind

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// All versions of Node.js that there are, besides that of TestRuntimes: node18, node24 and so on in PATH.
func TestSoakNodeVersions(t *testing.T) {
	e := openEngine(t)
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
