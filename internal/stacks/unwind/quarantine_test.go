package unwind

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/worker"
)

// Programs that the worker was killed for are left out for a time that grows. Where there are many of one user, all of
// that user are, and nobody else.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{counters: new(Counters), quarantined: make(map[any]quarantine)}
		target := func(program int, user worker.User) *Target { return &Target{Program: program, User: user} }
		out := func(program int, user worker.User) bool {
			return errors.Is(e.leftOut(target(program, user)), ErrQuarantined)
		}
		e.quarantine(target(0, "one"), "it hung")
		assert.Check(t, out(0, "one") && !out(1, "one"))
		time.Sleep(quarantineTime)
		assert.Check(t, !out(0, "one"))
		e.quarantine(target(0, "one"), "it hung")
		time.Sleep(15 * quarantineTime)
		assert.Check(t, out(0, "one"), "the second time is not longer")
		time.Sleep(quarantineTime)
		assert.Check(t, !out(0, "one"))
		for program := range maxQuarantinedOfUser - 1 {
			e.quarantine(target(10+program, "two"), "it ended")
		}
		assert.Check(t, !out(1, "two"))
		e.quarantine(target(9, "two"), "it ended")
		assert.Check(t, out(1, "two") && !out(1, "one"))
		e.known = map[uint32]known{0: {Target: *target(1, "two"), ready: true}}
		assert.Check(t, !out(1, "two") && out(2, "two"), "what is synchronized is used, and only that")
		time.Sleep(quarantineTime)
		assert.Check(t, !out(2, "two"))
	})
}
