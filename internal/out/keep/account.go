package keep

import (
	"container/list"
	"time"
	"unsafe"

	"correlator/profile"
)

const (
	// partOfAccounts is which part of the memory the accounts of an owner may take, of which slow transactions
	// have one half and the others one half: most transactions are short, and neither slow ones nor samples are
	// to make room for them.
	partOfAccounts = 4

	// slow is how long a slow transaction is.
	slow = 100 * time.Millisecond

	// accountBytes is an account with its place in a list.
	accountBytes = int(unsafe.Sizeof(account{})+unsafe.Sizeof(list.Element{})) + pointerBytes

	// accountedBytes is one with its transaction, which may have nothing else.
	accountedBytes = accountBytes + transactionBytes
)

// accounts are those of an owner, in each list the one that was added to longest ago first: of transactions that
// are slow, and of others.
type accounts struct {
	slow, fast list.List
}

func (a *accounts) len() int { return a.slow.Len() + a.fast.Len() }

func (a *accounts) bytes() int { return a.len() * accountedBytes }

// oldest returns the account that was added to longest ago, of those that there must be.
func (a *accounts) oldest() *account {
	slow, fast := a.slow.Front(), a.fast.Front()
	if slow == nil || fast != nil && fast.Value.(*account).at < slow.Value.(*account).at {
		return fast.Value.(*account)
	}
	return slow.Value.(*account)
}

// account is what the threads of a transaction did.
type account struct {
	transaction *transaction
	list        *list.List
	place       *list.Element // in list
	at          int64         // when it was added to last, in ns
	first, last int64         // of the accounts, in ns
	partial     bool          // there was one before, which was forgotten
	times       profile.Times
}

// isSlow reports whether the transaction is slow.
func (a *account) isSlow() bool { return time.Duration(a.last-a.first) >= slow }

// AddAccount keeps what a thread did in a transaction. The account stays the caller's.
func (s *Store) AddAccount(a *profile.Account, now time.Time) {
	if a.Resource == nil || a.TraceID == [16]byte{} {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Look(now)
	p := s.process(a.Resource)
	id, first, last := transactionID{a.TraceID, a.TransactionID}, s.clock.Ns(a.First), s.clock.Ns(a.Last)
	tx := p.transactions.get(id)
	if tx == nil {
		tx = s.newTransaction(p, id, a.Context)
	}
	of := &p.owner.accounts
	if tx.account == nil {
		tx.account = &account{transaction: tx, first: first, last: last, list: &of.fast, partial: tx.forgotten}
		tx.account.place = of.fast.PushBack(tx.account)
		tx.entries++
		s.stats.Accounts++
		s.grow(p.owner, accountBytes)
	}
	kept := tx.account
	kept.at = s.clock.Ns(now)
	kept.times.Add(&a.Times)
	kept.first, kept.last = min(kept.first, first), max(kept.last, last)
	if kept.list == &of.fast && kept.isSlow() {
		of.fast.Remove(kept.place)
		kept.list, kept.place = &of.slow, of.slow.PushBack(kept)
	}
	kept.list.MoveToBack(kept.place)
	// Those of slow transactions that are kept have a bound of their own.
	for list := kept.list; list != &p.owner.slow.accounts && list.Len()*accountedBytes > s.limit/partOfAccounts/2; {
		s.dropAccount(list.Front().Value.(*account), goneEvicted, now)
	}
	s.evict(now)
}

// ofTrace returns what the account of a transaction without one may be in: that of its trace. The context of
// OpenTelemetry names the trace and the span; which transaction that is in, only attributes say, and the
// kernel accounts without them.
func (tx *transaction) ofTrace() *transaction {
	if tx.context != profile.OTelContext || tx.id.transaction == [8]byte{} {
		return nil
	}
	return tx.process.transactions.get(transactionID{trace: tx.id.trace})
}

// isOfOthers reports whether all that there is of a transaction is the account of a trace, which is shown with
// transactions of the trace.
func (tx *transaction) isOfOthers() bool {
	return tx.samples == 0 && tx.id.transaction == [8]byte{} && tx.process.traces.get(tx.id.trace) > 0
}

// accounted returns the account that a transaction has, or is in; nil: none.
func (tx *transaction) accounted() (a *account, wholeTrace bool) {
	if tx.account != nil {
		return tx.account, false
	}
	if trace := tx.ofTrace(); trace != nil && trace.account != nil {
		return trace.account, true
	}
	return nil, false
}

// copyAccount returns what is known of the transaction's threads. The caller holds the lock.
func (s *Store) copyAccount(tx *transaction) *Account {
	a, wholeTrace := tx.accounted()
	if a == nil {
		return nil
	}
	made := &Account{First: s.clock.Time(a.first), Last: s.clock.Time(a.last), WholeTrace: wholeTrace,
		Partial: a.partial, Times: make(map[profile.ThreadState]profile.StateTimes)}
	for state, of := range a.times {
		if of.Count > 0 {
			made.Times[profile.ThreadState(state)] = of
		}
	}
	return made
}

// forgetAccount forgets an account, and its transaction if that has nothing else. No tombstone is left of one that
// was short: there may be very many.
func (s *Store) forgetAccount(a *account, why reason, now time.Time) {
	tx := a.transaction
	a.list.Remove(a.place)
	if a.list == &tx.process.owner.slow.accounts {
		s.growSlow(tx.process.owner, -accountBytes)
		s.refer(tx, -1)
	}
	s.grow(tx.process.owner, -accountBytes)
	s.stats.Accounts--
	s.stats.AccountsForgotten[why]++
	s.forgotten = max(s.forgotten, a.at)
	tx.account, tx.forgotten = nil, true
	if tx.entries--; tx.entries == 0 {
		s.dropTransaction(tx)
		if a.isSlow() {
			s.gone.add(tx.id, why, s.clock.Ns(now))
		}
	}
	s.tidy(tx.process)
}

// expireAccounts forgets accounts of an owner that are too old.
func (s *Store) expireAccounts(o *owner, oldest int64, now time.Time) {
	for n := 1; o.accounts.len() > 0 && o.accounts.oldest().at <= oldest; n++ {
		s.dropAccount(o.accounts.oldest(), goneExpired, now)
		if n%step == 0 {
			s.pause()
		}
	}
}
