package receiver

import "sync"

// budget is the memory for messages that are not complete or wait to be processed, shared by the
// users that send them.
type budget struct {
	mu    sync.Mutex
	free  int64
	users map[uint32]*share // of those with connections, or memory
}

// share is what a user has of a budget.
type share struct {
	*budget
	uid   uint32
	conns int   // guarded by budget.mu
	held  int64 // as well

	lines [numLanes]line // each guarded by lane.mu
}

func newBudget(bytes int64) *budget {
	return &budget{free: bytes, users: make(map[uint32]*share)}
}

// open returns the share of a user, for a connection. The caller must close it once.
func (b *budget) open(uid uint32) *share {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.users[uid]
	if s == nil {
		s = &share{budget: b, uid: uid}
		b.users[uid] = s
	}
	s.conns++
	return s
}

// close is the counterpart of open.
func (s *share) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
	s.forget()
}

// Take takes memory if the user has no more than is left free then, and reports whether it did. So
// one user gets a half of everything at most, a second one a half of the rest, and there is always
// some for a further one.
func (s *share) Take(bytes int) bool {
	n := int64(bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held+n > s.free-n {
		return false
	}
	s.held += n
	s.free -= n
	return true
}

// Give gives memory back, also after close.
func (s *share) Give(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= int64(bytes)
	s.free += int64(bytes)
	s.forget()
}

// forget forgets a user that is gone. budget.mu is held.
func (s *share) forget() {
	if s.conns == 0 && s.held == 0 {
		delete(s.users, s.uid)
	}
}

// left returns what is free.
func (b *budget) left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}
