package client

import (
	"context"
	"io"
	"math"
	"sync"
	"time"
)

const (
	// fullBytes is how much is written at once when publications come faster than writing takes:
	// larger writes hardly cost less per byte.
	fullBytes = 32 << 10

	// burstBytes is how much must be published during one write to count as fast. Less than that is
	// written at once, for latency.
	burstBytes = 2 << 10

	// pauseTime is how long a fast publisher may take to fill a write.
	pauseTime = 500 * time.Microsecond

	// keepBytes is the size up to which buffers are kept for later use.
	keepBytes = 1 << 20
)

// output is a buffer of frames, which run writes. Frames are appended between begin and end.
type output struct {
	limit int // bytes, above which begin waits

	w    io.Writer
	wake chan struct{} // has one place: run is to look again
	stop chan struct{} // closed when the connection ends

	mu       sync.Mutex // protects what follows, and all that is appended to the buffer depends on
	buf      []byte
	spare    []byte        // the other buffer, while nobody writes it
	writing  bool          // what was in the buffer
	wakeAt   int           // bytes in the buffer at which run is to be woken
	waiters  chan struct{} // closed when there is room again; nil if nobody waits
	frames   uint64
	bytes    uint64
	err      error // nothing is written any more
	lost     bool  // because of it, something was not
	finished error // nothing is appended any more
}

func newOutput(limit int) *output {
	return &output{limit: limit, wake: make(chan struct{}, 1), stop: make(chan struct{}), wakeAt: 1}
}

// begin locks the output when it has room. It waits for that until the context ends.
func (o *output) begin(ctx context.Context) error {
	o.mu.Lock()
	for len(o.buf) >= o.limit && o.err == nil {
		if err := o.await(ctx); err != nil {
			return err
		}
	}
	return o.check()
}

// await unlocks the output, waits until something was written or failed, and locks it again. With an
// error, which is that of the context, it stays unlocked.
func (o *output) await(ctx context.Context) error {
	if o.waiters == nil {
		o.waiters = make(chan struct{})
	}
	written := o.waiters
	o.wakeUp()
	o.mu.Unlock()
	select {
	case <-written:
	case <-ctx.Done():
		return ctx.Err()
	}
	o.mu.Lock()
	return nil
}

// beginNow locks the output even if it has no room.
func (o *output) beginNow() error {
	o.mu.Lock()
	return o.check()
}

// check unlocks the output if nothing may be appended.
func (o *output) check() error {
	if o.err == nil && o.finished == nil {
		return nil
	}
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	return o.finished
}

// finish ends the appending, not the writing.
func (o *output) finish(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = err
}

// end unlocks the output, and has what is in the buffer written.
func (o *output) end() {
	if len(o.buf) >= o.wakeAt {
		o.wakeUp()
	}
	o.mu.Unlock()
}

// wakeUp wakes the goroutine of run. The caller holds mu.
func (o *output) wakeUp() {
	o.wakeAt = math.MaxInt
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes until the connection ends.
func (o *output) run() {
	pause := time.NewTimer(time.Hour)
	for {
		select {
		case <-o.wake:
		case <-pause.C:
		case <-o.stop:
			return
		}
		pause.Stop()
		if o.write() {
			pause.Reset(pauseTime)
		}
	}
}

// write writes what there is, and what is published meanwhile. It reports whether to be called again
// after a pause, in which a fast publisher fills a write.
func (o *output) write() (pause bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && len(o.buf) > 0 {
		data := o.buf
		o.buf, o.spare, o.writing, o.wakeAt = o.spare[:0], nil, true, math.MaxInt
		o.mu.Unlock()
		_, err := o.w.Write(data)
		o.mu.Lock()
		o.writing = false
		if err != nil {
			o.lost = true
			o.failLocked(err)
			return false
		}
		o.bytes += uint64(len(data))
		if cap(data) <= keepBytes {
			o.spare = data[:0]
		}
		o.notify()
		if n := len(o.buf); n >= burstBytes && n < fullBytes {
			o.wakeAt = fullBytes
			return true
		}
	}
	o.wakeAt = 1
	return false
}

// notify has those look again who wait for room, or that everything is written. The caller holds
// mu.
func (o *output) notify() {
	if o.waiters != nil {
		close(o.waiters)
		o.waiters = nil
	}
}

// fail ends all writing.
func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(err)
}

func (o *output) failLocked(err error) {
	if o.err == nil {
		o.err = err
		close(o.stop)
	}
	o.lost = o.lost || len(o.buf) > 0
	o.buf = nil
	o.notify()
}

// flush waits until everything that has been appended is written.
func (o *output) flush(ctx context.Context) error {
	o.mu.Lock()
	for o.writing || len(o.buf) > 0 {
		if err := o.await(ctx); err != nil {
			return err
		}
	}
	defer o.mu.Unlock()
	if o.lost {
		return o.err
	}
	return nil // even if the peer, which has got everything, has closed since
}
