package main

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"
)

// What others chose does not command the terminal at which an error is printed.
func TestPrintable(t *testing.T) {
	err := errors.Join(errors.New("a \x1b[2J"), errors.New("b \u202e \xff"))
	got, want := printable(err), `a \x1b[2J`+"\n"+`b \u202e \xff`
	assert.Check(t, got == want, "%q, want %q", got, want)
}
