package receiver

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"correlator/otlp"
	"correlator/otlp/validate"
)

// kinds is what verify calls each signal's request.
var kinds = [otlp.NumSignals]validate.Signal{
	otlp.Traces: validate.Traces, otlp.Metrics: validate.Metrics, otlp.Profiles: validate.Profiles,
}

// admit is called for a new call, before anything is read of it: if there are too many it is refused, else it
// gets its deadline.
func (r *Receiver) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
	if r.calls.Add(1) > maxOpen {
		r.calls.Add(-1)
		s := later("too many requests at a time", jitter(comeBack))
		for signal := range otlp.NumSignals {
			if call.FullMethodName == signal.Method() {
				r.counters.refuse(signal, 1, Overload, s.Code())
			}
		}
		return ctx, s.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	context.AfterFunc(ctx, func() { // the call's end is the end of ctx
		cancel()
		r.calls.Add(-1)
	})
	return ctx, nil
}

// export serves one call.
func (r *Receiver) export(signal otlp.Signal, stream grpc.ServerStream) error {
	// Answers are a few bytes, for which a compressor would take a megabyte. That we do not compress is fine
	// with everybody.
	_ = grpc.SetSendCompressor(stream.Context(), encoding.Identity)
	turn, cancel := context.WithTimeout(stream.Context(), turnTimeout)
	defer cancel()
	if err := r.enter(signal, turn); err != nil {
		return err
	}
	defer func() { <-r.slots }()

	m, err := openMessage(stream, r.limit)
	if err != nil {
		return r.unread(signal, err)
	}
	units := unitsOf(m.size)
	if err := r.room.take(turn, units); err != nil {
		return r.late(signal, err)
	}
	defer r.room.give(units)
	body, err := m.read()
	if err != nil {
		return r.unread(signal, err)
	}
	answer, err := r.check(stream.Context(), signal, body, m.zipped)
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

// enter waits for a slot, of which there is one for each request in work. Nothing of the request was read.
func (r *Receiver) enter(signal otlp.Signal, turn context.Context) error {
	select {
	case <-r.draining:
		return r.refuse(signal, 1, Closing, closing())
	default:
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-r.draining:
		return r.refuse(signal, 1, Closing, closing())
	case <-turn.Done():
		return r.late(signal, turn.Err())
	}
}

// late answers for a request whose turn did not come. If its client has given it up, it did not come either.
func (r *Receiver) late(signal otlp.Signal, err error) error {
	if errors.Is(err, context.Canceled) {
		return r.unread(signal, status.FromContextError(err).Err())
	}
	return r.refuse(signal, 1, Overload, later("too many requests at a time", jitter(comeBack)))
}

// unread counts a request that did not come to its end, and returns the error to answer with.
func (r *Receiver) unread(signal otlp.Signal, err error) error {
	r.counters.unread(signal, status.Code(err))
	return err
}

// check does what takes computing, and memory besides that of the body: for one request at a time. Nobody has to
// be waited for meanwhile, so it is a matter of milliseconds.
func (r *Receiver) check(ctx context.Context, signal otlp.Signal, body []byte, zipped bool) ([]byte, error) {
	r.checking.Lock()
	defer r.checking.Unlock()
	if err := ctx.Err(); err != nil { // who has given it up sends it again: it would be there twice
		return nil, r.unread(signal, status.FromContextError(err).Err())
	}
	if zipped {
		var err error
		if body, err = r.inflater.inflate(body, r.limit); err != nil {
			return nil, r.unread(signal, err)
		}
	}
	return r.take(ctx, signal, body)
}

// take checks a request and passes it on. The answer is an Export<Signal>ServiceResponse; an error is the
// status to answer with.
func (r *Receiver) take(ctx context.Context, signal otlp.Signal, body []byte) ([]byte, error) {
	v, err := validate.Check(kinds[signal], body)
	if err != nil {
		return nil, r.refuse(signal, 1, Undecodable, never(err))
	}
	if v.Items > 0 {
		ctx, cancel := context.WithTimeout(ctx, holdTimeout)
		defer cancel()
		if err := r.queue.EnqueueReceived(ctx, batch(signal, v, time.Now())); err != nil {
			return nil, r.refused(signal, v.Received(), err)
		}
	}
	r.counters.took(signal, v)
	return answer(v), nil
}

func batch(signal otlp.Signal, v *validate.Verdict, created time.Time) *otlp.Batch {
	if signal == otlp.Profiles {
		return otlp.NewProfilesBatch(v.Request, v.Items, v.Units, created)
	}
	return otlp.NewBatch(signal, v.Request, v.Items, created)
}

// refused answers for a queue that did not take a request.
func (r *Receiver) refused(signal otlp.Signal, items int, err error) error {
	var overload *otlp.OverloadError
	switch {
	case errors.As(err, &overload):
		return r.refuse(signal, items, Overload, later("the queue of a destination is full", overload.RetryAfter))
	case errors.Is(err, otlp.ErrTooLarge):
		return r.refuse(signal, items, TooLarge, status.New(codes.ResourceExhausted, "request is larger than a destination takes"))
	case errors.Is(err, otlp.ErrUnsupported):
		return r.refuse(signal, items, Unsupported, status.New(codes.Unimplemented, "no destination takes this signal"))
	case errors.Is(err, otlp.ErrClosed):
		return r.refuse(signal, items, Closing, closing())
	default: // whatever it is, the sender still has the data
		return r.refuse(signal, items, Overload, later("the request cannot be passed on now", jitter(comeBack)))
	}
}

// refuse counts a request that was not taken, and makes an error of its status.
func (r *Receiver) refuse(signal otlp.Signal, items int, why Refusal, s *status.Status) error {
	r.counters.refuse(signal, items, why, s.Code())
	return s.Err()
}
