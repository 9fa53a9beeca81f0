// Package recording writes and reads files of transmissions with their times: what a guest
// received, to be looked at or sent again later.
//
// A file is a sequence of frames of format v2 with a time before each. The first one is a
// DotsRecordHeader, a type of this package only:
//
//	offset  size  field
//	0       8     time: nanoseconds since 1970-01-01T00:00:00Z, big-endian
//	8             frame: 1A, size in 4 bytes, header, instance
//
//	tag  property of DotsRecordHeader
//	1    uint32 version, 1
//	2    timepoint startTime
//	3    string name, of who or what is recorded
//
// After the first frame of a file come the descriptors of the types in it, before their first
// instances, as a broker sends them. So a file explains itself, and what follows the times can be
// sent to a broker as it is. Times do not go back within a file.
//
// A file that was not written to its end is read as far as its frames are complete.
package recording

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"correlator/dots/cbor"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/system"
	"correlator/dots/value"
)

// Version is the version of files that are written, and the only one that is read.
const Version = 1

const (
	headerName = "DotsRecordHeader"
	timeBytes  = 8
	readBytes  = 64 << 10
)

// Errors of files.
var (
	// ErrFormat is wrapped for what is no recording.
	ErrFormat = errors.New("no DOTS recording")
	// ErrVersion is wrapped for a recording of another version.
	ErrVersion = errors.New("DOTS recording of an unknown version")
	// ErrTruncated is returned at the end of a file that ends within a frame.
	ErrTruncated = errors.New("DOTS recording ends within a frame")
)

// Header is what a file says about itself.
type Header struct {
	StartTime time.Time
	Name      string
}

// Writer writes a file. It is not safe for concurrent use.
type Writer struct {
	w         *bufio.Writer
	buf       []byte
	last      int64
	described map[string]bool
}

// NewWriter writes the beginning of a file. The caller must Flush before it closes the file.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	rec := &Writer{w: bufio.NewWriterSize(w, readBytes), described: make(map[string]bool)}
	instance := cbor.AppendMap(nil, 3)
	instance = cbor.AppendUint(append(instance, 1), Version)
	instance = cbor.AppendFloat64(append(instance, 2), float64(value.TimepointOf(h.StartTime)))
	instance = cbor.AppendString(append(instance, 3), h.Name)
	return rec, rec.append(h.StartTime, headerName, 0xe, instance)
}

// append writes a frame of this package's own.
func (w *Writer) append(at time.Time, name string, props value.PropertySet, instance []byte) error {
	return w.write(at, &frame.Header{
		TypeName: []byte(name), Attributes: props, Set: frame.TypeName | frame.Attributes,
	}, instance)
}

// Write writes an instance with the header it was received with, and the time when that was. The
// type is described before its first instance.
func (w *Writer) Write(at time.Time, h *frame.Header, typ *schema.Struct, instance []byte) error {
	if !w.described[typ.Name] && !typ.Flags.Internal {
		if err := w.describe(at, typ); err != nil {
			return err
		}
	}
	return w.write(at, h, instance)
}

func (w *Writer) describe(at time.Time, typ *schema.Struct) error {
	for _, t := range append(schema.Dependencies(typ), schema.OfStruct(typ)) {
		if w.described[t.Name] {
			continue
		}
		instance, name, props := system.AppendDescription(nil, t)
		if err := w.append(at, name, props, instance); err != nil {
			return err
		}
		w.described[t.Name] = true
	}
	return nil
}

func (w *Writer) write(at time.Time, h *frame.Header, instance []byte) error {
	w.last = max(w.last, at.UnixNano())
	buf := binary.BigEndian.AppendUint64(w.buf[:0], uint64(w.last))
	buf, err := frame.Append(buf, frame.V2, h, false, 0, instance)
	if err == nil {
		_, err = w.w.Write(buf)
	}
	if w.buf = buf; cap(buf) > readBytes {
		w.buf = nil
	}
	if err != nil {
		return fmt.Errorf("writing a recording: %w", err)
	}
	return nil
}

// Flush writes what is still buffered.
func (w *Writer) Flush() error {
	if err := w.w.Flush(); err != nil {
		return fmt.Errorf("writing a recording: %w", err)
	}
	return nil
}

// Reader reads a file, which may contain anything.
type Reader struct {
	Header Header

	r     io.Reader
	limit int
	buf   []byte
	start int
	end   int
	last  int64
	types *schema.Registry
	err   error
}

// Record is a transmission of a recording.
type Record struct {
	Time     time.Time
	Header   frame.Header   // its TypeName is valid until the next record is read
	Type     *schema.Struct // nil if the recording does not describe it
	Instance []byte         // valid until the next record is read; not checked
	Frame    []byte         // all of it, as it is sent to a broker
}

// NewReader reads the beginning of a file. Frames longer than a limit are errors; 0 is the limit of
// package frame.
func NewReader(r io.Reader, limit int) (*Reader, error) {
	if limit <= 0 {
		limit = frame.DefaultLimit
	}
	reader := &Reader{r: r, limit: limit, buf: make([]byte, readBytes), types: system.NewRegistry()}
	var first Record
	switch err := reader.next(&first); {
	case errors.Is(err, io.EOF), errors.Is(err, ErrTruncated):
		return nil, fmt.Errorf("%w: it has no header", ErrFormat)
	case err != nil:
		return nil, err
	case string(first.Header.TypeName) != headerName:
		return nil, fmt.Errorf("%w: it begins with another type", ErrFormat)
	}
	return reader, reader.decodeHeader(first.Instance)
}

func (r *Reader) decodeHeader(instance []byte) error {
	var version, name = uint64(0), ""
	var start value.Timepoint
	c := cbor.NewReader(instance)
	for n := c.Map(); n > 0 && c.Err() == nil; n-- {
		switch c.Uint(32) {
		case 1:
			version = c.Uint(32)
		case 2:
			start = value.Timepoint(c.Float64())
		case 3:
			name = c.String()
		default:
			c.Skip()
		}
	}
	if err := c.Err(); err != nil {
		return fmt.Errorf("%w: decoding its header: %w", ErrFormat, err)
	}
	if version != Version {
		return fmt.Errorf("%w: %d", ErrVersion, version)
	}
	r.Header = Header{StartTime: start.Time(), Name: name}
	return nil
}

// Types returns the types that the file has described so far, and those of the protocol.
func (r *Reader) Types() *schema.Registry { return r.types }

// Next reads the next transmission, except descriptors, which go to Types. It returns io.EOF at the
// end, and ErrTruncated if the file ends within a frame. After an error there is nothing more.
func (r *Reader) Next(x *Record) error {
	for {
		if err := r.next(x); err != nil {
			return err
		}
		var err error
		switch string(x.Header.TypeName) {
		case "EnumDescriptorData":
			_, err = system.LearnEnum(r.types, x.Instance)
		case "StructDescriptorData":
			_, err = system.LearnStruct(r.types, x.Instance)
		default:
			x.Type = r.types.StructBytes(x.Header.TypeName)
			return nil
		}
		if err != nil {
			r.err = fmt.Errorf("%w: %w", ErrFormat, err)
			return r.err
		}
	}
}

// next reads a frame.
func (r *Reader) next(x *Record) error {
	for r.err == nil {
		done, err := r.parse(x)
		if err != nil {
			r.err = err
		} else if done {
			return nil
		} else {
			r.fill()
		}
	}
	return r.err
}

// parse parses a frame if all of it is in the buffer.
func (r *Reader) parse(x *Record) (done bool, err error) {
	data := r.buf[r.start:r.end]
	if len(data) < timeBytes {
		return false, nil
	}
	at := binary.BigEndian.Uint64(data)
	instance, n, err := frame.Next(frame.V2, data[timeBytes:], r.limit, &x.Header)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrFormat, err)
	case n == 0:
		return false, nil
	case int64(at) < r.last:
		return false, fmt.Errorf("%w: a time is before the previous one", ErrFormat)
	}
	r.last = int64(at)
	x.Time, x.Instance, x.Frame, x.Type = time.Unix(0, r.last), instance, data[timeBytes:timeBytes+n], nil
	r.start += timeBytes + n
	return true, nil
}

// fill reads more into the buffer, which grows only when it is full of one frame.
func (r *Reader) fill() {
	if r.end == len(r.buf) {
		to := r.buf
		if r.start < len(r.buf)/2 {
			to = make([]byte, 2*len(r.buf))
		}
		r.end = copy(to, r.buf[r.start:r.end])
		r.buf, r.start = to, 0
	}
	n, err := r.r.Read(r.buf[r.end:])
	r.end += n
	switch {
	case n > 0 || err == nil:
	case errors.Is(err, io.EOF) && r.start < r.end:
		r.err = ErrTruncated
	case errors.Is(err, io.EOF):
		r.err = io.EOF
	default:
		r.err = fmt.Errorf("reading a recording: %w", err)
	}
}
