package live

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/schema"
	"correlator/dots/value"
	"correlator/internal/out/live/types"
)

func (r *recorder) Wants(s *schema.Struct) bool {
	for i, published := range types.Published() {
		if published == s {
			return r.wanted&wants[i] != 0
		}
	}
	return false
}

func (r *recorder) Selects(x broker.Instance) bool {
	stack, isStack := x.(*types.CorrelatorTransactionStack)
	return r.only == "" || isStack && stack.TransactionID.Value() == r.only
}

func newThread(tid uint32, name string, cpu float64) types.CorrelatorThread {
	return types.CorrelatorThread{Host: value.Some("h"), Pid: value.Some(uint32(1)), Tid: value.Some(tid),
		Name: text(name), CPU: value.Some(cpu)}
}

// described returns changes of threads, sorted.
func described(changes []broker.Change) []string {
	all := []string{}
	for _, c := range changes {
		x := c.Object.(*types.CorrelatorThread)
		switch {
		case c.Remove:
			all = append(all, fmt.Sprint("remove ", x.Tid.Value()))
		case c.Properties == x.Descriptor().All():
			all = append(all, fmt.Sprint("all of ", x.Tid.Value(), x.Name.Value()))
		default:
			all = append(all, fmt.Sprintf("%b of %d", c.Properties, x.Tid.Value()))
		}
	}
	slices.Sort(all)
	return all
}

func TestMirror(t *testing.T) {
	bus := &recorder{}
	o := &output{bus: bus}
	refuseTwo := func(c *broker.Change) error {
		if c.Object.(*types.CorrelatorThread).Tid.Value() == 2 {
			return errors.New("refused")
		}
		return nil
	}
	for i, c := range []struct {
		threads []types.CorrelatorThread
		refuse  func(*broker.Change) error
		err     error
		want    []string
		refused int
	}{
		{threads: []types.CorrelatorThread{newThread(1, "a", 0), newThread(2, "b", 0)},
			want: []string{"all of 1a", "all of 2b"}},
		{threads: []types.CorrelatorThread{newThread(2, "b", 0), newThread(1, "a", 0)}, want: []string{}},
		{threads: []types.CorrelatorThread{newThread(1, "a", 0.5), newThread(2, "b", 0)},
			want: []string{"100000000000 of 1"}},
		{threads: []types.CorrelatorThread{newThread(1, "", 0.5), newThread(2, "b", 0)}, // unset
			want: []string{"10000 of 1"}},
		{threads: []types.CorrelatorThread{newThread(1, "", 0.5), newThread(2, "", 0), newThread(3, "c", 0)},
			refuse: refuseTwo, want: []string{"10000 of 2", "all of 3c"}, refused: 1},
		{threads: []types.CorrelatorThread{newThread(1, "", 0.5), newThread(2, "", 0), newThread(3, "c", 0)},
			want: []string{"all of 2"}}, // with the name, which is unset
		{threads: []types.CorrelatorThread{newThread(3, "c", 0), newThread(3, "second", 0)},
			refuse: refuseTwo, want: []string{"remove 1", "remove 2"}, refused: 1},
		{threads: []types.CorrelatorThread{newThread(3, "c", 0)}, want: []string{"remove 2"}},
		{threads: []types.CorrelatorThread{newThread(3, "c", 1), newThread(4, "d", 1)},
			err: broker.ErrClosed, want: []string{}, refused: 2},
		{threads: []types.CorrelatorThread{newThread(3, "c", 1), newThread(4, "d", 1)},
			want: []string{"all of 3c", "all of 4d"}},
		{want: []string{"remove 3", "remove 4"}},
		{want: []string{}},
	} {
		bus.refuse, bus.err = c.refuse, c.err
		refused, err := o.sync(&snapshot{threads: c.threads}, wantThreads)
		got := described(bus.take())
		assert.Check(t, slices.Equal(got, c.want) && refused == c.refused && (err != nil) == (c.refused > 0),
			"step %d: %q, %d refused, %v; not %q, %d", i, got, refused, err, c.want, c.refused)
	}
	assert.Check(t, len(o.threads.known) == 0, "removed objects are kept")
}

// What is refused again and again is tried in ever fewer rounds.
func TestRefusedAgainAndAgain(t *testing.T) {
	bus := &recorder{refuse: func(*broker.Change) error { return errors.New("refused") }}
	o := &output{bus: bus}
	s := &snapshot{}
	for tid := range uint32(10) {
		s.threads = append(s.threads, newThread(tid, "a", 0))
	}
	const rounds = 1000
	for range rounds {
		_, _ = o.sync(s, wantThreads)
	}
	// 6 times with growing pauses, and then after maxPause each.
	tried := len(bus.take()) / len(s.threads)
	assert.Check(t, tried >= rounds/maxPause && tried <= rounds/maxPause+8, "tried %d times", tried)
	bus.refuse = nil
	for range maxPause {
		_, _ = o.sync(s, wantThreads)
	}
	got := len(bus.take())
	assert.Check(t, got == len(s.threads), "%d changes when they are taken", got)
}

func TestUnwantedIsRemoved(t *testing.T) {
	bus := &recorder{}
	o := &output{bus: bus}
	s := &snapshot{threads: []types.CorrelatorThread{newThread(1, "a", 0)}}
	_, _ = o.sync(s, wantThreads)
	bus.take()
	_, _ = o.sync(s, wantProcesses)
	got := described(bus.take())
	assert.Check(t, slices.Equal(got, []string{"remove 1"}), "%q", got)
}
