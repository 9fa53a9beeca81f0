package process

import (
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// A program is told apart from the same one that the process executes after it, at the same addresses; what it does
// meanwhile makes no difference. That of a process that has ended is not known.
func TestExecution(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1, Placement: demo.Placement{FixedLayout: true}})
	p.Restart(true) // with the arguments and the environment that it has again
	target := openDemo(t, p.PID)
	defer target.Close()
	first, err := target.Execution()
	assert.NilError(t, err)
	p.Begin(1)
	again, err := target.Execution()
	assert.Check(t, err == nil && again == first && first.image != procscan.Image{}, "%+v, then %+v, %v", first,
		again, err)
	p.Restart(true)
	next, err := target.Execution()
	assert.Check(t, err == nil && next != first && next.image == first.image, "%+v after %+v, %v", next, first, err)
	p.Kill()
	_, err = target.Execution()
	assert.ErrorIs(t, err, procscan.ErrGone)
}
