//go:build soak

package deltas

import "testing"

// What TestGoCallers says is true of programs that are mapped where they were linked, too, and of those of other
// compilers, which call runtime.duffzero. It takes some minutes.
func TestSoakGoCallers(t *testing.T) {
	testGoCallers(t, "local", "exe")
	for _, toolchain := range []string{"go1.21.13", "go1.22.12", "go1.23.12", "go1.24.13", "go1.25.7"} {
		t.Run(toolchain, func(t *testing.T) { testGoCallers(t, toolchain, "pie") })
	}
}
