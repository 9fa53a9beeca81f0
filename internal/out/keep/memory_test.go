package keep

import (
	"fmt"
	"testing"
	"time"

	"correlator/profile"
)

// What processes had is freed though they live on: tables become small again.
func TestMemoryOfForgotten(t *testing.T) {
	s := NewStore(time.Minute, 8*MinBytes)
	now, main := begin, stackOf("main")
	var resources []*profile.Resource
	for pid := range 10 {
		resources = append(resources, resource("a", pid))
	}
	for round := range 20 { // each has many twice
		many := resources[round%len(resources)]
		for i := range 1000 {
			sample := newSample(many, i, now, stackOf(fmt.Sprintf("method%d", i)))
			sample.TID, sample.Thread = i, "worker"
			s.Add(sample, now)
			s.Add(newWait(many, i, now, main, profile.Wait{State: profile.Futex, Futex: uint64(i)}), now)
		}
		now = now.Add(10 * time.Second)
		for _, r := range resources { // which has samples all the time
			s.Add(newSample(r, 1, now, main), now)
		}
		s.Expire(now)
	}
	addUp(t, s)
	big := 0
	for _, p := range s.owners["a"].processes {
		most := max(p.transactions.most, p.stacks.most, p.frames.most, p.threads.most, p.causes.most)
		if most >= 1000 {
			big++
		} else if most > 2*leastShrunk {
			t.Errorf("a table has room for %d", most)
		}
	}
	if kept := 7; big == 0 || big > kept { // processes that had many in the last minute
		t.Errorf("%d processes have tables of what they had", big)
	}
}
