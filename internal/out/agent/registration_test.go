package agent

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/bpf"
)

// A program that follows another one in its process has written nothing before it began, whatever
// that has left.
func TestWrittenSince(t *testing.T) {
	first, next := bpf.ExecID{PID: 1}, bpf.ExecID{PID: 2}
	since := time.Now().Add(-time.Hour)
	r := &registration{program: first, since: since}
	got := r.writtenSince(first)
	assert.Check(t, got == since, "%v, want %v", got, since)
	before := time.Now()
	later := r.writtenSince(next)
	assert.Check(t, !later.Before(before), "%v for the next program, which began after %v", later, before)
	again := r.writtenSince(next)
	assert.Check(t, again == later, "%v, then %v", later, again)
}
