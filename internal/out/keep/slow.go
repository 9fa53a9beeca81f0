package keep

import (
	"cmp"
	"container/list"
	"fmt"
	"regexp"
	"strings"
	"time"

	"correlator/internal/host/share"
)

// This file is about slow transactions, which are kept when others are forgotten: their entries move to slices, and
// their accounts to a list, of their own.

// partOfSlow is which part of the memory they may take, of all owners together, with what they refer to: the others
// shall have room, too. When it is full, the oldest of the owner that has most are forgotten: so no owner can drive
// out those of another one that has less.
const partOfSlow = 4

// slowEntries is how many entries a slice of them has at most: they may refer to much more than they take, and so
// much is forgotten at a time.
const slowEntries = 64

// Rule says which transactions are slow: those of some services that took longer.
type Rule struct {
	service *regexp.Regexp
	above   time.Duration
}

// ParseRules parses rules, each a regular expression that the name of a service matches as a whole, and a duration:
// "shop > 500ms".
func ParseRules(texts []string) (rules []Rule, err error) {
	for _, text := range texts {
		at := max(strings.LastIndexByte(text, '>'), 0)
		service, above := strings.TrimSpace(text[:at]), strings.TrimSpace(text[min(at+1, len(text)):])
		if service == "" {
			return nil, fmt.Errorf(`%q is not SERVICE > DURATION, as in "shop > 500ms"`, text)
		}
		var r Rule
		if r.service, err = regexp.Compile(`^(?:` + service + `)$`); err != nil {
			return nil, fmt.Errorf("reading the name of services: %w", err)
		}
		if r.above, err = time.ParseDuration(above); err != nil || r.above <= 0 {
			return nil, fmt.Errorf(`%q: %q is not a duration above 0, as in "shop > 500ms"`, text, above)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// SlowStats is what became of slow transactions.
type SlowStats struct {
	Kept      int    `json:"kept"`      // now, when others as old are forgotten
	Forgotten uint64 `json:"forgotten"` // of those, for lack of room
	Bytes     int    `json:"bytes"`     // that they take, with what they refer to
}

// slowOnes are those of all owners.
type slowOnes struct {
	rules   []Rule
	moments *share.Budget[string] // by owner, beside those of others
}

// slowOwned are those of an owner.
type slowOwned struct {
	slices   []*timeSlice // of samples or of waits, each a part of one that was forgotten
	accounts list.List
	bytes    int // which are among those of the owner
}

// from returns from when on transactions of a service are slow; 0: none are.
func (s *slowOnes) from(service string) (from time.Duration) {
	for _, r := range s.rules {
		if r.service.MatchString(service) && (from == 0 || r.above < from) {
			from = r.above
		}
	}
	return from
}

// isSlow reports whether a transaction is kept when others are forgotten.
func (s *Store) isSlow(tx *transaction) bool {
	if tx.process.slowFrom == 0 || tx.slowGone {
		return false
	}
	first, last := tx.first, tx.last // that of its trace may be longer
	if a := tx.account; a != nil {
		first, last = min(first, a.first), max(last, a.last)
	}
	if of := s.span(tx, first, last); of != nil {
		first, last = of.start, of.end
	}
	return time.Duration(last-first) > tx.process.slowFrom
}

// growSlow counts memory of slow transactions, which that of the owner has, too.
func (s *Store) growSlow(o *owner, bytes int) {
	o.slow.bytes += bytes
	s.stats.Slow.Bytes += bytes
}

// slowRefs is how often slow transactions that are kept refer to something.
type slowRefs int32

// add adds 1 or -1. It returns the same for the first one, and for the last one, else 0.
func (r *slowRefs) add(by int) int {
	*r += slowRefs(by)
	if *r == 0 || by > 0 && *r == 1 {
		return by
	}
	return 0
}

// refer counts an entry or an account of a slow transaction that is kept: 1, or -1 when it is forgotten.
func (s *Store) refer(tx *transaction, by int) {
	n := tx.slow.add(by)
	s.stats.Slow.Kept += n
	if n < 0 {
		s.stats.Slow.Forgotten++
		tx.slowGone = true
	}
	s.growSlow(tx.process.owner, n*(transactionBytes+tx.attributes.Bytes())+
		tx.process.slow.add(by)*sizeOfProcess(tx.process.resource))
}

// referAll counts the entries of a slice of slow transactions.
func (s *Store) referAll(slice *timeSlice, by int) {
	for i := range slice.entries {
		s.referEntry(&slice.entries[i].entryKey, by)
	}
	for i := range slice.waits {
		of := slice.waits[i].cause
		s.referEntry(&slice.waits[i].entryKey, by)
		s.growSlow(slice.waits[i].transaction.process.owner, of.slow.add(by)*(causeBytes+of.textBytes()))
	}
}

func (s *Store) referEntry(e *entryKey, by int) {
	bytes := 0
	if n := e.stack.slow.add(by); n != 0 {
		bytes += n * (stackBytes + len(e.stack.frames)*pointerBytes)
		for _, f := range e.stack.frames {
			bytes += f.slow.add(by) * (sizeOfFrame(f.Frame) + sizeOfFunction(f.function))
		}
	}
	bytes += e.thread.slow.add(by) * (threadBytes + len(e.thread.name))
	s.growSlow(e.transaction.process.owner, bytes)
	s.refer(e.transaction, by)
}

// keepSlow moves what a slice that is forgotten has of slow transactions to slices that are kept, and returns what it
// has of others. The slice itself stays as it is: queries may read it.
func (s *Store) keepSlow(o *owner, slice *timeSlice, now time.Time) (others *timeSlice) {
	if len(s.slow.rules) == 0 {
		return slice
	}
	known := make(map[*transaction]bool)
	isSlow := func(tx *transaction) bool {
		slow, isKnown := known[tx]
		if !isKnown {
			slow = s.isSlow(tx)
			known[tx] = slow
		}
		return slow
	}
	var kept []*timeSlice
	last := func() *timeSlice { // of those that are kept, with room for an entry
		if n := len(kept); n > 0 && len(kept[n-1].entries)+len(kept[n-1].waits) < slowEntries {
			return kept[n-1]
		}
		made := &timeSlice{began: slice.began, first: slice.first}
		kept = append(kept, made)
		return made
	}
	others = &timeSlice{ended: slice.ended}
	places := make([]struct {
		slice *timeSlice // nil: it is none of a slow transaction
		entry int
	}, len(slice.entries)+len(slice.waits))
	for i, e := range slice.entries {
		to := others
		if isSlow(e.transaction) {
			to = last()
			places[i].slice, places[i].entry = to, len(to.entries)
		}
		to.entries = append(to.entries, e)
	}
	for i, e := range slice.waits {
		to := others
		if isSlow(e.transaction) {
			to = last()
			places[i].slice, places[i].entry = to, len(to.waits)
		}
		to.waits = append(to.waits, e)
	}
	if len(kept) == 0 {
		return slice
	}
	for _, m := range slice.moments {
		switch place := places[m.entry]; {
		case place.slice == nil:
		case s.slow.moments.Take(o.name, 1):
			m.entry = uint32(place.entry)
			place.slice.moments = append(place.slice.moments, m)
		default:
			s.stats.Untimed += uint64(m.count)
		}
	}
	for _, made := range kept {
		s.grow(o, made.size())
		s.end(o, made, cmp.Or(slice.ended, s.clock.Ns(now)))
		s.growSlow(o, made.size())
		s.referAll(made, 1)
	}
	o.slow.slices = append(o.slow.slices, kept...)
	return others
}

// dropAccount forgets an account, unless that is one of a slow transaction, and not yet among those that are kept.
func (s *Store) dropAccount(a *account, why reason, now time.Time) {
	o := a.transaction.process.owner
	if a.list == &o.slow.accounts || !s.isSlow(a.transaction) {
		s.forgetAccount(a, why, now)
		return
	}
	a.list.Remove(a.place)
	a.list, a.place = &o.slow.accounts, o.slow.accounts.PushBack(a)
	s.growSlow(o, accountBytes)
	s.refer(a.transaction, 1)
	s.evictSlow(now)
}

// evictSlow makes room when slow transactions take more than their part of the memory.
func (s *Store) evictSlow(now time.Time) {
	for s.stats.Slow.Bytes > s.limit/partOfSlow {
		var most *owner
		for _, o := range s.owners {
			if most == nil || o.slow.bytes > most.slow.bytes {
				most = o
			}
		}
		s.forgetSlow(most, now)
	}
}

// forgetSlow forgets the oldest slice of an owner's slow transactions, or account of one that has nothing else: as
// others, if it is as old as these become.
func (s *Store) forgetSlow(o *owner, now time.Time) {
	why, samples, waits := goneEvicted, &s.stats.Evicted, &s.stats.Waits.Evicted
	setReason := func(at int64) {
		if at <= s.clock.Ns(now)-int64(s.period) {
			why, samples, waits = goneExpired, &s.stats.Expired, &s.stats.Waits.Expired
		}
	}
	of := o.slow.slices
	if first := o.slow.accounts.Front(); first != nil {
		if a := first.Value.(*account); len(of) == 0 || a.transaction.slow == 1 && a.at <= of[0].ended {
			setReason(a.at)
			s.forgetAccount(a, why, now)
			return
		}
	}
	if setReason(of[0].ended); len(of[0].waits) > 0 {
		samples = waits
	}
	*samples += s.forgetOldest(o, &o.slow.slices, why, now)
}
