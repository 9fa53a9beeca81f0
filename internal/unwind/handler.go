package unwind

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"sync"
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

	"correlator/internal/worker"
)

const (
	// maxRanges bounds the entries of one process in the table of mappings. A JVM has some 300.
	maxRanges = 4096

	// maxPagesOfFile bounds what one file has of the table of pages, which is for the files of all
	// processes: 128 MB of code.
	maxPagesOfFile = 2048

	// maxUnwindInfos bounds what one synchronization adds to the table of ways to unwind a frame. It has
	// support.UnwindInfoMaxEntries for all processes, and a worker never removes one. libjvm has some 300.
	maxUnwindInfos = 2048
)

var (
	errAPM    = errors.New("the engine is not to correlate with APM agents")
	errRanges = fmt.Errorf("a process has more than %d ranges of mappings", maxRanges)
	errPages  = fmt.Errorf("a file has code in more than %d pages of 64 KiB", maxPagesOfFile)
	errInfos  = fmt.Errorf("a process has more than %d ways to unwind a frame", maxUnwindInfos)
)

// codeRange is where a file's code is in a process.
type codeRange struct {
	prefix lpm.Prefix
	bias   uint64 // address in memory less address in the file
}

// handler is the engine's access to the tables, with bounds. It collects errors, which the engine only
// logs, and keeps where the code of files is.
type handler struct {
	ebpfapi.EbpfHandler
	outer    map[uint16]*ebpf.Map // tables of tables, by the logarithm of their size
	newTable func(bucket uint16) (*ebpf.Map, error)

	mu        sync.Mutex // the engine cleans up on a goroutine of its own
	quotas    *quotas
	user      worker.User // whose process is synchronized
	errors    uint64
	failure   error // the first one
	last      error
	overQuota error // the first that is an errOverQuota
	infos     int
	full      bool // a table is that will not be cleared as processes end
	read      bool // a file was read, since takeFilesRead
	ranges    map[libpf.PID]map[host.FileID][]codeRange
	count     map[libpf.PID]holding // of ranges, of files and of JVMs
	jvms      map[libpf.PID]worker.User
	files     map[host.FileID]storedFile
	deferred  map[mappedFile]deferral
}

// holding is a number of entries that count against a user's quota.
type holding struct {
	user worker.User
	n    int
}

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

// newHandler returns a handler around the engine's own. newTable makes a table of 1<<bucket entries.
func newHandler(own ebpfapi.EbpfHandler, tables map[string]*ebpf.Map, quotas *quotas,
	newTable func(bucket uint16) (*ebpf.Map, error)) *handler {
	h := &handler{
		EbpfHandler: own, outer: make(map[uint16]*ebpf.Map), newTable: newTable, quotas: quotas,
		ranges: make(map[libpf.PID]map[host.FileID][]codeRange), count: make(map[libpf.PID]holding),
		jvms: make(map[libpf.PID]worker.User), files: make(map[host.FileID]storedFile),
		deferred: make(map[mappedFile]deferral),
	}
	for bucket := uint16(support.StackDeltaBucketSmallest); bucket <= support.StackDeltaBucketLargest; bucket++ {
		h.outer[bucket] = tables[fmt.Sprintf(outerFormat, bucket)]
	}
	return h
}

// begin prepares a synchronization of a user's process.
func (h *handler) begin(user worker.User) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.user, h.errors, h.failure, h.last, h.overQuota, h.infos = user, 0, nil, nil, nil, 0
}

// stored is what a synchronization came to.
type stored struct {
	errors    uint64
	failure   error // the first one
	overQuota error // nil: all that the process needs is within its user's quotas
	full      bool  // a table is that will not be cleared as processes end
	jvm       bool  // the process's JVM can be unwound
}

func (h *handler) result(pid libpf.PID) stored {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, jvm := h.jvms[pid]
	return stored{h.errors, h.failure, h.overQuota, h.full, jvm}
}

// store calls a function that has the engine store a file, unless that failed so recently that the
// engine would not try it. Then it has failed again.
func (h *handler) store(file mappedFile, now time.Time, do func() bool) bool {
	if file == (mappedFile{}) { // it is none
		return do()
	}
	h.mu.Lock()
	before, d := h.errors, h.deferred[file]
	h.mu.Unlock()
	if now.Before(d.until) {
		_ = h.note("not tried again yet", d.failure)
		return true
	}
	goOn := do()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.errors == before {
		return goOn
	}
	maps.DeleteFunc(h.deferred, func(_ mappedFile, d deferral) bool { return now.After(d.until) })
	h.deferred[file] = deferral{h.last, now.Add(deferralTime)}
	return goOn
}

// takeFilesRead reports whether files were read since it was called last.
func (h *handler) takeFilesRead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	read := h.read
	h.read = false
	return read
}

// note counts an error and returns it.
func (h *handler) note(what string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", what, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors++
	h.last = err
	if h.failure == nil {
		h.failure = err
	}
	if h.overQuota == nil && errors.Is(err, errOverQuota) {
		h.overQuota = err
	}
	// There is room for all quotas, so something is left that should have been deleted.
	h.full = h.full || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC)
	return err
}

// address returns where an address of a file's code is in a process.
func (h *handler) address(pid libpf.PID, file host.FileID, inFile uint64) (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.ranges[pid][file] {
		addr := inFile + r.bias
		if (addr^r.prefix.Key)>>(64-r.prefix.Length) == 0 {
			return addr, true
		}
	}
	return 0, false
}

// storeRange calls a function that stores an entry of a process in the table of mappings.
func (h *handler) storeRange(pid libpf.PID, do func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.count[pid]
	if !ok {
		held.user = h.user
	}
	if held.n == maxRanges {
		return errRanges
	}
	if err := h.quotas.ranges.take(held.user, 1); err != nil {
		return err
	}
	if err := do(); err != nil {
		h.quotas.ranges.give(held.user, 1)
		return err
	}
	held.n++
	h.count[pid] = held
	return nil
}

// release is called for an entry that was stored and is not there any more. h.mu must be held.
func (h *handler) release(pid libpf.PID) {
	held := h.count[pid]
	if held.n == 0 {
		return
	}
	h.quotas.ranges.give(held.user, 1)
	if held.n--; held.n == 0 {
		delete(h.count, pid)
	} else {
		h.count[pid] = held
	}
}

// SupportsLPMTrieBatchOperations is true as far as the engine asks: what it deletes in batches, it
// deletes one by one where that fails.
func (h *handler) SupportsLPMTrieBatchOperations() bool { return true }

// UpdateProcData stores what the programs need of a JVM.
func (h *handler) UpdateProcData(kind libpf.InterpreterType, pid libpf.PID, data unsafe.Pointer) error {
	if kind != libpf.HotSpot {
		return errAPM // there is no third kind, and it is no failure
	}
	return h.note("storing the layout of a JVM", h.storeJVM(kind, pid, data))
}

func (h *handler) storeJVM(kind libpf.InterpreterType, pid libpf.PID, data unsafe.Pointer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, stored := h.jvms[pid]; stored {
		return h.EbpfHandler.UpdateProcData(kind, pid, data)
	}
	if err := h.quotas.jvms.take(h.user, 1); err != nil {
		return err
	}
	if err := h.EbpfHandler.UpdateProcData(kind, pid, data); err != nil {
		h.quotas.jvms.give(h.user, 1)
		return err
	}
	h.jvms[pid] = h.user
	return nil
}

// DeleteProcData deletes what UpdateProcData has stored.
func (h *handler) DeleteProcData(kind libpf.InterpreterType, pid libpf.PID) error {
	if kind != libpf.HotSpot {
		return errAPM
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if user, stored := h.jvms[pid]; stored {
		h.quotas.jvms.give(user, 1)
		delete(h.jvms, pid)
	}
	return h.EbpfHandler.DeleteProcData(kind, pid)
}

// UpdatePidInterpreterMapping stores where a JVM's generated code is.
func (h *handler) UpdatePidInterpreterMapping(pid libpf.PID, prefix lpm.Prefix, program uint8, file host.FileID,
	bias uint64) error {
	err := h.storeRange(pid, func() error {
		return h.EbpfHandler.UpdatePidInterpreterMapping(pid, prefix, program, file, bias)
	})
	return h.note("storing a JVM's code", err)
}

// DeletePidInterpreterMapping deletes what UpdatePidInterpreterMapping has stored.
func (h *handler) DeletePidInterpreterMapping(pid libpf.PID, prefix lpm.Prefix) error {
	err := h.EbpfHandler.DeletePidInterpreterMapping(pid, prefix)
	if err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.release(pid)
	}
	return err
}

// UpdatePidPageMappingInfo stores where a file's code is in a process. The engine marks a known
// process by an entry for the address 0.
func (h *handler) UpdatePidPageMappingInfo(pid libpf.PID, prefix lpm.Prefix, file, bias uint64) error {
	if prefix.Key == 0 {
		return h.note("marking a process", h.EbpfHandler.UpdatePidPageMappingInfo(pid, prefix, file, bias))
	}
	err := h.storeRange(pid, func() error {
		return h.EbpfHandler.UpdatePidPageMappingInfo(pid, prefix, file, bias)
	})
	if err != nil {
		return h.note("storing a mapping", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ranges[pid] == nil {
		h.ranges[pid] = make(map[host.FileID][]codeRange)
	}
	id := host.FileID(file)
	h.ranges[pid][id] = append(h.ranges[pid][id], codeRange{prefix, bias})
	return nil
}

// DeletePidPageMappingInfo deletes what UpdatePidPageMappingInfo has stored.
func (h *handler) DeletePidPageMappingInfo(pid libpf.PID, prefixes []lpm.Prefix) (uint64, error) {
	deleted, err := h.EbpfHandler.DeletePidPageMappingInfo(pid, prefixes)
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := make(map[lpm.Prefix]struct{}, len(prefixes))
	for _, p := range prefixes {
		gone[p] = struct{}{}
	}
	for file, ranges := range h.ranges[pid] {
		var kept []codeRange
		for _, r := range ranges {
			if _, ok := gone[r.prefix]; ok {
				h.release(pid)
			} else {
				kept = append(kept, r)
			}
		}
		if h.ranges[pid][file] = kept; len(kept) == 0 {
			delete(h.ranges[pid], file)
		}
	}
	if len(h.ranges[pid]) == 0 {
		delete(h.ranges, pid)
	}
	return deleted, err
}

// UpdateUnwindInfo stores a way to unwind a frame. A user whose quota is used up may have files
// that are long gone: only another worker has room.
func (h *handler) UpdateUnwindInfo(index uint16, info stackdeltatypes.UnwindInfo) error {
	h.mu.Lock()
	h.infos++
	err := error(nil)
	if h.infos > maxUnwindInfos {
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
	if h.outer[bucket] == nil {
		return fmt.Errorf("there are no tables of 1<<%d entries", bucket)
	}
	if _, stored := h.files[file]; stored {
		return fmt.Errorf("the table of file %x is stored already", file)
	}
	if err := h.quotas.tables[bucket].take(h.user, 1); err != nil {
		return err
	}
	if err := h.quotas.tableBytes.take(h.user, tableBytes(uint(bucket))); err != nil {
		h.quotas.tables[bucket].give(h.user, 1)
		return err
	}
	h.files[file] = storedFile{user: h.user, bucket: bucket}
	return nil
}

// releaseTable is called for a file whose table is not there any more.
func (h *handler) releaseTable(file host.FileID) {
	stored, ok := h.files[file]
	if !ok {
		return
	}
	delete(h.files, file)
	h.quotas.tables[stored.bucket].give(stored.user, 1)
	h.quotas.tableBytes.give(stored.user, tableBytes(uint(stored.bucket)))
	h.quotas.pages.give(stored.user, stored.pages)
}

func (h *handler) storeTable(file host.FileID, bucket uint16, deltas []ebpfapi.StackDeltaEBPF) error {
	table, err := h.newTable(bucket)
	if err != nil {
		return err
	}
	defer table.Close()
	keys := make([]uint32, len(deltas))
	values := make([]support.StackDelta, len(deltas))
	for i, d := range deltas {
		keys[i], values[i] = uint32(i), support.StackDelta{AddrLow: d.AddressLow, UnwindInfo: d.UnwindInfo}
	}
	if len(keys) > 0 {
		if _, err := table.BatchUpdate(keys, values, nil); err != nil {
			return err
		}
	}
	return h.outer[bucket].Update(uint64(file), table, ebpf.UpdateAny)
}

// DeleteExeIDToStackDeltas deletes a file's table, after its pages. The engine's own would do that
// at some later time.
func (h *handler) DeleteExeIDToStackDeltas(file host.FileID, bucket uint16) error {
	outer := h.outer[bucket]
	if outer == nil {
		return fmt.Errorf("there are no tables of 1<<%d entries", bucket)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releaseTable(file)
	return outer.Delete(uint64(file))
}
