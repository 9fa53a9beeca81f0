package dotstool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"correlator/dots/client"
	"correlator/dots/schema"
	"correlator/internal/host/terminal"
)

// drawInterval is the time between two drawings: more of them nobody can read.
const drawInterval = 100 * time.Millisecond

// Watch shows the objects of types.
type Watch struct {
	Guest Guest
	Types []string
	Count int           // transmissions after which it ends; 0: no end
	For   time.Duration // after which it ends; 0: no end
	Notes io.Writer     // what is to be known beside the data
}

// JSON writes a line for each transmission, until the context ends, which is no error.
func (w *Watch) JSON(ctx context.Context, out io.Writer) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	f := w.follow(func(e *client.Event[*client.Raw]) error {
		line, err := newEvent(e)
		if err != nil {
			return err
		}
		return lines.Encode(line)
	})
	defer f.close()
	defer f.noteGoodbye()
	if err := f.start(ctx); err != nil {
		return endedBy(ctx, err)
	}
	for _, name := range f.unknown() {
		fmt.Fprintf(w.Notes, "correlator: the broker does not know %.255q yet\n", name)
	}
	return f.wait(ctx, nil)
}

// Table shows tables, in place on a terminal, until the context ends, which is no error.
func (w *Watch) Table(ctx context.Context, out io.Writer) error {
	changed := make(chan struct{}, 1)
	f := w.follow(func(*client.Event[*client.Raw]) error {
		select {
		case changed <- struct{}{}:
		default:
		}
		return nil
	})
	defer f.close()
	defer f.noteGoodbye() // below the screen, which is closed before
	if err := f.start(ctx); err != nil {
		return endedBy(ctx, err)
	}
	screen := terminal.OpenScreen(out)
	stuck := false
	defer func() {
		if !stuck { // else this would be, too
			screen.Close()
		}
	}()
	draw := func() error {
		columns, rows := screen.Size()
		return screen.Draw(lines(f.sections(rows), columns, rows))
	}
	// What has arrived by now is in the first drawing.
	select {
	case <-changed:
	default:
	}
	if err := draw(); err != nil {
		return err
	}
	err := f.wait(ctx, func(ended <-chan struct{}) error { return redraw(ended, changed, screen, draw) })
	if stuck = errors.Is(err, errStuck); stuck {
		return err
	}
	select {
	case <-changed:
		if again := draw(); err == nil {
			err = again
		}
	default:
	}
	return err
}

// redraw draws when something changed, until ended is closed.
func redraw(ended, changed <-chan struct{}, screen *terminal.Screen, draw func() error) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ended:
			return nil
		}
		select {
		case <-changed:
		case <-screen.Resized():
		case <-ended:
			return nil
		}
		if err := draw(); err != nil {
			return err
		}
		pause.Reset(drawInterval)
	}
}

// follower subscribes to types as soon as the broker knows them.
type follower struct {
	*Watch
	all    bool // every type that the broker knows, those of the protocol excepted
	stream bool // objects are not kept
	handle func(*client.Event[*client.Raw]) error
	c      *client.Client
	full   chan struct{} // closed after Count transmissions, or an error
	seen   int           // of the reading goroutine
	ended  bool          // of the reading goroutine: full is closed
	err    error         // why, before full is closed
	left   bool          // of who waits: the broker's goodbye was the end

	mu    sync.Mutex
	types map[string]*rows
}

func (w *Watch) follow(handle func(*client.Event[*client.Raw]) error) *follower {
	c := client.New(client.Options{Name: w.Guest.Name, Secret: w.Guest.Secret, CloseTimeout: settleTime})
	return &follower{Watch: w, handle: handle, c: c, full: make(chan struct{}), types: make(map[string]*rows)}
}

// close closes the connection. It reports whether nothing is handled any more: a handler that
// writes what nobody reads does not return.
func (f *follower) close() (ended bool) { return !errors.Is(f.c.Close(), client.ErrHandler) }

// start connects, and returns when everything has arrived that the broker has cached.
func (f *follower) start(ctx context.Context) error {
	discovery, err := f.c.Discover(func(s *schema.Struct) {
		if f.all || slices.Contains(f.Types, s.Name) {
			f.stop(f.subscribe(s))
		}
	})
	if err != nil {
		return err
	}
	for _, name := range f.Types {
		if s := f.c.Types().Struct(name); s != nil { // of the protocol
			if err := f.subscribe(s); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := f.Guest.connect(ctx, f.c); err != nil {
		return err
	}
	if err := discovery.Wait(ctx); err != nil {
		return err
	}
	for _, r := range f.known() {
		if err := r.objects.Wait(ctx); err != nil {
			return err
		}
	}
	for _, name := range f.unknown() {
		if err := f.c.Expect(name); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) known() []*rows {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.types))
}

func (f *follower) subscribe(s *schema.Struct) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.types[s.Name] != nil {
		return nil
	}
	r := &rows{s: s, last: make(map[string]string)}
	follow := f.c.SubscribeType
	if f.stream {
		follow = f.c.Stream
	}
	objects, err := follow(s.Name, func(e *client.Event[*client.Raw]) {
		if !s.Flags.Cached && !f.stream {
			r.add(e.Updated)
		}
		f.on(e)
	})
	if err != nil {
		return err
	}
	r.objects = objects
	f.types[s.Name] = r
	return nil
}

// on is called for each transmission by the reading goroutine.
func (f *follower) on(e *client.Event[*client.Raw]) {
	if f.ended {
		return
	}
	f.seen++
	err := f.handle(e)
	if err == nil && f.seen == f.Count {
		f.ended = true
		close(f.full)
	}
	f.stop(err)
}

// stop ends the following if there is an error. It is called by the reading goroutine.
func (f *follower) stop(err error) {
	if err != nil && !f.ended {
		f.err, f.ended = err, true
		close(f.full)
	}
}

// unknown returns the types that the broker does not know.
func (f *follower) unknown() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.Types {
		if f.types[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// sections returns what is to be shown in so many rows; 0: no limit.
func (f *follower) sections(lines int) []section {
	if lines <= 0 {
		lines = maxRows
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	sections := make([]section, len(f.Types))
	for i, name := range f.Types {
		sections[i].name = name
		if r := f.types[name]; r != nil {
			sections[i].s = r.s
			sections[i].rows, sections[i].more, sections[i].dropped = r.first(lines)
		}
	}
	return sections
}

// wait waits for the end: of the context, of For, of the connection, or after Count transmissions.
// Meanwhile it has do done, if there is something, which returns when its channel is closed.
func (f *follower) wait(ctx context.Context, do func(ended <-chan struct{}) error) error {
	var timeout <-chan time.Time
	if f.For > 0 {
		timer := time.NewTimer(f.For)
		defer timer.Stop()
		timeout = timer.C
	}
	ended := make(chan struct{})
	done := make(chan error, 1)
	if do != nil {
		go func() { done <- do(ended) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case <-timeout:
	case <-f.full:
		err = f.err
	case <-f.c.Done():
		err = f.lost()
	case err = <-done:
		return err
	}
	close(ended)
	if do != nil {
		select {
		case failed := <-done:
			if err == nil {
				err = failed
			}
		case <-time.After(settleTime):
			return errors.Join(err, errStuck)
		}
	}
	return err
}

// lost returns the error of a connection that has ended. The broker's goodbye is none, as the protocol
// has it, unless Count transmissions are waited for, which do not come any more.
func (f *follower) lost() error {
	select {
	case <-f.full: // just before
		return f.err
	default:
	}
	err := f.c.Err()
	if f.left = f.Count == 0 && errors.Is(err, client.ErrGoodbye); f.left {
		return nil
	}
	return err
}

func (f *follower) noteGoodbye() {
	if f.left {
		fmt.Fprintln(f.Notes, "correlator: the broker said goodbye")
	}
}

// endedBy returns nil if it was the context that ended something: whoever interrupts knows it.
func endedBy(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
