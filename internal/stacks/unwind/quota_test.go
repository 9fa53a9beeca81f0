package unwind

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/worker"
)

// A quota is divided by a share.Budget. Whoever gets no more is told of what.
func TestQuota(t *testing.T) {
	q := newQuota("things", 64)
	assert.NilError(t, q.take("a", 32))
	err := q.take("a", 1)
	assert.Check(t, errors.Is(err, errOverQuota) && strings.HasSuffix(err.Error(),
		"no more things: they have 32, all users 32 of 64"), err)
	err = q.take("new", 1<<63)
	assert.Check(t, errors.Is(err, errOverQuota), err)
	q.give("a", 32)
	assert.NilError(t, q.take("a", 1))
}

// madeUpTables takes what it has room for.
type madeUpTables struct {
	ebpfapi.EbpfHandler
	pages     map[uint64]bool // of a file
	pageRoom  int
	rangeRoom int
}

func (*madeUpTables) UpdateProcData(libpf.InterpreterType, libpf.PID, unsafe.Pointer) error {
	return nil
}

func (*madeUpTables) DeleteProcData(libpf.InterpreterType, libpf.PID) error { return nil }

func (*madeUpTables) RemoveReportedPID(libpf.PID) {}

func (*madeUpTables) UpdateUnwindInfo(uint16, stackdeltatypes.UnwindInfo) error { return nil }

func (m *madeUpTables) UpdatePidInterpreterMapping(libpf.PID, lpm.Prefix, uint8, host.FileID, uint64) error {
	return m.addRange()
}

func (m *madeUpTables) UpdatePidPageMappingInfo(libpf.PID, lpm.Prefix, uint64, uint64) error {
	return m.addRange()
}

func (m *madeUpTables) addRange() error {
	if m.rangeRoom--; m.rangeRoom < 0 {
		return unix.ENOSPC
	}
	return nil
}

func (*madeUpTables) DeletePidInterpreterMapping(libpf.PID, lpm.Prefix) error {
	return ebpf.ErrKeyNotExist
}

func (*madeUpTables) DeletePidPageMappingInfo(_ libpf.PID, prefixes []lpm.Prefix) (uint64, error) {
	return uint64(len(prefixes)), nil
}

func (m *madeUpTables) UpdateStackDeltaPages(_ host.FileID, deltas []uint16, _ uint16, first uint64) error {
	for i := range deltas {
		if len(m.pages) == m.pageRoom {
			return unix.E2BIG
		}
		m.pages[first+uint64(i)<<support.StackDeltaPageBits] = true
	}
	return nil
}

func (m *madeUpTables) DeleteStackDeltaPage(_ host.FileID, page uint64) error {
	delete(m.pages, page)
	return nil
}

const madeUpEntries = 64

// madeUp returns a handler of tables that have madeUpEntries, as far as they are divided.
func madeUp() (*handler, *madeUpTables) {
	own := &madeUpTables{pages: make(map[uint64]bool), pageRoom: 1 << 20, rangeRoom: 1 << 20}
	q := newQuotas(ownDescriptors+processDescriptors*madeUpEntries, func(table string) uint64 {
		if table == pidPageMap {
			return 2 * madeUpEntries // with the marks of processes
		}
		return madeUpEntries
	})
	return newHandler(own, nil, q, nil), own
}

const (
	madeUpBucket  = support.StackDeltaBucketSmallest
	largestBucket = support.StackDeltaBucketLargest
)

// A user can fill half of what all share, of each kind; then another one can add to it still. When
// all is deleted, nothing is counted.
func TestQuotas(t *testing.T) {
	prefix := lpm.Prefix{Key: 1 << 12, Length: 52}
	for name, c := range map[string]struct {
		most   int
		add    func(h *handler, i int) error
		remove func(h *handler, i int) // nil: it cannot be
	}{
		"JVMs": {
			madeUpEntries / 2,
			func(h *handler, i int) error { return h.UpdateProcData(libpf.HotSpot, libpf.PID(i), nil) },
			func(h *handler, i int) { _ = h.DeleteProcData(libpf.HotSpot, libpf.PID(i)) },
		},
		"Go programs": {
			madeUpEntries / 2,
			func(h *handler, i int) error { return h.UpdateProcData(libpf.Go, libpf.PID(i), nil) },
			func(h *handler, i int) { _ = h.DeleteProcData(libpf.Go, libpf.PID(i)) },
		},
		"ranges of files": {
			madeUpEntries / 2,
			func(h *handler, i int) error { return h.UpdatePidPageMappingInfo(libpf.PID(i), prefix, uint64(i), 0) },
			func(h *handler, i int) { _, _ = h.DeletePidPageMappingInfo(libpf.PID(i), []lpm.Prefix{prefix}) },
		},
		"ranges of JVMs": {
			madeUpEntries / 2,
			func(h *handler, i int) error { return h.UpdatePidInterpreterMapping(libpf.PID(i), prefix, 0, 0, 0) },
			func(h *handler, i int) { _ = h.DeletePidInterpreterMapping(libpf.PID(i), prefix) },
		},
		"ways to unwind": {
			madeUpEntries / 2,
			func(h *handler, i int) error { return h.UpdateUnwindInfo(uint16(i), stackdeltatypes.UnwindInfo{}) }, nil,
		},
		"files": {
			madeUpEntries / 2,
			func(h *handler, i int) error { return h.note("", h.reserveTable(host.FileID(i), madeUpBucket)) },
			func(h *handler, i int) { h.releaseTable(host.FileID(i)) },
		},
		"bytes": {
			maxTableBytes / (8 << largestBucket) / 2,
			func(h *handler, i int) error { return h.note("", h.reserveTable(host.FileID(i), largestBucket)) },
			func(h *handler, i int) { h.releaseTable(host.FileID(i)) },
		},
		"pages": {
			madeUpEntries / 2 / 4,
			func(h *handler, i int) error {
				_ = h.reserveTable(host.FileID(i), madeUpBucket)
				return h.UpdateStackDeltaPages(host.FileID(i), make([]uint16, 4), madeUpBucket, 0)
			},
			func(h *handler, i int) { h.releaseTable(host.FileID(i)) },
		},
	} {
		h, _ := madeUp()
		added := 0
		fill := func(user worker.User) (err error) {
			for h.begin(user); err == nil; added++ {
				err = c.add(h, added)
			}
			return err
		}
		if err := fill("greedy"); !errors.Is(err, errOverQuota) || added-1 != c.most {
			t.Errorf("%s: %d of one user, want %d: %v", name, added-1, c.most, err)
		}
		r := h.result(0)
		assert.Check(t, errors.Is(r.overQuota, errOverQuota) && r.errors != 0, "%s: %+v", name, r)
		before := added
		if err := fill("another"); !errors.Is(err, errOverQuota) || added == before+1 && c.most > 1 {
			t.Errorf("%s: none of another user: %v", name, err)
		}
		if h.begin("another"); h.result(0).overQuota != nil {
			t.Errorf("%s: the next process has %v", name, h.overQuota)
		}
		if c.remove == nil {
			continue
		}
		for i := range added {
			c.remove(h, i)
		}
		for _, q := range h.quotas.all() {
			assert.Check(t, q.budget.Used() == 0, "%s: %+v is left", name, q)
		}
	}
}

// One process or file has no more than is read of one, and what is left out is counted.
func TestLimitsOfOne(t *testing.T) {
	for _, test := range []struct {
		want error
		add  func(h *handler) error
	}{
		{errRanges, func(h *handler) error {
			h.count[1] = holding{user: h.user, n: maxRanges}
			return h.UpdatePidPageMappingInfo(1, lpm.Prefix{Key: 1 << 12, Length: 52}, 1, 0)
		}},
		{errPages, func(h *handler) error {
			return h.UpdateStackDeltaPages(1, make([]uint16, maxPagesOfFile+1), madeUpBucket, 0)
		}},
		{errInfos, func(h *handler) error {
			h.ofFile = maxUnwindInfos
			return h.UpdateUnwindInfo(0, stackdeltatypes.UnwindInfo{})
		}},
		{errOverQuota, func(h *handler) error { // half of the programs with a runtime are of one user
			h.data.on[runtimeKinds[0]] = new(ebpf.Map)
			assert.NilError(t, h.quotas.processData[runtimeKinds[0].of].take(h.user, maxRuntimes/2))
			return h.UpdateProcData(runtimeKinds[0].of, 1, nil)
		}},
	} {
		h, _ := madeUp()
		h.begin("user")
		err := test.add(h)
		r := h.result(1)
		assert.Check(t, errors.Is(err, test.want) && r.errors == 1 && errors.Is(r.failure, test.want), "%v, %+v", err,
			r)
	}
}

// all returns all quotas.
func (q *quotas) all() []*quota {
	all := []*quota{q.processes, q.offsets, q.ranges, q.infos, q.pages, q.tables, q.tableBytes}
	for _, processes := range q.processData {
		all = append(all, processes)
	}
	return all
}

// When a table is full that has room for all quotas, another worker is needed, and nothing of the
// file stays behind.
func TestTableIsFull(t *testing.T) {
	h, own := madeUp()
	own.pageRoom, own.rangeRoom = 3, 0
	h.begin("user")
	assert.NilError(t, h.reserveTable(1, madeUpBucket))
	err := h.UpdateStackDeltaPages(1, make([]uint16, 4), madeUpBucket, 1<<20)
	assert.Check(t, errors.Is(err, unix.E2BIG), err)
	if r := h.result(0); !r.full || r.overQuota != nil || len(own.pages) != 0 || h.quotas.pages.budget.Used() != 0 {
		t.Errorf("%+v, pages %v, %+v", r, own.pages, h.quotas.pages)
	}

	h, _ = madeUp()
	h.EbpfHandler = own
	h.begin("user")
	err = h.UpdatePidPageMappingInfo(1, lpm.Prefix{Key: 1 << 12, Length: 52}, 1, 0)
	assert.Check(t, errors.Is(err, unix.ENOSPC), err)
	if r := h.result(0); !r.full || h.quotas.ranges.budget.Used() != 0 {
		t.Errorf("%+v, %+v", r, h.quotas.ranges)
	}
}

// What could not be stored of a file is not forgotten while the engine does not try it again.
func TestDeferredFile(t *testing.T) {
	h, _ := madeUp()
	file, now := mappedFile{1, 2}, time.Now()
	calls := 0
	storing := func(failure error) func() bool {
		return func() bool {
			calls++
			_ = h.note("storing", failure)
			return true
		}
	}
	h.begin("user")
	h.store(mappedFile{3, 4}, now, storing(nil))
	h.store(file, now, storing(errOverQuota))
	if r := h.result(0); calls != 2 || r.errors != 1 || len(h.deferred) != 1 {
		t.Fatalf("%d calls, %+v, %v", calls, r, h.deferred)
	}
	until := h.deferred[file].until
	for range 2 {
		h.begin("user")
		h.store(file, until.Add(-1), storing(nil))
		h.store(mappedFile{3, 4}, until.Add(-1), storing(nil))
		r := h.result(0)
		assert.Check(t, r.errors == 1 && errors.Is(r.overQuota, errOverQuota), "%+v", r)
	}
	h.begin("user")
	h.store(file, until, storing(nil))
	r := h.result(0)
	assert.Check(t, calls == 5 && r.errors == 0, "%d calls, %+v", calls, r)
	h.store(mappedFile{5, 6}, until.Add(1), storing(errPages))
	_, kept := h.deferred[file]
	assert.Check(t, !kept, "what has passed is kept")
}

// Where a process has used up its ways to unwind, its next file is not stored, and that says nothing of the file: it is
// stored for others, whose file it is as well.
func TestProcessWithoutRoom(t *testing.T) {
	h, _ := madeUp()
	file, now := mappedFile{1, 2}, time.Now()
	var stored int
	store := func() { h.store(file, now, func() bool { stored++; return true }) }
	h.begin("user")
	h.infos, h.ofFile = maxUnwindInfos, maxUnwindInfos
	store()
	r := h.result(0)
	assert.Check(t, stored == 0 && r.errors == 1 && errors.Is(r.failure, errInfos) && len(h.deferred) == 0, "%d, %+v",
		stored, r)
	h.begin("user")
	store()
	r = h.result(0)
	assert.Check(t, stored == 1 && r.errors == 0 && h.ofFile == 0, "%d, %+v", stored, r)
}

// Stacks do not go to the program of a runtime that is not known of a process.
func TestNoRuntime(t *testing.T) {
	h, _ := madeUp()
	h.data.switchOn = func(*runtimeKind) (*ebpf.Map, error) { return nil, unix.EINVAL }
	h.begin("user")
	for _, kind := range runtimeKinds {
		prefix := lpm.Prefix{Key: 1 << 12, Length: 52}
		err := h.UpdatePidInterpreterMapping(1, prefix, uint8(kind.index), 0, 0)
		assert.Check(t, errors.Is(err, errNoRuntime), "code of %s: %v", kind.name, err)
		err = h.UpdateProcData(kind.of, 1, nil)
		assert.Check(t, errors.Is(err, errNoRuntime), "%s: %v", kind.name, err)
	}
	err := h.UpdateProcData(libpf.Perl, 1, nil)
	assert.Check(t, errors.Is(err, errNoRuntime), err)
	err = h.UpdateInterpreterOffsets(support.ProgUnwindPerl, 1, nil)
	assert.Check(t, errors.Is(err, errNoRuntime), err)
	r := h.result(1)
	assert.Check(t, r.errors == 0 && r.overQuota == nil && len(r.runtimes) == 0 && r.missing == nil, "%+v", r)
}
