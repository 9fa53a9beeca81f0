package procscan

import (
	"errors"
	"os"
	"testing"
)

func TestProbeProcRoot(t *testing.T) {
	if err := ProbeProcRoot("/proc"); err != nil {
		t.Error(err)
	}
	if err := ProbeProcRoot("/nonexistent"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := ProbeProcRoot(t.TempDir()); err == nil {
		t.Error("a directory passes as procfs")
	}
}
