package bpf

import (
	"errors"
	"fmt"
)

// SawTrace says that a sample of a target had a trace: see [TargetRules].Unseen.
func (s *Sampler) SawTrace(target Target) error {
	if err := s.table.sawTrace(target); err != nil {
		return fmt.Errorf("accounting waits: %w", err)
	}
	return nil
}

// accounts reports whether accounts are kept of a target: without contexts there are some by thread only.
func (t *targetTable) accounts(entry *targetEntry) bool {
	return t.waits != nil && (entry.contexts || t.all || t.waits.options.ByThread)
}

// setAccounted computes the filter of accounts. The threads of all targets that it has are to be prepared then.
func (t *targetTable) setAccounted() {
	t.accounted = filterBits{}
	for tgid, entry := range t.byTGID {
		if t.accounts(entry) {
			t.accounted.set(tgid)
		}
	}
	for tgid, entry := range t.byTGID {
		entry.accounted = t.accounted.has(tgid)
	}
}

// accountAll says that any target may have contexts.
func (t *targetTable) accountAll() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = true
	if t.waits == nil {
		return nil
	}
	t.setAccounted()
	return errors.Join(t.setBits(), t.waits.prepareAll())
}

// account has the filters let a target through, and its threads be accounted if they are to.
func (t *targetTable) account(entry *targetEntry) error {
	isNew := t.accounts(entry) && !t.accounted.has(entry.identity.tgid)
	if isNew {
		t.accounted.set(entry.identity.tgid)
	}
	if err := t.setBits(); err != nil {
		return err
	}
	t.prepare(entry)
	if isNew {
		for _, other := range t.byTGID { // one may have the same bit
			t.prepare(other)
		}
	}
	return nil
}

// sawTrace says that a target has contexts.
func (t *targetTable) sawTrace(target Target) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.byTGID[t.tgids[target]]
	if entry == nil || entry.target != target || entry.contexts {
		return nil
	}
	entry.contexts = true
	return t.account(entry)
}

// prepare prepares the threads of a target whose switches are accounted, once.
func (t *targetTable) prepare(entry *targetEntry) {
	if t.waits == nil || entry.accounted || !t.accounted.has(entry.identity.tgid) {
		return
	}
	entry.accounted = true
	// Switches of threads that are not prepared are counted: see WaitCounters.
	_ = t.waits.prepare(uint32(entry.identity.PID), entry.identity.tgid, entry.target)
}

// follow has an account know the targets that there are, and later ones, with their threads.
func (t *targetTable) follow(w *Waits) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits != nil {
		return errors.New("there are accounts already")
	}
	t.waits = w
	var err error
	for target, owner := range t.ownerOf {
		err = errors.Join(err, w.setOwner(target, owner.number))
	}
	t.setAccounted() // Resume prepares them
	return errors.Join(err, t.setBits())
}

func (t *targetTable) unfollow(w *Waits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == w {
		t.waits = nil
	}
}
