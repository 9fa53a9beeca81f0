package unwind

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"

	"correlator/internal/worker"
)

// storedFile is a file that has a table, which counts against a user's quota: the engine has the
// files of each user apart, see target.rawMapping.
type storedFile struct {
	user   worker.User
	bucket uint16
	pages  uint64
}

// mappedFile is a file as the engine knows it by its mapping.
type mappedFile struct{ device, inode uint64 }

// deferral is why a file could not be stored. The engine then takes it for one without code, and
// does not say so, until deferralTime has passed.
type deferral struct {
	failure error
	until   time.Time
}

// deferralTime is more than the engine's deferredFileIDTimeout, by what the file may have taken.
const deferralTime = 90*time.Second + synchronizeTimeout

// fileUnderway is a file whose table is there, while the engine looks for a runtime in the file.
type fileUnderway struct {
	file         host.FileID // 0: none
	first, pages uint64      // of its code
}

// store calls a function that has the engine store a file, unless that failed so recently that the
// engine would not try it. Then it has failed again. Nor is it called where the process has no more room: the engine
// would refuse the file to others, too. Without a handler, nothing is stored.
func (h *handler) store(file mappedFile, now time.Time, do func() bool) bool {
	if h == nil || file == (mappedFile{}) { // it is none
		return do()
	}
	h.mu.Lock()
	before, d, room := h.errors, h.deferred[file], h.infos < maxUnwindInfos
	h.ofFile, h.underway = 0, fileUnderway{}
	h.mu.Unlock()
	if now.Before(d.until) {
		_ = h.note("not tried again yet", d.failure)
		return true
	}
	if !room {
		_ = h.note("storing ways to unwind", errInfos)
		return true
	}
	returned := false
	defer func() {
		if !returned { // the engine panics, and does not know of a table
			h.dropUnderway()
		}
	}()
	goOn := do()
	returned = true
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.errors == before {
		return goOn
	}
	maps.DeleteFunc(h.deferred, func(_ mappedFile, d deferral) bool { return now.After(d.until) })
	h.deferred[file] = deferral{h.last, now.Add(deferralTime)}
	return goOn
}

// dropUnderway deletes what is there of the file that was to be stored.
func (h *handler) dropUnderway() {
	h.mu.Lock()
	s := h.underway
	h.mu.Unlock()
	if s.file == 0 {
		return
	}
	for page := range s.pages {
		_ = h.EbpfHandler.DeleteStackDeltaPage(s.file, s.first+page<<support.StackDeltaPageBits)
	}
	_ = h.DeleteExeIDToStackDeltas(s.file, 0)
}

// UpdateUnwindInfo stores a way to unwind a frame. A user whose quota is used up may have files
// that are long gone: only another worker has room.
func (h *handler) UpdateUnwindInfo(index uint16, info stackdeltatypes.UnwindInfo) error {
	h.mu.Lock()
	h.infos++
	h.ofFile++
	err := error(nil)
	if h.ofFile > maxUnwindInfos {
		err = errInfos
	} else if err = h.quotas.infos.take(h.user, 1); err != nil {
		h.full = true
	} else if err = h.EbpfHandler.UpdateUnwindInfo(index, info); err != nil {
		h.quotas.infos.give(h.user, 1)
	}
	h.mu.Unlock()
	return h.note("storing ways to unwind", err)
}

// UpdateStackDeltaPages stores which part of a file's table is that of which part of its code.
// After an error, the engine deletes the table.
func (h *handler) UpdateStackDeltaPages(file host.FileID, deltas []uint16, bucket uint16, first uint64) error {
	return h.note("storing a file", h.storePages(file, deltas, bucket, first))
}

func (h *handler) storePages(file host.FileID, deltas []uint16, bucket uint16, first uint64) error {
	if len(deltas) > maxPagesOfFile {
		return errPages
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	stored, ok := h.files[file]
	if !ok {
		return fmt.Errorf("file %x has no table", file)
	}
	n := uint64(len(deltas))
	if err := h.quotas.pages.take(stored.user, n); err != nil {
		return err
	}
	err := h.EbpfHandler.UpdateStackDeltaPages(file, deltas, bucket, first)
	if err != nil { // some may be there
		for i := range n {
			_ = h.EbpfHandler.DeleteStackDeltaPage(file, first+i<<support.StackDeltaPageBits)
		}
		h.quotas.pages.give(stored.user, n)
		return err
	}
	stored.pages = n
	h.files[file] = stored
	h.underway.first, h.underway.pages = first, n
	return nil
}

// UpdateExeIDToStackDeltas stores a file's table, in a table that the agent makes.
func (h *handler) UpdateExeIDToStackDeltas(file host.FileID, deltas []ebpfapi.StackDeltaEBPF) (uint16, error) {
	bucket := uint16(max(bits.Len32(uint32(len(deltas))), support.StackDeltaBucketSmallest))
	h.mu.Lock()
	h.read = true
	err := h.reserveTable(file, bucket)
	if err == nil {
		if err = h.storeTable(file, bucket, deltas); err != nil {
			h.releaseTable(file)
		}
	}
	h.mu.Unlock()
	return bucket, h.note("storing a file's table", err)
}

// reserveTable counts a file's table. h.mu must be held, as for the next ones.
func (h *handler) reserveTable(file host.FileID, bucket uint16) error {
	if bucket > support.StackDeltaBucketLargest {
		return fmt.Errorf("there are no tables of 1<<%d entries", bucket)
	}
	if _, stored := h.files[file]; stored {
		return fmt.Errorf("the table of file %x is stored already", file)
	}
	if err := h.quotas.tables.take(h.user, 1); err != nil {
		return err
	}
	if err := h.quotas.tableBytes.take(h.user, tableBytes(uint(bucket))); err != nil {
		h.quotas.tables.give(h.user, 1)
		return err
	}
	h.files[file] = storedFile{user: h.user, bucket: bucket}
	h.underway.file = file
	return nil
}

// releaseTable is called for a file whose table is not there any more.
func (h *handler) releaseTable(file host.FileID) {
	stored, ok := h.files[file]
	if !ok {
		return
	}
	delete(h.files, file)
	if h.underway.file == file {
		h.underway = fileUnderway{}
	}
	h.releaseOffsets(file)
	h.quotas.tables.give(stored.user, 1)
	h.quotas.tableBytes.give(stored.user, tableBytes(uint(stored.bucket)))
	h.quotas.pages.give(stored.user, stored.pages)
}

func (h *handler) storeTable(file host.FileID, bucket uint16, deltas []ebpfapi.StackDeltaEBPF) error {
	table, err := h.newTable(bucket, deltas)
	if err != nil {
		return err
	}
	h.pending = append(h.pending, pendingTable{file, table})
	if len(h.pending) == maxPending {
		return h.flushTables()
	}
	return nil
}

// pendingTable is a file's table that is not among those of files yet.
type pendingTable struct {
	file  host.FileID
	table *ebpf.Map
}

// maxPending bounds the descriptors of pendingTables.
const maxPending = 32

// flush stores all tables that are pending. For each change of a table of tables the kernel waits until no program can
// use the former one, 10 ms and more on a busy host: here once for the files of a process, since Linux 6.8.
func (h *handler) flush() error {
	h.mu.Lock()
	err := h.flushTables()
	h.mu.Unlock()
	return h.note("storing files' tables", err)
}

// flushTables is flush with h.mu held. There is room for what is pending: if it cannot be stored, only another worker
// tries that again.
func (h *handler) flushTables() error {
	pending := h.pending
	h.pending = nil
	if len(pending) == 0 {
		return nil
	}
	files, tables := make([]uint64, len(pending)), make([]uint32, len(pending))
	for i, p := range pending {
		defer p.table.Close()
		files[i], tables[i] = uint64(p.file), uint32(p.table.FD())
	}
	if _, err := h.tables.BatchUpdate(files, tables, nil); err == nil {
		return nil
	}
	var all error // one by one, as before Linux 5.14
	for _, p := range pending {
		all = errors.Join(all, h.tables.Update(uint64(p.file), p.table, ebpf.UpdateAny))
	}
	h.full = h.full || all != nil
	return all
}

// DeleteExeIDToStackDeltas deletes a file's table, after its pages. The engine's own would do that
// at some later time.
func (h *handler) DeleteExeIDToStackDeltas(file host.FileID, _ uint16) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releaseTable(file)
	for i, p := range h.pending {
		if p.file == file {
			h.pending = slices.Delete(h.pending, i, i+1)
			return p.table.Close()
		}
	}
	return h.tables.Delete(uint64(file))
}
