package process

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
)

// What goes wrong below has its reason, however it is wrapped, whatever was being done.
func TestReasonOf(t *testing.T) {
	for err, want := range map[error]Reason{
		bpf.ErrTooManyThreads:    ReasonTooManyThreads,
		procscan.ErrDenied:       ReasonDenied,
		memread.ErrDenied:        ReasonDenied,
		elfsym.ErrClass:          ReasonLibraryUnsupported,
		elfsym.ErrMachine:        ReasonLibraryUnsupported,
		elfsym.ErrLimit:          ReasonLibraryLimit,
		memread.ErrChanged:       ReasonStorageChanging,
		access.ErrHung:           ReasonTimeout,
		access.ErrBusy:           ReasonTimeout,
		worker.ErrStarved:        ReasonTimeout,
		messaging.ErrCredentials: ReasonHostUnsupported,
		messaging.ErrNoOpenat2:   ReasonHostUnsupported,
	} {
		wrapped := fmt.Errorf("reading threads: %w", err)
		got, stage := ReasonOf(wrapped), ReasonOf(WithReason(ReasonSampling, wrapped))
		assert.Check(t, got == want && stage == want, "%v: %v, and in a stage %v", err, got, stage)
	}
}
