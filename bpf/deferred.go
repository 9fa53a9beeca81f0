package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// A deferredSample could not be counted in the kernel.
type deferredSample struct {
	Outcome       KernelOutcome // Unreadable, for which the caller must read the trace; or TableFull
	PID, TID      int           // in our own pid namespace
	ThreadPointer uint64
	Time          uint64 // CLOCK_MONOTONIC, ns

	// Count is the sample as Drain would have returned it, without ids if Unreadable. Its stack is
	// Frames; Sampler.Stack does not know it.
	Count  Count
	Frames Stack
}

// ErrFlushed is returned by Read when it has read all samples that were there at a Flush.
var ErrFlushed = ringbuf.ErrFlushed

// ErrMalformed reports a record of the ring buffer that is not a sample.
var ErrMalformed = errors.New("malformed deferred sample")

var errDeferredAttributes = errors.New("more attributes than bytes")

var errDeferredShort = errors.New("deferred sample is too short")

// DeferredReader reads deferred samples. It is for one goroutine at a time.
type DeferredReader struct {
	ring   *ringbuf.Reader
	record ringbuf.Record
}

// Deferred returns the reader. Its buffer is the sampler's only one: there must be one at most.
func (s *Sampler) Deferred() *DeferredReader {
	return &DeferredReader{ring: s.deferred}
}

// Flush makes Read return ErrFlushed once, after the samples that are there now. After
// [Sampler.Stop] no others follow.
func (r *DeferredReader) Flush() error { return r.ring.Flush() }

// Read waits for the next sample. It returns [ErrFlushed] after a Flush, and [os.ErrClosed] once
// the sampler was closed. It can be called again after these two and ErrMalformed, not after other
// errors.
func (r *DeferredReader) Read() (deferredSample, error) {
	if err := r.ring.ReadInto(&r.record); err != nil {
		return deferredSample{}, fmt.Errorf("reading ring buffer: %w", err)
	}
	deferred, err := decodeDeferred(r.record.RawSample)
	if err != nil {
		return deferredSample{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return deferred, nil
}

// decodeTail decodes what a record ends with: a stack, whose addresses come so far behind its begin, and attributes of
// a size behind the last of these.
func decodeTail(raw []byte, stackOff, addrsOff int, key StackKey, size uint32) (frames Stack, attributes []byte,
	err error) {
	if frames, err = decodeStack(raw[stackOff:], key.Unwound()); err != nil {
		return Stack{}, nil, err
	}
	attributes = raw[stackOff+addrsOff+frames.addrs()*8:]
	if int(size) > len(attributes) {
		return Stack{}, nil, fmt.Errorf("%w: %d, %d", errDeferredAttributes, size, len(attributes))
	}
	return frames, attributes[:size], nil
}

// decodeDeferred decodes a struct deferred, cut off after the attributes, which follow the last
// address.
func decodeDeferred(raw []byte) (deferredSample, error) {
	var d samplerDeferred
	stackOff := int(unsafe.Offsetof(d.Stack))
	if len(raw) < stackOff+int(unsafe.Offsetof(d.Stack.Addrs)) {
		return deferredSample{}, fmt.Errorf("%w: %d bytes", errDeferredShort, len(raw))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&d)), stackOff), raw)
	key := newStackKey(d.Key.Stack)
	frames, attributes, err := decodeTail(raw, stackOff, int(unsafe.Offsetof(d.Stack.Addrs)), key, d.AttributesSize)
	if err != nil {
		return deferredSample{}, err
	}
	sample := deferredSample{
		Outcome:       KernelOutcome(d.Outcome),
		PID:           int(d.Pid),
		TID:           int(d.Tid),
		ThreadPointer: d.ThreadPointer,
		Time:          d.Time,
		Count: Count{
			Stack:      key,
			TID:        int(d.Key.Stack.Tid),
			Thread:     unix.ByteSliceToString(asBytes(d.Thread[:])),
			First:      d.Time,
			Last:       d.Time,
			TraceFlags: uint8(d.TraceFlags),
			Samples:    1,
			OTel:       d.Key.Attributes != 0,
			OfLabels:   areOfLabels(d.Key.Attributes),
			OfOBI:      d.Key.Attributes == ofOBI,
			Attributes: slices.Concat(attributes),
		},
		Frames: frames,
	}
	putTraceID(&sample.Count.TraceID, d.Key.TraceId)
	binary.NativeEndian.PutUint64(sample.Count.TransactionID[:], d.Key.TransactionId)
	binary.NativeEndian.PutUint64(sample.Count.SpanID[:], d.Key.SpanId)
	return sample, nil
}
