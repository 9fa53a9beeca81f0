//go:build interop

package sampling

import (
	"testing"

	"correlator/internal/lab/testenv"
)

// TestGoLabels holds of programs of every version of Go whose layout is known, and of those at any address. The
// versions are downloaded.
func TestGoLabelVersions(t *testing.T) {
	testenv.NeedRoot(t)
	for _, version := range []string{"1.22.12", "1.23.12", "1.24.11", "1.25.5", "1.26.8"} {
		for _, mode := range []string{"exe", "pie"} {
			t.Run(version+", "+mode, func(t *testing.T) {
				program, burn := buildGoLabels(t, mode == "pie", []string{"GOTOOLCHAIN=go" + version},
					"-buildmode="+mode, "-ldflags=-s")
				sampleGoLabels(t, program, burn, 1000, 200, false)
			})
		}
	}
}
