package stats

import (
	"slices"
	"time"
)

// Conflict is a view that was registered with another definition than it has.
type Conflict struct {
	View          string
	Kept, Refused string // the definitions, for people
	UID           uint32 // who has registered the one that was refused
}

const (
	// conflictInterval is that of one conflict of a user. The counts have the others.
	conflictInterval = time.Minute
	// maxConflicts limits those of all users in an interval.
	maxConflicts = 60
	// maxConflictsKnown limits how many definitions a view knows of that were reported.
	maxConflictsKnown = 16
)

// conflicts limits what is reported.
type conflicts struct {
	since time.Time           // begin of an interval
	users map[uint32]struct{} // that had one since then
}

// allow reports whether a user may have a conflict reported.
func (c *conflicts) allow(uid uint32, now time.Time) bool {
	if now.Sub(c.since) >= conflictInterval {
		c.since = now
		clear(c.users)
	}
	_, had := c.users[uid]
	return !had && len(c.users) < maxConflicts
}

// report reports a conflict with the definition of the Update, unless the same has been reported
// before, or the user has had another one not long ago: what many messages can do must cost little,
// and no more lines of a log than somebody reads.
func (u *Update) report(known *view) {
	s := u.s
	if len(known.conflicts) == maxConflictsKnown || !s.conflicts.allow(u.uid, u.now) {
		return
	}
	hash := u.definition.hash(s.seed)
	if slices.Contains(known.conflicts, hash) {
		return
	}
	known.conflicts = append(known.conflicts, hash)
	s.conflicts.users[u.uid] = struct{}{}
	u.conflicts = append(u.conflicts, Conflict{
		View: known.name, Kept: known.definition.String(), Refused: u.definition.String(), UID: u.uid,
	})
}
