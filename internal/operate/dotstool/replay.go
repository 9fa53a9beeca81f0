package dotstool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"time"

	"correlator/dots/client"
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/recording"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// Replay publishes a recording.
type Replay struct {
	Guest Guest
	File  string  // "-": Stdin
	Speed float64 // factor of its pace; infinite: without pauses

	Stdin io.Reader
	Notes io.Writer

	published, skipped atomic.Int64 // transmissions
}

// Run publishes the recording, and returns when the broker has it.
func (r *Replay) Run(ctx context.Context) error {
	in := r.Stdin
	if r.File != "-" {
		file, err := os.Open(r.File)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	c := r.Guest.new()
	defer c.Close()
	var reader *recording.Reader
	err := interruptible(ctx, c, func() (err error) {
		if reader, err = recording.NewReader(in, 0); err != nil {
			return fmt.Errorf("%s: %w", r.File, err)
		}
		return nil
	})
	if err != nil {
		return endedBy(ctx, err)
	}
	if err := r.Guest.connect(ctx, c); err != nil {
		return endedBy(ctx, err)
	}
	err = interruptible(ctx, c, func() error { return r.publish(ctx, c, reader) })
	err = settle(ctx, c, endedBy(ctx, err))
	fmt.Fprintf(r.Notes, "correlator: published %d transmissions\n", r.published.Load())
	if skipped := r.skipped.Load(); skipped > 0 {
		fmt.Fprintf(r.Notes, "correlator: left out %d of the protocol's own types\n", skipped)
	}
	return err
}

func (r *Replay) publish(ctx context.Context, c *client.Client, reader *recording.Reader) error {
	var x recording.Record
	var first time.Time
	begin := time.Now()
	for {
		switch err := reader.Next(&x); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", r.File, err)
		case x.Type == nil:
			return fmt.Errorf("%s: type %.255q is not described", r.File, x.Header.TypeName)
		case x.Type.Flags.Internal: // the records of guests that are gone, and the like
			r.skipped.Add(1)
			continue
		}
		if first.IsZero() {
			first = x.Time
		}
		if err := r.pause(ctx, begin, x.Time.Sub(first)); err != nil {
			return err
		}
		if err := publishRecord(ctx, c, &x); err != nil {
			return err
		}
		r.published.Add(1)
	}
}

// pause waits until so much of the recording's time has gone.
func (r *Replay) pause(ctx context.Context, begin time.Time, since time.Duration) error {
	if math.IsInf(r.Speed, 1) {
		return ctx.Err()
	}
	scaled := min(float64(since)/r.Speed, math.MaxInt64/2) // longer than anybody waits
	left := time.Until(begin.Add(time.Duration(scaled)))
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func publishRecord(ctx context.Context, c *client.Client, x *recording.Record) error {
	o := &encoded{typ: x.Type, instance: x.Instance}
	n, err := dynamic.Scan(x.Type, x.Instance, &o.layout)
	if err == nil && n != len(x.Instance) {
		err = dynamic.ErrExcess
	}
	if err != nil {
		return fmt.Errorf("recorded instance of %s: %w", x.Type.Name, err)
	}
	if x.Header.Set&frame.RemoveObj != 0 && x.Header.RemoveObj {
		return c.Remove(ctx, o)
	}
	props := o.layout.Set
	if x.Header.Set&frame.Attributes != 0 {
		props = x.Header.Attributes
	}
	return c.PublishProperties(ctx, o, props)
}

// encoded is an instance that is published as it is. The broker makes it canonical if it is not.
type encoded struct {
	typ      *schema.Struct
	instance []byte
	layout   dynamic.Layout
}

func (e *encoded) Descriptor() *schema.Struct { return e.typ }

func (e *encoded) Valid() value.PropertySet { return e.layout.Set }

func (e *encoded) AppendInstance(dst []byte, props value.PropertySet) []byte {
	return dynamic.AppendSelected(dst, e.typ, e.instance, &e.layout, props)
}
