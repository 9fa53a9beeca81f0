package sampling

import (
	"time"

	"correlator/internal/worker"
)

const (
	// A user's programs may use the engine, which serves one request at a time, for userTime at once,
	// and for a fifth of the time in the long run, while there are programs of other users. What counts
	// is how much longer than turnTime each request took, less the time in which there was no CPU for it:
	// the users' requests are served in turn. So that is for users whose processes have it wait: a JVM
	// takes 0.1 s, the first one 0.5 s, naming stacks no more than turnTime. Nobody is held back for
	// longer than 100 s.
	userTime  = 10 * time.Second
	userShare = 5
	turnTime  = 50 * time.Millisecond
	maxSpent  = 3 * userTime
)

// engineTime divides the engine's time among the users whose programs are sampled. It is not safe for
// concurrent use.
type engineTime struct {
	programs map[worker.User]int // how many of a user's are sampled
	spent    map[worker.User]spentTime
}

// spentTime is what a user has spent, less what the user has got since.
type spentTime struct {
	time time.Duration
	at   time.Time
}

// left returns what is left of it.
func (s spentTime) left(now time.Time) time.Duration { return max(0, s.time-now.Sub(s.at)/userShare) }

func newEngineTime() *engineTime {
	return &engineTime{programs: make(map[worker.User]int), spent: make(map[worker.User]spentTime)}
}

// add adds a program of a user.
func (e *engineTime) add(user worker.User) { e.programs[user]++ }

// remove removes one that was added. What the user has spent is not forgotten with it.
func (e *engineTime) remove(user worker.User) {
	if e.programs[user]--; e.programs[user] == 0 {
		delete(e.programs, user)
	}
}

// free returns from when on a user's programs may use the engine; the zero time if they may now.
func (e *engineTime) free(user worker.User, now time.Time) time.Time {
	if len(e.programs) < 2 {
		return time.Time{}
	}
	if over := e.spent[user].left(now) - userTime; over > 0 {
		return now.Add(over * userShare)
	}
	return time.Time{}
}

// charge adds to what a user has spent.
func (e *engineTime) charge(user worker.User, took time.Duration, now time.Time) {
	for other, spent := range e.spent {
		if spent.left(now) == 0 {
			delete(e.spent, other)
		}
	}
	if took > turnTime {
		e.spent[user] = spentTime{min(e.spent[user].left(now)+took-turnTime, maxSpent), now}
	}
}
