package process

import (
	"errors"
	"maps"
	"sync"

	"correlator/procscan"
)

// Claims records which process something belongs to that several show. One that was forked, and has
// not executed another program, has a copy of all that its parent published: it is no agent of its
// own, and what is sent to it, or of it, would be taken for the parent's. So both what is published
// and the socket that it leads to belong to one process: the one that started first. The zero value
// is ready for use.
type Claims[K comparable] struct {
	mu      sync.Mutex
	holders map[K]Claimant
	most    int // holders since their map was made
}

// minShrink is how many holders a map must have had for the memory of a key to matter: Original has
// a hundred bytes and more.
const minShrink = 1024

// Claimant is a process that claims something, a comparable value. Its methods must not block.
type Claimant interface {
	Identity() procscan.ProcessID
	// MarkDirty is called when an older process has taken over what was held: it must be probed.
	MarkDirty()
}

// Claim reports whether a process gets what it claims.
func (c *Claims[K]) Claim(key K, by Claimant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	holder := c.holders[key]
	if holder != nil && holder != by {
		if isOlder(holder.Identity(), by.Identity()) {
			return false
		}
		holder.MarkDirty()
	}
	if c.holders == nil {
		c.holders = make(map[K]Claimant)
	}
	c.holders[key] = by
	c.most = max(c.most, len(c.holders))
	return true
}

// Holds reports whether a process has what it claimed.
func (c *Claims[K]) Holds(key K, by Claimant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holders[key] == by
}

// Release gives it back, if the process has it.
func (c *Claims[K]) Release(key K, by Claimant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders[key] != by {
		return
	}
	delete(c.holders, key)
	if now := len(c.holders); c.most >= minShrink && now < c.most/4 { // a map alone does not shrink
		holders := make(map[K]Claimant, now)
		maps.Copy(holders, c.holders)
		c.holders, c.most = holders, now
	}
}

// Len returns how many are held.
func (c *Claims[K]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holders)
}

// isOlder reports whether one process started before another.
func isOlder(one, other procscan.ProcessID) bool {
	if one.StartTime != other.StartTime {
		return one.StartTime < other.StartTime
	}
	return one.PID < other.PID
}

// Ownership is what one process claims of what it publishes. It is used by one goroutine at a time.
type Ownership struct {
	claims  *Claims[Original]
	by      Claimant
	claimed Original // what it has published and is no copy
	copied  Original // what it has published and is one
}

// NewOwnership returns that of a process that has published nothing yet.
func NewOwnership(claims *Claims[Original], by Claimant) Ownership {
	return Ownership{claims: claims, by: by}
}

// IsOwn reports, after a probe that has found something changed or not, whether what is published is
// the process's own; with an error that is not known. A copy stays one, also when the original has
// ended: the socket may be another's then.
func (o *Ownership) IsOwn(t *Target, changed bool) (bool, error) {
	if !changed && o.claims.Holds(o.claimed, o.by) {
		return true, nil
	}
	original, err := t.original()
	if err != nil {
		return false, err
	}
	if original != o.claimed {
		o.GiveUp()
	}
	if original == o.copied || !o.claims.Claim(original, o.by) {
		o.copied = original
		return false, nil
	}
	o.claimed = original
	return true, nil
}

// GiveUp releases what was claimed: the process does not publish it any more.
func (o *Ownership) GiveUp() {
	o.claims.Release(o.claimed, o.by)
	o.claimed = Original{}
}

// Forget is GiveUp for a process that runs another program: whether it had a copy does not matter
// any more.
func (o *Ownership) Forget() {
	o.GiveUp()
	o.copied = Original{}
}

// ErrCopy: a process that was forked shows what its parent published. Its reason is
// ReasonSocketShared.
var ErrCopy = errors.New("what is published is a copy of another process's")
