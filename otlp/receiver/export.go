package receiver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"correlator/otlp"
)

const (
	// minRetry is the least time that a sender is asked to wait.
	minRetry = time.Second
	// restart is about how long it takes until somebody serves again after a shutdown.
	restart = 5 * time.Second
	// maxMessage is the longest message of an answer.
	maxMessage = 1 << 10
)

// requests is the schema of what each signal's service takes.
var requests = [otlp.NumSignals]messageID{otlp.Traces: msgTraces, otlp.Metrics: msgMetrics, otlp.Profiles: msgProfiles}

// export serves one call.
func (r *Receiver) export(signal otlp.Signal, stream grpc.ServerStream) error {
	if err := r.enter(signal, stream.Context()); err != nil {
		return err
	}
	defer func() { <-r.slots }()
	var body []byte
	if err := stream.RecvMsg(&body); err != nil {
		r.counters.unread(signal, status.Code(err))
		return err
	}
	answer, err := r.take(signal, body)
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

// enter waits for a slot, of which there is one for each request in work. Nothing of the request was read.
func (r *Receiver) enter(signal otlp.Signal, ctx context.Context) error {
	select {
	case <-r.draining:
		return r.refuse(signal, 1, Closing, later("shutting down", jitter(restart)))
	default:
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-r.draining:
		return r.refuse(signal, 1, Closing, later("shutting down", jitter(restart)))
	case <-ctx.Done():
		return r.refuse(signal, 1, Overload, later("too many requests at a time", jitter(restart)))
	}
}

// take checks a request and passes it on. The answer is an Export<Signal>ServiceResponse; an error is the
// status to answer with.
func (r *Receiver) take(signal otlp.Signal, body request) ([]byte, error) {
	root := requests[signal]
	if t := body.decode(root, body.all(), 0); t != nil {
		return nil, r.refuse(signal, 1, Undecodable, never(body.path(root, t.at), t.text))
	}
	v := check(signal, body)
	if v.kept > 0 {
		sound := body
		if len(v.cuts) > 0 {
			sound = body.without(v.cuts)
		}
		if err := r.queue.TryOffer(otlp.NewBatch(signal, sound, v.kept, time.Now())); err != nil {
			return nil, r.refused(signal, v, err)
		}
	}
	r.counters.took(signal, v)
	return v.answer(signal, body), nil
}

// refused answers for a queue that did not take a request.
func (r *Receiver) refused(signal otlp.Signal, v *verdict, err error) error {
	var overload *otlp.OverloadError
	switch {
	case errors.As(err, &overload):
		return r.refuse(signal, v.items(), Overload, later("the queue of a destination is full", overload.RetryAfter))
	case errors.Is(err, otlp.ErrTooLarge):
		return r.refuse(signal, v.items(), TooLarge, status.New(codes.ResourceExhausted, err.Error()))
	case errors.Is(err, otlp.ErrUnsupported):
		return r.refuse(signal, v.items(), Unsupported, status.New(codes.Unimplemented, err.Error()))
	case errors.Is(err, otlp.ErrClosed):
		return r.refuse(signal, v.items(), Closing, later("shutting down", jitter(restart)))
	default: // whatever it is, the sender still has the data
		return r.refuse(signal, v.items(), Overload, later(err.Error(), jitter(restart)))
	}
}

// refuse counts a request that was not taken, and makes an error of its status.
func (r *Receiver) refuse(signal otlp.Signal, items int, why Refusal, s *status.Status) error {
	r.counters.refuse(signal, items, why, s.Code())
	return s.Err()
}

// later is the status of what may be tried again after a while.
func later(text string, after time.Duration) *status.Status {
	return with(status.New(codes.Unavailable, clip(text)), &errdetails.RetryInfo{RetryDelay: durationpb.New(max(after, minRetry))})
}

// never is the status of what cannot be taken, however often it comes.
func never(path, text string) *status.Status {
	if path == "" {
		path = "request"
	}
	path = clip(path)
	return with(status.New(codes.InvalidArgument, clip(path+": "+text)), &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: path, Description: text}},
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

// answer is the response to a request that was taken, though not all of it. If all was, it is empty.
func (v *verdict) answer(signal otlp.Signal, body request) []byte {
	text := v.message(signal, body)
	if text == "" {
		return []byte{}
	}
	var partial []byte
	if v.refused > 0 {
		partial = protowire.AppendTag(partial, fieldRejected, protowire.VarintType)
		partial = protowire.AppendVarint(partial, uint64(v.refused))
	}
	partial = protowire.AppendTag(partial, fieldErrorMessage, protowire.BytesType)
	partial = protowire.AppendString(partial, clip(text))
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldPartialSuccess, protowire.BytesType), partial)
}

// units is what the protocol counts of each signal.
var units = [otlp.NumSignals]string{otlp.Traces: "spans", otlp.Metrics: "data points", otlp.Profiles: "profiles"}

// message tells a sender what was wrong: how much of what, and where the first was.
func (v *verdict) message(signal otlp.Signal, body request) string {
	var parts []string
	if v.refused > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d %s rejected, the first because of %s: %s",
			v.refused, v.total, units[signal], body.path(requests[signal], v.first.at), v.first.text))
	}
	for fix, n := range v.fixes {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d fields ignored: %s", n, Fix(fix)))
		}
	}
	return strings.Join(parts, "; ")
}

// clip cuts a text that would be too long for an answer. It is ASCII: names of the schema, and ours.
func clip(text string) string { return text[:min(len(text), maxMessage)] }
