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
	// minRetryDelay is the shortest delay that a client is asked for.
	minRetryDelay = 250 * time.Millisecond
	// retryDelay is the delay where nothing better is known: a burst is over by then, and after a
	// shutdown another process may serve.
	retryDelay = 5 * time.Second
	// maxMessage is the length of the longest text in a response. A status contains four of them,
	// which base64 makes 4/3 as long, in headers: it stays below the 8 KiB that clients accept.
	maxMessage = 1 << 10
)

// retryable is the status of a request that the client may send again after a delay.
func retryable(text string, delay time.Duration) *status.Status {
	return with(status.New(codes.Unavailable, text), &errdetails.RetryInfo{RetryDelay: durationpb.New(max(delay,
		minRetryDelay))})
}

func crowded() *status.Status { return retryable("too many requests at a time", jitter(retryDelay)) }

func closing() *status.Status { return retryable("shutting down", jitter(retryDelay)) }

// invalid is the status of a request that must not be sent again, for an error of package validate.
func invalid(err error) *status.Status {
	s := status.New(codes.InvalidArgument, truncate(err.Error()))
	var e *validate.Error
	if !errors.As(err, &e) {
		return s
	}
	return with(s, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: truncate(e.Field),
			Description: truncate(e.Text)}},
	})
}

func with(s *status.Status, detail protoadapt.MessageV1) *status.Status {
	if detailed, err := s.WithDetails(detail); err == nil {
		return detailed
	}
	return s
}

// jitter varies a delay by up to 20 %, so that clients refused together do not return together.
func jitter(d time.Duration) time.Duration {
	return time.Duration((0.8 + 0.4*rand.Float64()) * float64(d))
}

// Field numbers of a response and its partial success: *_service.proto.
const (
	fieldPartialSuccess = 1
	fieldRejected       = 1
	fieldErrorMessage   = 2
)

// response encodes the response to a request that was accepted, at least in part. It is empty if
// there is nothing to report: partial_success must be unset then.
func response(v *validate.Verdict) []byte {
	if v.Message == "" {
		return []byte{}
	}
	var partial []byte
	if v.RejectedUnits > 0 {
		partial = protowire.AppendTag(partial, fieldRejected, protowire.VarintType)
		partial = protowire.AppendVarint(partial, uint64(v.RejectedUnits))
	}
	partial = protowire.AppendTag(partial, fieldErrorMessage, protowire.BytesType)
	partial = protowire.AppendString(partial, truncate(v.Message))
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldPartialSuccess, protowire.BytesType), partial)
}

// truncate shortens a text to maxMessage. Texts are ASCII: names of the schema, and messages of
// ours.
func truncate(text string) string { return text[:min(len(text), maxMessage)] }
