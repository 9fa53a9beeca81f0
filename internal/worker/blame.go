package worker

import (
	"sync"
	"time"
)

const (
	// A process because of which a worker was killed that has not ended gets no other before. For all
	// processes of a user nothing is done any more while there are maxHungOfUser such workers. At
	// maxHung in all, that is so for every user who has caused one; at twice that also for those who
	// were never served before, and at four times for everybody.
	maxHungOfUser = 8
	maxHung       = 32

	// suspectTime is for how long a user is a suspect after a request has timed out.
	suspectTime = 10 * time.Minute

	// maxServed is how many users are known to have been served, and how many to be suspects:
	// containers come and go. When there are more, all are forgotten.
	maxServed = 8192
)

// User is whose processes share bounds: a container, or a user outside of containers.
type User string

// Owner is the process that a request concerns, 0 for several, and its user. The zero Owner is nobody.
type Owner struct {
	PID  int
	User User
}

// Blame is the verdict about who makes workers of one kind hang. It is safe for concurrent use; the zero value
// blames nobody.
type Blame struct {
	mu         sync.Mutex
	hung       int           // killed workers that have not ended
	hungOf     map[Owner]int // by what caused them, without nobody
	hungOfUser map[User]int
	late       map[User]time.Time // when a request timed out last
	served     map[User]struct{}
}

// Late makes a user a suspect for some time: a request timed out.
func (b *Blame) Late(user User) {
	b.mu.Lock()
	defer b.mu.Unlock()
	noteUser(&b.late, user, time.Now())
}

// noteUser notes something of a user. Where there is no room for it, the others are forgotten.
func noteUser[T any](users *map[User]T, user User, what T) {
	if _, known := (*users)[user]; !known && len(*users) >= maxServed {
		clear(*users)
	}
	if *users == nil {
		*users = make(map[User]T)
	}
	(*users)[user] = what
}

// IsSuspect reports whether a request of a user has timed out lately.
func (b *Blame) IsSuspect(user User) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	late, found := b.late[user]
	if found && time.Since(late) >= suspectTime {
		delete(b.late, user)
		return false
	}
	return found
}

// Watch counts a worker that was killed as one that hangs because of an owner until it has ended. Then
// the channel is closed.
func (b *Blame) Watch(process *Process, owner Owner) <-chan struct{} {
	b.add(owner, 1)
	ended := make(chan struct{})
	go func() {
		<-process.Ended()
		b.add(owner, -1)
		close(ended)
	}()
	return ended
}

func (b *Blame) add(owner Owner, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hung += n
	if owner == (Owner{}) {
		return
	}
	if b.hungOf == nil {
		b.hungOf, b.hungOfUser = make(map[Owner]int), make(map[User]int)
	}
	if b.hungOf[owner] += n; b.hungOf[owner] == 0 {
		delete(b.hungOf, owner)
	}
	if b.hungOfUser[owner.User] += n; b.hungOfUser[owner.User] == 0 {
		delete(b.hungOfUser, owner.User)
	}
}

// Hung returns how many workers were killed and have not ended.
func (b *Blame) Hung() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hung
}

// HungOf returns how many of them a user's processes have caused.
func (b *Blame) HungOf(user User) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hungOfUser[user]
}

// Served notes that a user was served: such users are refused later than others.
func (b *Blame) Served(user User) {
	b.mu.Lock()
	defer b.mu.Unlock()
	noteUser(&b.served, user, struct{}{})
}

// Refusal returns why a request is not to be served while workers hang, ErrHung or ErrBusy, or nil.
func (b *Blame) Refusal(owner Owner) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if owner.PID != 0 && b.hungOf[owner] > 0 {
		return ErrHung
	}
	ofUser := b.hungOfUser[owner.User]
	_, served := b.served[owner.User]
	if ofUser >= maxHungOfUser || ofUser > 0 && b.hung >= maxHung || !served && b.hung >= 2*maxHung ||
		b.hung >= 4*maxHung {
		return ErrBusy
	}
	return nil
}
