package process

import (
	"testing"

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
	if c.most >= many/4 { // of the map that there is now
		t.Errorf("a map of %d holders is kept for %d", c.most, len(c.holders))
	}
	for pid := range stay {
		if !c.Holds(pid, by(pid)) {
			t.Errorf("%d is not held any more", pid)
		}
	}
	if c.Claim(0, by(1)) {
		t.Error("a younger process got what an older one holds")
	}
}
