package process

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker/access/accesstest"
	"correlator/memread"
	"correlator/procscan"
)

// memory is the memory of a process: bytes from base on.
type memory struct {
	base   uint64
	bytes  []byte
	reads  int
	before func(read int) // may change it before each read
}

func (m *memory) read(requests []memread.Request) error {
	m.before(m.reads)
	m.reads++
	for i := range requests {
		r := &requests[i]
		if r.N, r.Err = 0, nil; r.Addr >= m.base && r.Addr < m.base+uint64(len(m.bytes)) {
			r.N = copy(r.Buf, m.bytes[r.Addr-m.base:])
		}
		if r.N < len(r.Buf) {
			r.Err = memread.ErrUnmapped
		}
	}
	return nil
}

// point sets the pointer to the storage, the first word.
func (m *memory) point(off uint64) {
	binary.NativeEndian.PutUint64(m.bytes, m.base+off)
}

func (m *memory) store(off int, s memread.ProcessStorage) { copy(m.bytes[off:], s.AppendTo(nil)) }

// A storage that changes while it is read counts as nothing that was read of it: neither what was there before, nor
// what is there now, nor a mixture. The next probe finds what is there then.
func TestStorageChangesWhileRead(t *testing.T) {
	before := memread.ProcessStorage{MinorVersion: 1, ServiceName: "before", SocketPath: "/before"}
	after := memread.ProcessStorage{MinorVersion: 1, ServiceName: "after!", SocketPath: "/after!"} // as long
	other := memread.ProcessStorage{MinorVersion: 1, ServiceName: "another", SocketPath: "/other"}
	const first, second = 64, 1024
	for name, c := range map[string]struct {
		change func(*memory)
		then   memread.ProcessStorage // zero: nothing is published
	}{
		"rewritten":                      {func(m *memory) { m.store(first, after) }, after},
		"rewritten, longer":              {func(m *memory) { m.store(first, other) }, other},
		"replaced":                       {func(m *memory) { m.store(second, after); m.point(second) }, after},
		"replaced by the same elsewhere": {func(m *memory) { m.store(second, before); m.point(second) }, before},
		"withdrawn":                      {func(m *memory) { clear(m.bytes[:8]) }, memread.ProcessStorage{}},
		"withdrawn and unmapped": {func(m *memory) {
			clear(m.bytes[:8])
			m.bytes = m.bytes[:8]
		}, memread.ProcessStorage{}},
	} {
		for at := 1; ; at++ { // before each of the reads but the first
			m := &memory{base: 0x10000, bytes: make([]byte, 4096)}
			m.store(first, before)
			m.point(first)
			m.before = func(read int) {
				if read == at {
					c.change(m)
				}
			}
			target := &Target{memory: memread.OpenRemote("/proc", 1, m.read)}
			target.images = []*image{{library: &elfsym.Library{StorageAddr: m.base}}}
			_, err := target.readStorage()
			if m.reads <= at { // nothing changed
				if err != nil || target.Storage() != before || at < 2 {
					t.Errorf("%s: %+v, %v", name, target.Storage(), err)
				}
				m.before = func(int) {}
				m.store(first, after) // what is published in the same place later counts, once
				for _, want := range []bool{true, false} {
					changed, err := target.readStorage()
					assert.Check(t, err == nil && changed == want && target.Storage() == after,
						"%s: %v, %v", name, changed, err)
				}
				break
			}
			// Before it was read for the first time it may as well be taken for what it is now.
			isNow := at == 1 && err == nil && target.Storage() == c.then && strings.HasPrefix(name, "rewritten")
			if reason := ReasonOf(err); !isNow && (reason != ReasonStorageChanging || target.HasStorage()) {
				t.Errorf("%s before read %d: %+v, %v", name, at, target.Storage(), err)
			}
			_, err = target.readStorage()
			if want := c.then == (memread.ProcessStorage{}); errors.Is(err, memread.ErrNotPublished) != want ||
				target.Storage() != c.then {
				t.Errorf("%s before read %d, afterwards: %+v, %v", name, at, target.Storage(), err)
			}
		}
	}
}

// What a thread pointer led to counts only if the thread is there afterwards: else it may be what another one has
// written that got its memory. Nor does what was read too late, or is of no use.
func TestJudge(t *testing.T) {
	testenv.NeedRoot(t)
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	tid := p.Begin(1).Thread.TID
	target := openDemo(t, p.PID)
	defer target.Close()
	now := time.Now()
	for name, c := range map[string]struct {
		tid     int
		outcome SampleOutcome
		after   time.Duration
		keep    Keep
		want    SampleOutcome
	}{
		"a thread":                    {tid, OutcomeCorrelated, 0, Keep{}, OutcomeCorrelated},
		"the first thread":            {p.PID, OutcomeCorrelated, MaxContextAge, Keep{}, OutcomeCorrelated},
		"no thread":                   {math.MaxInt32, OutcomeCorrelated, 0, Keep{}, OutcomeNoThread},
		"a thread of another process": {1, OutcomeCorrelated, 0, Keep{}, OutcomeNoThread},
		"too late":                    {tid, OutcomeCorrelated, MaxContextAge + 1, Keep{}, OutcomeStale},
		"torn":                        {tid, OutcomeTorn, 0, Keep{Unsampled: true, Untraced: true}, OutcomeTorn},
		"unsampled":                   {tid, OutcomeUnsampled, 0, Keep{Untraced: true}, OutcomeUnsampled},
		"unsampled, kept":             {tid, OutcomeUnsampled, 0, Keep{Unsampled: true}, OutcomeCorrelated},
		"without a trace":             {tid, OutcomeNoTrace, 0, Keep{Unsampled: true}, OutcomeNoTrace},
		"without a trace, kept":       {tid, OutcomeNoTrace, 0, Keep{Untraced: true}, OutcomeCorrelated},
		"kept, but no thread":         {1, OutcomeNoSlot, 0, Keep{Untraced: true}, OutcomeNoThread},
	} {
		context := Context{Outcome: c.outcome, ReadAt: now}
		got := target.Judge(&context, c.tid, now.Add(-c.after), c.keep)
		assert.Check(t, got == c.want, "%s: %v, want %v", name, got, c.want)
	}
	p.StopThreads()
	testenv.Poll(t, time.Minute, "the end of the thread", func() bool { return !target.HasThread(tid) })
	got := target.Judge(&Context{ReadAt: now}, tid, now, Keep{})
	assert.Check(t, got == OutcomeNoThread, "a thread that has ended: %v", got)
}

// A process that ended, and one that got its pid, are no longer what was opened.
func TestOpenOther(t *testing.T) {
	p := demo.Start(t, demo.Options{Manual: true, Idle: 1})
	scanner, err := procscan.NewScanner("/proc")
	assert.NilError(t, err)
	found, err := scanner.Process(p.PID)
	assert.NilError(t, err)
	found.StartTime++
	_, err = Open(accesstest.Open(t), "/proc", found, Filter{})
	assert.Check(t, errors.Is(err, procscan.ErrGone) && IsGone(err), "another process: %v", err)
}
