package receiver

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"correlator/internal/host/connlimit"
	"correlator/otlp"
	"correlator/otlp/validate"
)

// validateSignals maps the signals of package otlp to those of package validate.
var validateSignals = [otlp.NumSignals]validate.Signal{
	otlp.Traces: validate.Traces, otlp.Metrics: validate.Metrics, otlp.Profiles: validate.Profiles,
}

// protocol is how requests and responses are transmitted.
type protocol struct {
	// open reads what is before a request. Errors are statuses to respond with.
	open func(ctx context.Context, q *http.Request, limit int) (message, error)
	// respond writes the response to a call, or, if err is not nil, its status. Responses are a few
	// bytes and never compressed.
	respond func(w http.ResponseWriter, response []byte, err error)
}

var (
	grpcProtocol = &protocol{openGRPC, respondGRPC}
	httpProtocol = &protocol{openHTTP, respondHTTP}
)

// message is a request while it is read.
type message interface {
	memory() int           // that read allocates, in bytes
	read() ([]byte, error) // errors are statuses to respond with
	gzipped() bool
}

// ServeHTTP serves one request, by gRPC or OTLP/HTTP as its content type says. A defect of the
// agent's that a call causes to panic must not end the agent, which every sender could then do
// again and again: the call is answered with INTERNAL, and counted.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	own := connOf(q)
	own.begin(q)
	conn := own.Conn
	conn.Begin()
	defer conn.End()
	if err := limit(w, time.Now().Add(callTimeout)); err != nil {
		refuseHTTP(w, http.StatusInternalServerError, err.Error())
		return
	}
	if !strings.HasPrefix(q.Header.Get("Content-Type"), grpcType) {
		r.serveHTTP(conn, w, q)
		return
	}
	if !isGRPC(q) {
		r.counters.stray(q, StrayGRPC)
		refuseHTTP(w, http.StatusUnsupportedMediaType, "gRPC is accepted with protobuf, over HTTP/2")
		return
	}
	for signal := range otlp.NumSignals {
		if q.URL.Path == signal.Method() {
			r.serve(grpcProtocol, signal, conn, w, q)
			return
		}
	}
	r.counters.stray(q, StrayPath)
	respondGRPC(w, nil, status.Error(codes.Unimplemented, "unknown service or method"))
}

// serve serves one call of a signal.
func (r *Receiver) serve(
	p *protocol, signal otlp.Signal, conn *connlimit.Conn, w http.ResponseWriter, q *http.Request,
) {
	response, err := r.callSafely(p, signal, conn, w, q)
	p.respond(w, response, err)
}

// errDefect is the status of a call that panicked.
var errDefect = status.Error(codes.Internal, "defect of the receiver")

// callSafely is call with an error instead of a panic.
func (r *Receiver) callSafely(
	p *protocol, signal otlp.Signal, conn *connlimit.Conn, w http.ResponseWriter, q *http.Request,
) (response []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			if r.onPanic != nil {
				r.panicked.Do(func() { r.onPanic(v, debug.Stack()) })
			}
			response, err = nil, r.refuse(signal, 1, Panic, status.Convert(errDefect))
		}
	}()
	return r.call(p, signal, conn, w, q)
}

// call serves one call of a signal. It returns an Export<Signal>ServiceResponse, or the status to
// respond with.
func (r *Receiver) call(
	p *protocol, signal otlp.Signal, conn *connlimit.Conn, w http.ResponseWriter, q *http.Request,
) ([]byte, error) {
	if size(q.Header) > maxHeaders {
		return nil, r.unread(signal, errHeaders)
	}
	if signal == otlp.Profiles && !hasKnownVersion(q.Header) {
		return nil, r.unread(signal, errVersion)
	}
	ctx, cancel, err := withDeadline(w, q)
	if err != nil {
		return nil, r.unread(signal, err)
	}
	defer cancel()
	waiting, stopWaiting := context.WithTimeout(ctx, slotTimeout)
	defer stopWaiting()
	by := newCaller(conn, w, stopWaiting)
	defer by.end()

	if r.running.Err() != nil {
		return nil, r.refuse(signal, 1, Closing, closing())
	}
	slot, err := r.slots.acquire(waiting, by, 1) // nothing of the request has been read
	if err != nil {
		return nil, r.late(ctx, signal, by)
	}
	defer r.slots.release(slot)

	by.reads()
	m, err := p.open(ctx, q, r.limit)
	if err != nil {
		return nil, r.unreadBy(signal, by, err)
	}
	if size := m.memory(); size > window {
		by.hasRead() // nobody is slow who waits for memory
		part, err := r.memory.acquire(waiting, by, int64(size))
		if err != nil {
			return nil, r.late(ctx, signal, by)
		}
		defer r.memory.release(part)
		by.reads() // only now
	}
	body, err := m.read()
	by.hasRead()
	if err != nil || by.isInterrupted() {
		return nil, r.unreadBy(signal, by, err)
	}
	return r.pass(ctx, signal, by, body, m.gzipped())
}

// errHeaders is the status of a request with too many headers, which is final.
var errHeaders = status.Errorf(codes.ResourceExhausted, "headers have more than %d bytes", maxHeaders)

// errVersion is the status of a request with profiles of another version, which is final.
var errVersion = status.Errorf(codes.InvalidArgument, "%s must be %s, once, or missing", otlp.ProfilesVersionKey,
	otlp.ProfilesVersion)

func hasKnownVersion(headers http.Header) bool {
	versions := headers.Values(otlp.ProfilesVersionKey)
	return len(versions) == 0 || len(versions) == 1 && versions[0] == otlp.ProfilesVersion
}

// size returns what headers have of names and values.
func size(headers http.Header) (n int) {
	for name, values := range headers {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// late refuses a request for which there was no slot or memory in time. If its client has given it
// up meanwhile, it counts as not received.
func (r *Receiver) late(ctx context.Context, signal otlp.Signal, by *caller) error {
	switch {
	case by.isInterrupted():
		return r.refuse(signal, 1, Slow, crowded())
	case ctx.Err() != nil:
		return r.unread(signal, status.FromContextError(ctx.Err()).Err())
	case r.running.Err() != nil:
		return r.refuse(signal, 1, Closing, closing())
	default:
		return r.refuse(signal, 1, Overload, crowded())
	}
}

// unreadBy is unread for an error of reading, which may be an interruption, or for that alone.
func (r *Receiver) unreadBy(signal otlp.Signal, by *caller, err error) error {
	if by.isInterrupted() {
		return r.refuse(signal, 1, Slow, crowded())
	}
	return r.unread(signal, err)
}

// unread counts a request that was not read to its end, and returns the error to respond with.
func (r *Receiver) unread(signal otlp.Signal, err error) error {
	r.counters.unread(signal, status.Code(err))
	return err
}

// pass checks a request and passes it on. If the queue is full it holds the request for a while.
func (r *Receiver) pass(
	ctx context.Context, signal otlp.Signal, by *caller, body []byte, compressed bool,
) ([]byte, error) {
	v, b, release, err := r.check(ctx, signal, by, body, compressed)
	if release != nil { // the queue is full
		err = r.hold(ctx, b)
		release()
	}
	switch {
	case err == nil:
		r.counters.accept(signal, v)
		return response(v), nil
	case v == nil: // counted
		return nil, err
	case ctx.Err() != nil:
		return nil, r.unread(signal, status.FromContextError(ctx.Err()).Err())
	case r.running.Err() != nil:
		return nil, r.refuse(signal, v.Received(), Closing, closing())
	default:
		return nil, r.refused(signal, v.Received(), err)
	}
}

// check does what needs CPU time, and memory beyond that of the body, for one request at a time: it
// inflates and validates the request and offers it to the queue. It waits for nobody, so it takes
// milliseconds. A release function is returned if the queue is full and there is memory to hold the
// batch until release is called. Without a Verdict, the error is a status that has been counted.
func (r *Receiver) check(
	ctx context.Context, signal otlp.Signal, by *caller, body []byte, compressed bool,
) (v *validate.Verdict, b *otlp.Batch, release func(), err error) {
	r.checking.Lock()
	defer r.checking.Unlock()
	if err := ctx.Err(); err != nil { // the client will send it again: passed on, it would arrive twice
		return nil, nil, nil, r.unread(signal, status.FromContextError(err).Err())
	}
	if compressed {
		if body, err = r.inflater.inflate(body, r.limit); err != nil {
			return nil, nil, nil, r.unread(signal, err)
		}
	} else if cap(body)-len(body) > len(body)/8 { // its length was unknown, and it may stay in a queue for long
		body = bytes.Clone(body)
	}
	if v, err = validate.Check(validateSignals[signal], body); err != nil {
		return nil, nil, nil, r.refuse(signal, 1, Undecodable, invalid(err))
	}
	if v.Items == 0 {
		return v, nil, nil, nil
	}
	b = newBatch(signal, v, time.Now())
	err = r.queue.EnqueueReceived(noWait, b)
	var overload *otlp.OverloadError
	if errors.As(err, &overload) {
		switch size := int64(len(v.Request)); {
		case size <= window:
			release = func() {}
		default:
			if part := r.memory.try(by, size); part != nil {
				release = func() { r.memory.release(part) }
			}
		}
	}
	return v, b, release, err
}

// noWait is a context that is done.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// hold waits for room in the queue, for no more than half of the time that the client still waits.
func (r *Receiver) hold(ctx context.Context, b *otlp.Batch) error {
	wait := holdTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(r.running, cancel)()
	return r.queue.EnqueueReceived(ctx, b)
}

func newBatch(signal otlp.Signal, v *validate.Verdict, created time.Time) *otlp.Batch {
	if signal == otlp.Profiles {
		return otlp.NewProfilesBatch(v.Request, v.Items, v.Units, created)
	}
	return otlp.NewBatch(signal, v.Request, v.Items, created)
}

// refused maps an error of the queue to the status to respond with.
func (r *Receiver) refused(signal otlp.Signal, items int, err error) error {
	var overload *otlp.OverloadError
	switch {
	case errors.As(err, &overload):
		return r.refuse(signal, items, Overload, retryable("the queue of a destination is full", overload.RetryAfter))
	case errors.Is(err, otlp.ErrTooLarge):
		return r.refuse(signal, items, TooLarge, status.New(codes.ResourceExhausted,
			"request is larger than a destination takes"))
	case errors.Is(err, otlp.ErrUnsupported):
		return r.refuse(signal, items, Unsupported, status.New(codes.Unimplemented, "no destination takes this signal"))
	case errors.Is(err, otlp.ErrClosed):
		return r.refuse(signal, items, Closing, closing())
	default: // the client still has the data
		return r.refuse(signal, items, Overload, retryable("the request cannot be passed on now", jitter(retryDelay)))
	}
}

// refuse counts a request that was not accepted, and returns its status as an error.
func (r *Receiver) refuse(signal otlp.Signal, items int, why Refusal, s *status.Status) error {
	r.counters.refuse(signal, items, why, s.Code())
	return s.Err()
}
