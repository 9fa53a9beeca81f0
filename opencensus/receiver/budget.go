package receiver

import (
	"sync"

	"correlator/internal/host/share"
)

// budget is the memory for messages that are not complete or wait to be processed, in bytes, shared by
// the users that send them.
type budget struct {
	mu    sync.Mutex
	users *share.Budget[uint32]
}

func newBudget(bytes int64) *budget { return &budget{users: share.NewBudget[uint32](int(bytes))} }

// account returns that of a user.
func (b *budget) account(uid uint32) account { return account{b, uid} }

// used returns what all users have.
func (b *budget) used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.users.Used()
}

// account is a user's part of a budget.
type account struct {
	*budget
	uid uint32
}

// Take takes memory if the user has no more than is left free then, and reports whether it did.
func (a account) Take(bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.users.Take(a.uid, bytes)
}

// Give gives memory back.
func (a account) Give(bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users.Give(a.uid, bytes)
}
