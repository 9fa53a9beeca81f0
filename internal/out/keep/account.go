package keep

import (
	"container/list"
	"slices"
	"time"
	"unsafe"

	"correlator/profile"
)

const (
	// partOfAccounts is which part of the memory the accounts of an owner may take: most transactions are
	// short, and have no samples, which are to stay.
	partOfAccounts = 4

	// shortAccount is how long a transaction without samples must be to have an account.
	shortAccount = time.Millisecond

	// accountBytes is an account with its place in the list.
	accountBytes = int(unsafe.Sizeof(account{})+unsafe.Sizeof(list.Element{})) + pointerBytes
)

// account is what the threads of a transaction did.
type account struct {
	transaction *transaction
	place       *list.Element // in owner.accounts
	at          int64         // when it was added to last, in ns since 1970
	first, last int64         // of the accounts, in ns since 1970
	times       profile.Times
}

// AddAccount keeps what a thread did in a transaction. The account stays the caller's.
func (s *Store) AddAccount(a *profile.Account, now time.Time) {
	if a.Resource == nil || a.TraceID == [16]byte{} {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := transactionID{a.TraceID, a.TransactionID}
	tx := s.knownTransaction(a.Resource, id)
	if tx == nil && a.Last.Sub(a.First) < shortAccount {
		s.stats.Short++
		return
	}
	p := s.process(a.Resource)
	if tx == nil {
		tx = s.newTransaction(p, id, a.Context)
	}
	if tx.account == nil {
		tx.account = &account{transaction: tx, first: a.First.UnixNano(), last: a.Last.UnixNano()}
		tx.account.place = p.owner.accounts.PushBack(tx.account)
		tx.entries++
		p.owner.accounted += accountBytes
		s.grow(p.owner, accountBytes)
	}
	kept := tx.account
	kept.at = now.UnixNano()
	kept.times.Add(&a.Times)
	kept.first, kept.last = min(kept.first, a.First.UnixNano()), max(kept.last, a.Last.UnixNano())
	p.owner.accounts.MoveToBack(kept.place)
	for o := p.owner; o.accounted > s.limit/partOfAccounts; {
		s.forgetAccount(o, goneEvicted, now)
	}
	s.evict(now)
}

// seen returns when a transaction was sampled, or accounted, in ns since 1970.
func (tx *transaction) seen() (first, last int64) {
	first, last = tx.first, tx.last
	if tx.account != nil {
		first, last = min(first, tx.account.first), max(last, tx.account.last)
	}
	return first, last
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

// withoutTraces leaves out what is nothing but the account of a trace, and is shown with another transaction.
func withoutTraces(found []candidate) []candidate {
	traces := make(map[*transaction]bool)
	for i := range found {
		if trace := found[i].ofTrace(); trace != nil && trace.account != nil && trace.entries == 1 {
			traces[trace] = found[i].account == nil
		}
	}
	return slices.DeleteFunc(found, func(tx candidate) bool { return traces[tx.transaction] })
}

// copyAccount returns what is known of the transaction's threads. The caller holds the lock.
func (tx *transaction) copyAccount() *Account {
	of, whole := tx, false
	if other := tx.ofTrace(); tx.account == nil && other != nil {
		of, whole = other, true
	}
	if of.account == nil {
		return nil
	}
	a := of.account
	return &Account{First: time.Unix(0, a.first), Last: time.Unix(0, a.last), Times: a.times, WholeTrace: whole}
}

func (s *Store) knownTransaction(r *profile.Resource, id transactionID) *transaction {
	if o := s.owners[r.Owner]; o != nil && o.processes[r] != nil {
		return o.processes[r].transactions.get(id)
	}
	return nil
}

// forgetAccount forgets the account of an owner that was added to longest ago, of which there must be one.
func (s *Store) forgetAccount(o *owner, why reason, now time.Time) {
	a := o.accounts.Remove(o.accounts.Front()).(*account)
	o.accounted -= accountBytes
	s.grow(o, -accountBytes)
	tx := a.transaction
	tx.account = nil
	s.stats.AccountsForgotten++
	if tx.entries--; tx.entries == 0 {
		s.forgetTransaction(tx, why, now)
	}
	s.tidy(tx.process)
}

// expireAccounts forgets accounts of an owner that are too old.
func (s *Store) expireAccounts(o *owner, oldest int64, now time.Time) {
	for n := 1; o.accounts.Len() > 0 && o.accounts.Front().Value.(*account).at <= oldest; n++ {
		s.forgetAccount(o, goneExpired, now)
		if n%step == 0 {
			s.pause()
		}
	}
}
