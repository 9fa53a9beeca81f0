package lifecycle

import "context"

// maxIdleHands is how many goroutines wait for the next function: that keep a stack.
const maxIdleHands = 4

// hands are goroutines on which others have functions called that take much stack, and are idle for nearly all of
// their time: there are thousands of these, and each would keep several KB of stack that it has grown to, or grow
// it again each time after the garbage collector has taken it away.
type hands struct {
	calls chan call
	idle  chan struct{} // has a token for each that waits
	ctx   context.Context
}

type call struct {
	do    func()
	ended chan<- struct{}
}

// newHands returns hands that do not wait for functions after the end of a context.
func newHands(ctx context.Context) *hands {
	return &hands{make(chan call), make(chan struct{}, maxIdleHands), ctx}
}

// do calls a function on another goroutine, and returns when that has returned. ended is a channel of the caller's,
// with room for one token.
func (h *hands) do(do func(), ended chan struct{}) {
	c := call{do, ended}
	select {
	case h.calls <- c:
	default:
		go h.run(c)
	}
	<-ended
}

// run calls functions until enough others wait for the next.
func (h *hands) run(c call) {
	for {
		c.do()
		c.ended <- struct{}{}
		select {
		case h.idle <- struct{}{}:
		default:
			return
		}
		select {
		case c = <-h.calls:
			<-h.idle
		case <-h.ctx.Done():
			return
		}
	}
}
