package procscan

import (
	"errors"
	"os"
	"testing"

	"gotest.tools/v3/assert"
)

func TestProbeProcRoot(t *testing.T) {
	assert.Check(t, ProbeProcRoot("/proc"))
	err := ProbeProcRoot("/nonexistent")
	assert.Check(t, errors.Is(err, os.ErrNotExist), err)
	assert.Check(t, ProbeProcRoot(t.TempDir()) != nil, "a directory passes as procfs")
}
