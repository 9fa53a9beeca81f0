package otlp

import "google.golang.org/grpc/codes"

// verdict is what to do with a batch after an attempt.
type verdict uint8

const (
	verdictDone      verdict = iota // delivered
	verdictRetry                    // send it again
	verdictDrop                     // never send it again
	verdictExhausted                // send it again if there is a RetryInfo
)

const numCodes = int(codes.Unauthenticated) + 1

// statusCodes has each code's name in the specification and what it means to a client (OTLP 1.11.0,
// "Failures").
var statusCodes = [numCodes]struct {
	name    string
	verdict verdict
}{
	codes.OK:                 {"OK", verdictDone},
	codes.Canceled:           {"CANCELLED", verdictRetry},
	codes.Unknown:            {"UNKNOWN", verdictDrop},
	codes.InvalidArgument:    {"INVALID_ARGUMENT", verdictDrop},
	codes.DeadlineExceeded:   {"DEADLINE_EXCEEDED", verdictRetry},
	codes.NotFound:           {"NOT_FOUND", verdictDrop},
	codes.AlreadyExists:      {"ALREADY_EXISTS", verdictDrop},
	codes.PermissionDenied:   {"PERMISSION_DENIED", verdictDrop},
	codes.ResourceExhausted:  {"RESOURCE_EXHAUSTED", verdictExhausted},
	codes.FailedPrecondition: {"FAILED_PRECONDITION", verdictDrop},
	codes.Aborted:            {"ABORTED", verdictRetry},
	codes.OutOfRange:         {"OUT_OF_RANGE", verdictRetry},
	codes.Unimplemented:      {"UNIMPLEMENTED", verdictDrop},
	codes.Internal:           {"INTERNAL", verdictDrop},
	codes.Unavailable:        {"UNAVAILABLE", verdictRetry},
	codes.DataLoss:           {"DATA_LOSS", verdictRetry},
	codes.Unauthenticated:    {"UNAUTHENTICATED", verdictDrop},
}

// known returns the code, or UNKNOWN for a number that is none.
func known(c codes.Code) codes.Code {
	if int(c) < numCodes {
		return c
	}
	return codes.Unknown
}

// judge returns what to do with a batch after an attempt.
func judge(r *result, retryExhausted bool) verdict {
	v := statusCodes[r.code].verdict
	switch {
	case r.final && v != verdictDone:
		return verdictDrop
	case v != verdictExhausted:
		return v
	case r.retryInfo || retryExhausted:
		return verdictRetry
	default:
		return verdictDrop
	}
}
