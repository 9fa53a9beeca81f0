// Package dump prints what is in a captured stream of OpenCensus messages: each message, and each
// part of the stream that is none, in their order.
package dump

import (
	"errors"
	"fmt"
	"io"

	"correlator/opencensus/wire"
)

// readBytes is the size of a read. What it has completed is printed before the next one, so that a
// stream that is still written can be watched.
const readBytes = 64 << 10

// unlimited is a wire.Memory: a single stream is bounded by the limits of a message.
type unlimited struct{}

func (unlimited) Take(int) bool { return true }
func (unlimited) Give(int)      {}

// printer prints the parts of a stream.
type printer interface {
	message(m wire.Message)
	loss(loss wire.Loss)
	flush(w io.Writer) error // what was printed since the last call
	end(w io.Writer) error
}

// Table prints the stream r as a table.
func Table(w io.Writer, r io.Reader) error { return dump(w, r, newRows()) }

// JSON prints the stream r as a JSON object a line. One with the key "lost" is no message: its
// value is why.
func JSON(w io.Writer, r io.Reader) error { return dump(w, r, &lines{}) }

func dump(w io.Writer, r io.Reader, p printer) error {
	var counts wire.Counts
	s := wire.NewSplitter(unlimited{}, wire.MaxTraceBytes, &counts)
	s.OnLoss(p.loss)
	read := make([]byte, readBytes)
	for {
		n, err := r.Read(read)
		failed := s.Feed(read[:n], p.message)
		if err != nil || failed != nil {
			s.End(p.message)
		}
		if err := p.flush(w); err != nil {
			return err
		}
		switch {
		case failed != nil:
			return fmt.Errorf("not a stream of an OpenCensus client: %w", failed)
		case errors.Is(err, io.EOF):
			return p.end(w)
		case err != nil:
			return fmt.Errorf("reading the stream: %w", err)
		}
	}
}
