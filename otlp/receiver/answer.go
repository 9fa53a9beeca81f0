package receiver

import (
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"correlator/otlp/validate"
)

const (
	// minRetry is the least time that a sender is asked to wait.
	minRetry = 250 * time.Millisecond
	// comeBack is when a crowd may be gone, and somebody may serve again after a shutdown.
	comeBack = 5 * time.Second
	// maxMessage is the longest text of an answer. A status has four of them, which come encoded in 4/3 of that
	// in a header: it stays below the 8 KiB that clients take.
	maxMessage = 1 << 10
)

// later is the status of what may be tried again after a while.
func later(text string, after time.Duration) *status.Status {
	return with(status.New(codes.Unavailable, text), &errdetails.RetryInfo{RetryDelay: durationpb.New(max(after, minRetry))})
}

func closing() *status.Status { return later("shutting down", jitter(comeBack)) }

// never is the status of what cannot be taken, however often it comes: an error of verify.
func never(err error) *status.Status {
	s := status.New(codes.InvalidArgument, clip(err.Error()))
	var e *validate.Error
	if !errors.As(err, &e) {
		return s
	}
	return with(s, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: clip(e.Field), Description: clip(e.Text)}},
	})
}

func with(s *status.Status, detail protoadapt.MessageV1) *status.Status {
	if detailed, err := s.WithDetails(detail); err == nil {
		return detailed
	}
	return s
}

// jitter is up to 20 % more or less, so that not all who wait come back together.
func jitter(d time.Duration) time.Duration {
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(d))
}

// Of a response and its partial success: *_service.proto.
const (
	fieldPartialSuccess = 1
	fieldRejected       = 1
	fieldErrorMessage   = 2
)

// answer is the response to a request that was taken, or a part of it. If there is nothing to say it is empty:
// a partial success must be unset then.
func answer(v *validate.Verdict) []byte {
	if v.Message == "" {
		return []byte{}
	}
	var partial []byte
	if v.RejectedUnits > 0 {
		partial = protowire.AppendTag(partial, fieldRejected, protowire.VarintType)
		partial = protowire.AppendVarint(partial, uint64(v.RejectedUnits))
	}
	partial = protowire.AppendTag(partial, fieldErrorMessage, protowire.BytesType)
	partial = protowire.AppendString(partial, clip(v.Message))
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldPartialSuccess, protowire.BytesType), partial)
}

// clip cuts a text that would be too long for an answer. It is ASCII: names of the schema, and ours.
func clip(text string) string { return text[:min(len(text), maxMessage)] }
