package client

import (
	"context"
	"io"
	"sync"
	"syscall"
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

	// lateTime is how long a callback may take before what was published meanwhile is written
	// without waiting for its end.
	lateTime = time.Millisecond

	// keepBytes is the size up to which buffers are kept for later use.
	keepBytes = 1 << 20
)

// output is a buffer of frames, and who writes it. Frames are appended between begin and end. At
// most one goroutine writes at a time: the one of run, or the reading goroutine after it has
// handled what it read, which saves the change of goroutines when a callback publishes an answer.
type output struct {
	limit int // bytes, above which begin waits

	w    io.Writer
	raw  syscall.RawConn // of w, for writes that do not wait; nil if there is none
	wake chan struct{}   // has one place: run is to look again
	stop chan struct{}   // closed when the connection ends

	mu       sync.Mutex // protects what follows, and all that is appended to the buffer depends on
	buf      []byte
	spare    []byte        // the other buffer, while nobody writes it
	rest     []byte        // what the reading goroutine took and the kernel did not
	restOf   []byte        // the buffer that rest is a part of
	writing  bool          // someone writes what was in the buffer
	awake    bool          // run does not wait for wake, or was woken
	pausing  bool          // run waits for a full buffer
	reading  bool          // the reading goroutine will look at the buffer soon
	late     *time.Timer   // wakes run if that takes long
	lateSet  bool          // late is running
	waiters  chan struct{} // closed when there is room again; nil if nobody waits
	frames   uint64
	bytes    uint64
	err      error // nothing is written any more
	lost     bool  // because of it, something was not
	finished error // nothing is appended any more
	tryData  []byte
	tryCount int
	tryErr   error
	tryFunc  func(fd uintptr) bool
}

func newOutput(limit int) *output {
	o := &output{limit: limit, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	o.tryFunc = func(fd uintptr) bool {
		o.tryCount, o.tryErr = syscall.Write(int(fd), o.tryData)
		return true
	}
	o.late = time.AfterFunc(time.Hour, o.onLate)
	o.late.Stop()
	return o
}

// begin locks the output when it has room. It waits for that until the context ends.
func (o *output) begin(ctx context.Context) error {
	o.mu.Lock()
	for len(o.buf) >= o.limit && o.err == nil {
		if o.waiters == nil {
			o.waiters = make(chan struct{})
		}
		room := o.waiters
		o.wakeUp()
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		o.mu.Lock()
	}
	return o.check()
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

// end unlocks the output, and has someone write what is in the buffer.
func (o *output) end() {
	switch n := len(o.buf); {
	case n == 0:
	case n >= fullBytes:
		if !o.awake || o.pausing {
			o.wakeUp()
		}
	case o.reading:
		if !o.lateSet {
			o.lateSet = true
			o.late.Reset(lateTime)
		}
	case !o.awake:
		o.wakeUp()
	}
	o.mu.Unlock()
}

// wakeUp wakes the goroutine of run. The caller holds mu.
func (o *output) wakeUp() {
	o.awake, o.pausing = true, false
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *output) onLate() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lateSet = false
	if len(o.buf) > 0 && !o.awake {
		o.wakeUp()
	}
}

// beginReading says that the reading goroutine handles what it read.
func (o *output) beginReading() {
	o.mu.Lock()
	o.reading = true
	o.mu.Unlock()
}

// endReading writes what was published meanwhile, as far as the kernel takes it.
func (o *output) endReading() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading = false
	if len(o.buf) == 0 || o.writing || o.err != nil || len(o.rest) > 0 {
		return // whoever writes, or run, which has been woken for the rest, looks again
	}
	if o.raw == nil {
		if !o.awake {
			o.wakeUp()
		}
		return
	}
	data := o.take()
	o.mu.Unlock()
	n := o.try(data)
	o.mu.Lock()
	o.writing = false
	o.rest, o.restOf = data[n:], data
	if n == len(data) {
		o.release()
	}
	if o.err != nil {
		o.notify()
	} else if len(o.rest)+len(o.buf) > 0 && !o.awake {
		o.wakeUp()
	}
}

// try writes without waiting. Errors are left to the next write that waits.
func (o *output) try(data []byte) int {
	o.tryData = data
	if err := o.raw.Write(o.tryFunc); err != nil || o.tryErr != nil || o.tryCount < 0 {
		return 0
	}
	return o.tryCount
}

// take takes the buffer for writing. The caller holds mu.
func (o *output) take() []byte {
	data := o.buf
	o.buf, o.spare, o.writing = o.spare[:0], nil, true
	return data
}

// release takes back a buffer that is written, and lets those continue that wait for room. The
// caller holds mu.
func (o *output) release() {
	o.bytes += uint64(len(o.restOf))
	if cap(o.restOf) <= keepBytes {
		o.spare = o.restOf[:0]
	}
	o.rest, o.restOf = nil, nil
	o.notify()
}

// notify has those look again who wait for room, or that everything is written. The caller holds
// mu.
func (o *output) notify() {
	if o.waiters != nil {
		close(o.waiters)
		o.waiters = nil
	}
}

// run writes until the connection ends.
func (o *output) run() {
	pause := time.NewTimer(time.Hour)
	pause.Stop()
	for {
		select {
		case <-o.wake:
		case <-o.stop:
			return
		}
		for again := true; again; {
			wait, more := o.write()
			if again = more; wait {
				pause.Reset(pauseTime)
				select {
				case <-o.wake:
				case <-pause.C:
				case <-o.stop:
					return
				}
				pause.Stop()
			}
		}
	}
}

// write writes what there is, waiting for the kernel. It reports whether to call it again, and
// whether to wait before for more.
func (o *output) write() (wait, again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pausing = false
	if o.writing || o.err != nil || len(o.rest)+len(o.buf) == 0 {
		o.awake = false
		return false, false
	}
	o.awake = true
	if len(o.rest) == 0 {
		o.restOf = o.take()
		o.rest = o.restOf
	}
	o.writing = true
	rest := o.rest
	o.mu.Unlock()
	_, err := o.w.Write(rest)
	o.mu.Lock()
	o.writing = false
	if err != nil {
		o.awake = false
		o.failLocked(err)
		return false, false
	}
	o.release()
	n := len(o.buf)
	o.pausing = n >= burstBytes && n < fullBytes
	return o.pausing, true
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
	o.late.Stop()
	o.notify()
}

// flush waits until everything that has been appended is written.
func (o *output) flush(ctx context.Context) error {
	for {
		o.mu.Lock()
		switch {
		case o.writing:
		case o.err != nil && (o.lost || len(o.rest) > 0):
			defer o.mu.Unlock()
			return o.err
		case len(o.buf)+len(o.rest) == 0:
			o.mu.Unlock()
			return nil // even if the peer, which has got everything, has closed since
		}
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
	}
}
