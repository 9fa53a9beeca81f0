package live

import (
	"context"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"correlator/internal/names/naming"
	"correlator/profile"
)

const (
	// namesUnused is after what time without somebody who wants stacks the namer is closed. What it has
	// read by then is of use to the next one who looks.
	namesUnused = 3 * time.Minute

	// namesRetry is after what time a namer that could not be opened is tried again.
	namesRetry = time.Minute
)

// names are the names of frames, which are read while stacks are wanted. Its namer is nil when they are
// not: frames have the names that they come with.
type names struct {
	namer atomic.Pointer[naming.Namer]
	open  func() (*naming.Namer, error)
	log   *zap.Logger

	mu     sync.Mutex // of opening and closing
	unused *time.Timer
	retry  time.Time // not opened again before
	failed bool      // was logged
	closed bool
}

func (n *names) init(l *Live) {
	n.log = l.log
	n.open = func() (*naming.Namer, error) {
		return naming.Open(l.about.ProcRoot, &l.counters.naming, l.tracker.Named)
	}
	if l.about.SamplesPerSecond == 0 {
		n.closed = true // there are no frames
	}
}

// want prepares to name frames. It is called as long as stacks are wanted, each time that they are
// published.
func (n *names) want() { n.wantAt(time.Now()) }

func (n *names) wantAt(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed || now.Before(n.retry):
	case n.namer.Load() != nil:
		n.unused.Reset(namesUnused)
	default:
		namer, err := n.open()
		if err != nil {
			n.retry = now.Add(namesRetry)
			if !n.failed {
				n.failed = true
				n.log.Warn("the live view shows addresses instead of names of functions", zap.Error(err))
			}
			return
		}
		n.namer.Store(namer)
		n.unused = time.AfterFunc(namesUnused, n.expire)
	}
}

// expire closes the namer that nobody has wanted for a while.
func (n *names) expire() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // samples that wait for names have nobody who wants them
	n.end(ctx, false)
}

// close closes the namer for good, and waits for names of samples until ctx ends.
func (n *names) close(ctx context.Context) { n.end(ctx, true) }

func (n *names) end(ctx context.Context, forGood bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = n.closed || forGood
	if namer := n.namer.Swap(nil); namer != nil {
		n.unused.Stop()
		namer.Close(ctx)
	}
}

// of returns what a frame of a process is shown as.
func (n *names) of(resource *profile.Resource, f profile.Frame) (name string, known bool) {
	if namer := n.namer.Load(); f.Name() == "" && namer != nil {
		f = namer.Name(resource, f)
	}
	if name := f.Name(); name != "" {
		return name, true
	}
	if f.File != nil && f.File.Path != "" {
		return fmt.Sprintf("%s+%#x", path.Base(f.File.Path), f.Address), false
	}
	return fmt.Sprintf("%#x", f.Address), false
}
