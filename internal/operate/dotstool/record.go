package dotstool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"correlator/dots/client"
	"correlator/dots/recording"
)

// flushInterval is how much of a recording may be lost when the process is killed.
const flushInterval = time.Second

// Record writes what is published into a file.
type Record struct {
	Guest Guest
	File  string   // must not exist; "-": Stdout
	Types []string // none: all that the broker knows or gets to know
	Count int      // transmissions after which it ends; 0: no end
	For   time.Duration

	Stdout, Notes io.Writer
}

// Run records until the context ends, which is no error.
func (r *Record) Run(ctx context.Context) error {
	out := r.Stdout
	if r.File != "-" {
		file, err := os.OpenFile(r.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		out = file
		defer file.Close()
	}
	started, err := r.record(ctx, out)
	if file, ok := out.(*os.File); ok && r.File != "-" {
		if !started {
			return errors.Join(err, os.Remove(r.File))
		}
		err = errors.Join(err, file.Close())
	}
	return err
}

// record reports whether it began to record.
func (r *Record) record(ctx context.Context, out io.Writer) (started bool, err error) {
	w, err := recording.NewWriter(out, recording.Header{StartTime: time.Now(), Name: r.Guest.Name})
	if err != nil {
		return false, err
	}
	var mu sync.Mutex // the goroutine that reads writes, another one flushes
	count := 0
	watch := &Watch{Guest: r.Guest, Types: r.Types, Count: r.Count, For: r.For, Notes: r.Notes}
	f := watch.follow(func(e *client.Event[*client.Raw]) error {
		mu.Lock()
		defer mu.Unlock()
		count++
		return w.Write(time.Now(), e.Header, e.Transmitted.Type, e.Transmitted.Instance)
	})
	f.all, f.stream = len(r.Types) == 0, true
	defer f.close()
	defer f.noteGoodbye()
	flush := func() error {
		mu.Lock()
		defer mu.Unlock()
		return w.Flush()
	}
	if err := f.start(ctx); err != nil {
		return false, endedBy(ctx, err)
	}
	for _, name := range f.unknown() {
		fmt.Fprintf(r.Notes, "correlator: the broker does not know %.255q yet\n", name)
	}
	err = f.wait(ctx, func(ended <-chan struct{}) error { return flushUntil(ended, flush) })
	switch {
	case errors.Is(err, errStuck):
		return true, err
	case !f.close():
		return true, errors.Join(err, errStuck)
	}
	if flushed := flush(); err == nil { // nothing is written any more but this
		err = flushed
	}
	fmt.Fprintf(r.Notes, "correlator: recorded %d transmissions\n", count)
	return true, err
}

// flushUntil flushes regularly.
func flushUntil(ended <-chan struct{}, flush func() error) error {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-ticker.C:
			if err := flush(); err != nil {
				return err
			}
		}
	}
}
