package agent

import (
	"testing"
	"time"

	"correlator/bpf"
)

// A program that follows another one in its process has written nothing before it began, whatever
// that has left.
func TestWrittenSince(t *testing.T) {
	first, next := bpf.ExecID{PID: 1}, bpf.ExecID{PID: 2}
	since := time.Now().Add(-time.Hour)
	r := &registration{program: first, since: since}
	if got := r.writtenSince(first); got != since {
		t.Errorf("%v, want %v", got, since)
	}
	before := time.Now()
	later := r.writtenSince(next)
	if later.Before(before) {
		t.Errorf("%v for the next program, which began after %v", later, before)
	}
	if again := r.writtenSince(next); again != later {
		t.Errorf("%v, then %v", later, again)
	}
}
