package keep

import (
	"cmp"
	"hash/maphash"
	"time"

	"correlator/profile"
)

// This file is about what is forgotten, when, and what is known of it then.

// Why samples were not kept.
const (
	lostNoStack  = iota // they had no stack
	lostTooLarge        // their stack is larger than a sixteenth of the memory
	numLost
)

var lostNames = [numLost]string{lostNoStack: "no_stack", lostTooLarge: "too_large"}

// lose counts samples, or waits, that are not kept.
func (s *Store) lose(sample *profile.Sample, id transactionID, lost int, now time.Time) {
	if sample.Wait != nil { // the account has their time
		s.stats.Waits.Lost[lost] += sample.Count
		return
	}
	s.stats.Lost[lost] += sample.Count
	s.gone.add(id, []reason{lostNoStack: goneNoStack, lostTooLarge: goneTooLarge}[lost], s.clock.Ns(now))
}

// evict makes room: of the owner that has most, the oldest slice is forgotten.
func (s *Store) evict(now time.Time) {
	for s.bytes > s.room() {
		var most *owner
		for _, o := range s.owners {
			if o.hasOthers() && (most == nil || o.bytes-o.slow.bytes > most.bytes-most.slow.bytes) {
				most = o
			}
		}
		if most == nil {
			return // nothing is left but slow transactions, which have no more than their part
		}
		switch {
		case len(most.waits.slices) > 0 && (most.waits.bytes > most.bytes/2 || len(most.slices) == 0):
			n := s.forgetOldest(most, &most.waits.slices, goneEvicted, now) // which may count others meanwhile
			s.stats.Waits.Evicted += n
		case most.accounts.bytes() > most.bytes/2 || len(most.slices) == 0:
			s.evictAccounts(most, now)
		default:
			n := s.forgetOldest(most, &most.slices, goneEvicted, now)
			s.stats.Evicted += n
		}
	}
}

// hasOthers reports whether the owner has something beside slow transactions that are kept.
func (o *owner) hasOthers() bool {
	return len(o.slices) > 0 || len(o.waits.slices) > 0 || o.accounts.len() > 0
}

// evictAccounts makes room by accounts of an owner: some at a time, since whoever adds one waits for that.
func (s *Store) evictAccounts(o *owner, now time.Time) {
	for n := 0; n < step && o.accounts.len() > 0 && s.bytes > s.room()-s.limit/64; n++ {
		from := &o.accounts.fast
		if from.Len() == 0 {
			from = &o.accounts.slow
		}
		s.dropAccount(from.Front().Value.(*account), goneEvicted, now)
	}
}

// Expire forgets what is too old, and frees the memory of what was forgotten. The lock is released between
// two slices, and a step of a table.
func (s *Store) Expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Look(now)
	oldest, n := s.clock.Ns(now.Add(-s.period)), 0
	for _, o := range s.owners { // which may come and go meanwhile, as slices may be evicted
		s.expireSlices(o, &o.slices, &s.stats.Expired, oldest, now)
		s.expireSlices(o, &o.waits.slices, &s.stats.Waits.Expired, oldest, now)
		s.expireAccounts(o, oldest, now)
		if n++; n%step == 0 {
			s.pause()
		}
	}
	s.shrink()
}

// expireSlices forgets slices of samples, or of waits, that are too old, and counts these as expired.
func (s *Store) expireSlices(o *owner, of *[]*timeSlice, expired *uint64, oldest int64, now time.Time) {
	if n := len(*of); n > 0 && s.clock.Ns(now)-(*of)[n-1].began >= int64(s.period/slicesOfPeriod) {
		s.end(o, (*of)[n-1], s.clock.Ns(now))
	}
	for len(*of) > 0 && (*of)[0].ended != 0 && (*of)[0].ended <= oldest {
		n := s.forgetOldest(o, of, goneExpired, now) // which may count others meanwhile
		*expired += n
		s.pause()
	}
}

// shrink makes tables small again, unless there is a query, which looks at them in pauses of its own: then
// the next time. The caller holds the lock, which is released in between.
func (s *Store) shrink() {
	if !s.querying.TryLock() {
		return
	}
	defer s.querying.Unlock()
	for len(s.shrunk) > 0 {
		p := s.shrunk[len(s.shrunk)-1]
		s.shrunk = s.shrunk[:len(s.shrunk)-1]
		p.shrunk = false
		p.transactions.shrink(s.pause)
		p.stacks.shrink(s.pause)
		p.frames.shrink(s.pause)
		p.threads.shrink(s.pause)
		p.causes.shrink(s.pause)
		p.traces.shrink(s.pause)
		s.pause()
	}
	s.shrunk = nil
}

// pause lets Add go first. The caller holds the lock.
func (s *Store) pause() {
	s.mu.Unlock()
	if s.paused != nil {
		s.paused()
	}
	s.mu.Lock()
}

// forgetOldest forgets the oldest slice of an owner, of samples or of waits, but for what it has of slow transactions
// unless it is a slice of these. It returns how many samples or waits it has forgotten.
func (s *Store) forgetOldest(o *owner, of *[]*timeSlice, why reason, now time.Time) (samples uint64) {
	slice := (*of)[0]
	(*of)[0] = nil
	*of = (*of)[1:]
	s.grow(o, -slice.size())
	if of == &o.waits.slices {
		o.waits.bytes -= slice.bytes
	}
	if of == &o.slow.slices {
		s.growSlow(o, -slice.size())
		s.slow.moments.Give(o.name, len(slice.moments))
		s.referAll(slice, -1)
	} else {
		s.moments.Give(o.name, len(slice.moments))
		slice = s.keepSlow(o, slice, now)
		defer s.evictSlow(now)
	}
	if len(slice.entries) > 0 { // else the samples are all there
		s.forgotten = max(s.forgotten, cmp.Or(slice.ended, s.clock.Ns(now)))
	}
	for i := range slice.entries {
		e := &slice.entries[i]
		samples += e.count
		e.transaction.samples -= e.count
		e.transaction.earlier += e.count
		s.forgetEntry(&e.entryKey, why, now)
	}
	s.stats.Samples -= samples
	samples += s.forgetWaits(o, slice, why, now)
	if len(o.processes) == 0 && s.owners[o.name] == o {
		s.grow(o, -ownerBytes)
		delete(s.owners, o.name)
	}
	return samples
}

// forgetEntry forgets all that no other entry has.
func (s *Store) forgetEntry(e *entryKey, why reason, now time.Time) {
	tx, st, th := e.transaction, e.stack, e.thread
	p := tx.process
	if tx.entries--; tx.entries == 0 {
		s.forgetTransaction(tx, why, now)
	}
	if st.entries--; st.entries == 0 {
		s.forgetStack(st)
	}
	if th.entries--; th.entries == 0 {
		p.threads.delete(th.threadID)
		s.grow(p.owner, -threadBytes-len(th.name))
	}
	s.tidy(p)
}

// tidy forgets a process, and its owner, that have nothing any more.
func (s *Store) tidy(p *process) {
	if p.transactions.len() == 0 { // it has no entries, so nothing else either
		s.grow(p.owner, -sizeOfProcess(p.resource))
		delete(p.owner.processes, p.resource)
		if o := p.owner; len(o.processes) == 0 && len(o.slices) == 0 && len(o.waits.slices) == 0 {
			s.grow(o, -ownerBytes)
			delete(s.owners, o.name)
		}
	} else if !p.shrunk {
		p.shrunk = true
		s.shrunk = append(s.shrunk, p)
	}
}

// forgetTransaction forgets a transaction. No tombstone is left of one that had no samples: there may be very many.
func (s *Store) forgetTransaction(tx *transaction, why reason, now time.Time) {
	if tx.earlier > 0 {
		s.gone.add(tx.id, why, s.clock.Ns(now))
	}
	s.dropTransaction(tx)
}

func (s *Store) dropTransaction(tx *transaction) {
	p := tx.process
	p.transactions.delete(tx.id)
	if tx.context == profile.OTelContext && tx.id.transaction != [8]byte{} {
		if n := p.traces.get(tx.id.trace); n > 1 {
			p.traces.put(tx.id.trace, n-1)
		} else {
			p.traces.delete(tx.id.trace)
		}
	}
	s.stats.Transactions--
	s.grow(tx.process.owner, -transactionBytes-tx.attributes.Bytes())
}

func (s *Store) forgetStack(st *stack) {
	p := st.process
	for _, f := range st.frames {
		if f.stacks--; f.stacks == 0 {
			p.frames.delete(f.Frame)
			s.grow(p.owner, -sizeOfFrame(f.Frame)-sizeOfFunction(f.function))
		}
	}
	p.stacks.delete(st.id)
	s.grow(p.owner, -stackBytes-len(st.frames)*pointerBytes)
	st.named = true // which takes it from those without names
}

// reason is why nothing is there of a transaction.
type reason uint8

const (
	goneExpired  reason = iota + 1 // it is too long ago
	goneEvicted                    // there was no room for it
	goneNoStack                    // its samples had no stack
	goneTooLarge                   // its stack was too large
	numReasons
)

var goneNames = map[reason]string{
	goneExpired: "expired", goneEvicted: "evicted", goneNoStack: "no_stack", goneTooLarge: "too_large",
}

// tombstones remember why transactions are not there: of two with the same slot, the later one, since the
// number is fixed. They are found by the ids in full.
type tombstones struct {
	seed  maphash.Seed
	slots []tombstone
}

type tombstone struct {
	check  uint32 // a part of the hash of the id; 0 and why 0: none
	at     uint32 // when it was forgotten, in seconds
	reason reason
	kind   uint8 // of the id
}

const (
	tombstoneBytes   = 12
	partOfTombstones = 64 // of the memory
	traceTombstone   = 1
	txTombstone      = 2
)

func newTombstones(limit int) tombstones {
	return tombstones{maphash.MakeSeed(), make([]tombstone, max(limit/partOfTombstones/tombstoneBytes, 1))}
}

func (t *tombstones) bytes() int { return len(t.slots) * tombstoneBytes }

func (t *tombstones) add(id transactionID, why reason, ns int64) {
	t.put(traceTombstone, id.trace[:], why, ns)
	if id.transaction != [8]byte{} {
		t.put(txTombstone, id.transaction[:], why, ns)
	}
}

func (t *tombstones) put(kind uint8, id []byte, why reason, ns int64) {
	i, check := t.slot(kind, id)
	old := t.slots[i]
	kept := old.reason == goneExpired || old.reason == goneEvicted
	if kept && old.check == check && old.kind == kind && why != goneExpired && why != goneEvicted {
		return // that it was kept once is more than that some of its samples could not be
	}
	t.slots[i] = tombstone{check, uint32(ns / int64(time.Second)), why, kind}
}

func (t *tombstones) slot(kind uint8, id []byte) (i int, check uint32) {
	hash := maphash.Bytes(t.seed, id)
	return int((hash + uint64(kind)) % uint64(len(t.slots))), uint32(hash >> 32)
}

// find returns why a trace or transaction is not there, and since when; 0: that is not known.
func (t *tombstones) find(id []byte) (why reason, ns int64) {
	kind := uint8(txTombstone)
	if len(id) == len(transactionID{}.trace) {
		kind = traceTombstone
	}
	i, check := t.slot(kind, id)
	if found := t.slots[i]; found.reason != 0 && found.check == check && found.kind == kind {
		return found.reason, int64(found.at) * int64(time.Second)
	}
	return 0, 0
}
