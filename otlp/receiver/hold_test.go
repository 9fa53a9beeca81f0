package receiver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"correlator/internal/host/connlimit"
	"correlator/otlp"
)

// fullQueue is a queue without room until room is closed.
type fullQueue struct {
	room    chan struct{}
	waiting atomic.Int32
	taken   atomic.Int32
}

func (q *fullQueue) EnqueueReceived(ctx context.Context, _ *otlp.Batch) error {
	select {
	case <-q.room:
		q.taken.Add(1)
		return nil
	default:
	}
	if ctx.Err() == nil {
		q.waiting.Add(1)
		defer q.waiting.Add(-1)
	}
	select {
	case <-q.room:
		q.taken.Add(1)
		return nil
	case <-ctx.Done():
		return &otlp.OverloadError{RetryAfter: 3 * time.Second}
	}
}

// While the queue is full a request is held: until there is room, the time to hold it is over, its
// client cancels it, or the receiver shuts down.
func TestHold(t *testing.T) {
	body, items := sound(t, otlp.Traces)
	large := encode(t, traceRequest(largeSpan(DefaultMaxRequestBytes/2)))
	for name, c := range map[string]struct {
		body    []byte
		options []grpc.CallOption
		timeout time.Duration // of the client
		occupy  int64         // of the memory for large requests
		during  func(b *bubble, q *fullQueue, cancel func())
		code    codes.Code
		after   time.Duration
	}{
		"room": {body: body, during: func(_ *bubble, q *fullQueue, _ func()) { close(q.room) }, code: codes.OK},
		"a large one": {body: large, options: []grpc.CallOption{zipped},
			during: func(_ *bubble, q *fullQueue, _ func()) { close(q.room) }, code: codes.OK},
		"no memory to hold it": {body: large, options: []grpc.CallOption{zipped},
			occupy: memoryLimit(DefaultMaxRequestBytes) - 1<<20,
			code:   codes.Unavailable},
		"no room":      {body: body, code: codes.Unavailable, after: holdTimeout},
		"a short call": {body: body, timeout: time.Second, code: codes.Unavailable, after: time.Second / 2},
		"cancelled": {body: body, during: func(_ *bubble, _ *fullQueue, cancel func()) { cancel() },
			code: codes.Canceled},
		"a shutdown": {body: body, during: func(b *bubble, _ *fullQueue, _ func()) { b.Shutdown(context.Background()) },
			code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &fullQueue{room: make(chan struct{})}
				b := openBubbleWith(t, q)
				assert.Assert(t, b.memory.try(&caller{conn: new(connlimit.Conn)}, c.occupy) != nil, "no memory")
				timeout := c.timeout
				if timeout == 0 {
					timeout = patience
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				conn := b.dial()
				body := c.body
				if c.options != nil {
					body = zip(t, body)
				}
				start := time.Now()
				done := make(chan error, 1)
				go func() { done <- conn.Invoke(ctx, otlp.Traces.Method(), body, new([]byte), c.options...) }()
				synctest.Wait()
				if held := c.occupy == 0; held != (q.waiting.Load() == 1) {
					t.Errorf("%d requests are held", q.waiting.Load())
				}
				if c.during != nil {
					c.during(b, q, cancel)
				}
				err := <-done
				if after := time.Since(start); status.Code(err) != c.code || after != c.after &&
					(name != "a shutdown" || after > lingerTimeout) {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(start), c.code, c.after)
				}
				if c.code == codes.Unavailable {
					wantError(t, err, c.code, true)
				}
				synctest.Wait()
				s := b.Status().Signals[otlp.Traces]
				if taken := uint64(q.taken.Load()); s.PassedOn > 0 != (taken == 1) ||
					s.Received != s.PassedOn+s.Refused || s.PassedOn > uint64(items) {
					t.Errorf("%+v, %d were taken", s, taken)
				}
				assert.Check(t, b.memoryFree(memoryLimit(DefaultMaxRequestBytes)-c.occupy), "memory is still taken")
			})
		})
	}
}
