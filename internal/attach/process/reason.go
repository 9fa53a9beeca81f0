package process

import (
	"errors"

	"correlator/bpf"
	"correlator/elfsym"
	"correlator/internal/attach/processcontext"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/messaging"
	"correlator/procscan"
)

// Reason is why a process cannot be served, in a word that logs, counters and `scan` share. There
// is a fixed number of them whatever the processes do.
type Reason uint8

const (
	ReasonNone Reason = iota
	ReasonDenied
	ReasonLibraryUnreadable
	ReasonLibraryMalformed
	ReasonLibraryUnsupported
	ReasonLibraryLimit
	ReasonTLS
	ReasonTooManyThreads
	ReasonSampling
	ReasonStorageUnreadable
	ReasonStorageMalformed
	ReasonStorageTooLong
	ReasonStorageUTF8
	ReasonStorageChanging
	ReasonContextUnreadable
	ReasonContextMalformed
	ReasonContextChanging
	ReasonSocketMissing
	ReasonSocketPath
	ReasonNotSocket
	ReasonSocketDenied
	ReasonSocketRefused
	ReasonSocketGone
	ReasonSocketFull
	ReasonSocketShared
	ReasonHostUnsupported
	ReasonTimeout
	ReasonOther
	NumReasons
)

var reasonNames = [NumReasons]string{
	ReasonNone:               "",
	ReasonDenied:             "denied",
	ReasonLibraryUnreadable:  "library_unreadable",
	ReasonLibraryMalformed:   "library_malformed",
	ReasonLibraryUnsupported: "library_unsupported",
	ReasonLibraryLimit:       "library_limit",
	ReasonTLS:                "tls_unsupported",
	ReasonTooManyThreads:     "too_many_threads",
	ReasonSampling:           "sampling",
	ReasonStorageUnreadable:  "storage_unreadable",
	ReasonStorageMalformed:   "storage_malformed",
	ReasonStorageTooLong:     "storage_too_long",
	ReasonStorageUTF8:        "storage_utf8",
	ReasonStorageChanging:    "storage_changing",
	ReasonContextUnreadable:  "context_unreadable",
	ReasonContextMalformed:   "context_malformed",
	ReasonContextChanging:    "context_changing",
	ReasonSocketMissing:      "socket_missing",
	ReasonSocketPath:         "socket_path",
	ReasonNotSocket:          "not_a_socket",
	ReasonSocketDenied:       "socket_denied",
	ReasonSocketRefused:      "socket_refused",
	ReasonSocketGone:         "socket_gone",
	ReasonSocketFull:         "socket_full",
	ReasonSocketShared:       "socket_shared",
	ReasonHostUnsupported:    "host_unsupported",
	ReasonTimeout:            "timeout",
	ReasonOther:              "other",
}

// String returns the reason's label in logs, metrics and JSON.
func (r Reason) String() string { return reasonNames[r] }

// stageError records at which step of a process's life an error occurred, where the error alone
// does not show it: the same unmapped page is another error in the library than in the storage.
type stageError struct {
	reason Reason
	err    error
}

func (e *stageError) Error() string { return e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

// WithReason marks err as belonging to a stage whose errors have the reason fallback, unless they
// have one of their own.
func WithReason(fallback Reason, err error) error {
	if err == nil {
		return nil
	}
	return &stageError{reason: fallback, err: err}
}

// reasons gives every sentinel of the packages below its reason.
var reasons = []struct {
	err    error
	reason Reason
}{
	{procscan.ErrDenied, ReasonDenied},
	{memread.ErrDenied, ReasonDenied},
	{elfsym.ErrClass, ReasonLibraryUnsupported},
	{elfsym.ErrMachine, ReasonLibraryUnsupported},
	{elfsym.ErrLimit, ReasonLibraryLimit},
	{bpf.ErrTooManyThreads, ReasonTooManyThreads},
	{memread.ErrStringTooLong, ReasonStorageTooLong},
	{memread.ErrInvalidUTF8, ReasonStorageUTF8},
	{memread.ErrVersion, ReasonStorageMalformed},
	{memread.ErrSocketPath, ReasonSocketPath},
	{memread.ErrChanged, ReasonStorageChanging},
	{processcontext.ErrVersion, ReasonContextMalformed},
	{processcontext.ErrMalformed, ReasonContextMalformed},
	{processcontext.ErrUpdating, ReasonContextChanging},
	{ErrCopy, ReasonSocketShared},
	{access.ErrTimeout, ReasonTimeout},
	{access.ErrHung, ReasonTimeout},
	{access.ErrBusy, ReasonTimeout},
	{worker.ErrStarved, ReasonTimeout},
	{messaging.ErrNoSocket, ReasonSocketMissing},
	{messaging.ErrPath, ReasonSocketPath},
	{messaging.ErrNotSocket, ReasonNotSocket},
	{messaging.ErrWrongType, ReasonNotSocket},
	{messaging.ErrPermission, ReasonSocketDenied},
	{messaging.ErrRefused, ReasonSocketRefused},
	{messaging.ErrCredentials, ReasonHostUnsupported},
	{messaging.ErrNoOpenat2, ReasonHostUnsupported},
}

// ReasonOf returns the reason of an error: that of the sentinel it wraps, else that of its stage.
func ReasonOf(err error) Reason {
	for _, known := range reasons {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	if stage := (*stageError)(nil); errors.As(err, &stage) {
		return stage.reason
	}
	return ReasonOther
}
