package process

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/procscan"
)

// claimant is a process that claims something.
type claimant struct{ procscan.ProcessID }

func (c claimant) Identity() procscan.ProcessID { return c.ProcessID }
func (claimant) MarkDirty()                     {}

// What many have claimed does not take memory when they have released it, and what others hold stays
// theirs.
func TestClaimsShrink(t *testing.T) {
	var c Claims[int]
	by := func(pid int) Claimant { return claimant{procscan.ProcessID{PID: pid}} }
	const many, stay = 4 * minShrink, 10
	for pid := range many {
		c.Claim(pid, by(pid))
	}
	for pid := stay; pid < many; pid++ {
		c.Release(pid, by(pid))
	}
	// of the map that there is now
	assert.Check(t, c.most < many/4, "a map of %d holders is kept for %d", c.most, len(c.holders))
	for pid := range stay {
		assert.Check(t, c.Holds(pid, by(pid)), "%d is not held any more", pid)
	}
	assert.Check(t, !c.Claim(0, by(1)), "a younger process got what an older one holds")
}
