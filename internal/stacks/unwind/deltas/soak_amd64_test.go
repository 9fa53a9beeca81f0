//go:build soak

package deltas

import "testing"

// What TestGoCallers says is true of programs that are mapped where they were linked, too. It takes a minute.
func TestSoakGoCallers(t *testing.T) { testGoCallers(t, "exe") }
