package unwind

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/util"
	"golang.org/x/sys/unix"

	"correlator/internal/worker"
)

const (
	// maxRanges bounds the entries of one process in the table of mappings. A JVM has some 300.
	maxRanges = 4096

	// maxPagesOfFile bounds what one file has of the table of pages, which is for the files of all
	// processes: 128 MB of code.
	maxPagesOfFile = 2048

	// maxUnwindInfos bounds what one file adds to the table of ways to unwind a frame, and the sum after which a
	// synchronization stores no further file. The table has support.UnwindInfoMaxEntries for all processes, and a
	// worker never removes one. libjvm has some 300.
	maxUnwindInfos = 2048
)

var (
	errAPM    = errors.New("the engine is not to correlate with APM agents")
	errRanges = fmt.Errorf("a process has more than %d ranges of mappings", maxRanges)
	errPages  = fmt.Errorf("a file has code in more than %d pages of 64 KiB", maxPagesOfFile)
	errInfos  = fmt.Errorf("files of a process have more than %d ways to unwind a frame", maxUnwindInfos)
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
	tables   *ebpf.Map // those of files
	pending  []pendingTable
	newTable func(bucket uint16, deltas []ebpfapi.StackDeltaEBPF) (*ebpf.Map, error)
	offsets  *ebpf.Map // where the code of runtimes is in files

	mu        sync.Mutex // the engine cleans up on a goroutine of its own
	quotas    *quotas
	user      worker.User // whose process is synchronized
	errors    uint64
	failure   error // the first one
	last      error
	overQuota error // the first that is an errOverQuota
	infos     int   // those that the synchronization has added
	ofFile    int   // of them, those of the file
	underway  fileUnderway
	full      bool       // a table is that will not be cleared as processes end
	read      bool       // a file was read, since takeFilesRead
	cold      util.Range // see coldCode, of the file that was read last
	ranges    map[libpf.PID]map[host.FileID][]codeRange
	count     map[libpf.PID]holding // of ranges, of files and of runtimes
	data      processData
	files     map[host.FileID]storedFile
	deferred  map[mappedFile]deferral
}

// holding is a number of entries that count against a user's quota.
type holding struct {
	user worker.User
	n    int
}

// newHandler returns a handler around the engine's own. newTable makes a table of 1<<bucket entries, the first of which
// are given.
func newHandler(own ebpfapi.EbpfHandler, tables map[string]*ebpf.Map, quotas *quotas,
	newTable func(uint16, []ebpfapi.StackDeltaEBPF) (*ebpf.Map, error)) *handler {
	return &handler{
		EbpfHandler: own, tables: tables[filesMap], newTable: newTable, quotas: quotas,
		ranges: make(map[libpf.PID]map[host.FileID][]codeRange), count: make(map[libpf.PID]holding),
		data: newProcessData(), files: make(map[host.FileID]storedFile), offsets: tables[offsetsMap],
		deferred: make(map[mappedFile]deferral),
	}
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
	runtimes  []*runtimeKind
	missing   *runtimeKind // one that the process has, and cannot be unwound; nil: there is none
}

func (h *handler) result(pid libpf.PID) stored {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready, missing := h.kinds(pid)
	return stored{h.errors, h.failure, h.overQuota, h.full, h.data.has(libpf.HotSpot, pid), ready, missing}
}

func (h *handler) setColdCode(code util.Range) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cold = code
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

// address returns where an address of a file's code is in a process, and with it those around.
func (h *handler) address(pid libpf.PID, file host.FileID, inFile uint64) (addr uint64, around Span, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ranges := h.ranges[pid][file]
	for _, r := range ranges {
		addr := inFile + r.bias
		if (addr^r.prefix.Key)>>(64-r.prefix.Length) != 0 {
			continue
		}
		isElsewhere := func(other codeRange) bool { return other.bias != r.bias }
		if !slices.ContainsFunc(ranges, isElsewhere) { // else others may be there instead
			last := r.prefix.Key | (1<<(64-r.prefix.Length) - 1)
			around.Down = uint32(min(addr-r.prefix.Key, inFile, math.MaxUint32))
			around.Up = uint32(min(last-addr, math.MaxUint32))
		}
		return addr, around, true
	}
	return 0, Span{}, false
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

// UpdatePidInterpreterMapping stores where a runtime's generated code is.
func (h *handler) UpdatePidInterpreterMapping(pid libpf.PID, prefix lpm.Prefix, program uint8, file host.FileID,
	bias uint64) error {
	if kind := runtimeBy(func(k *runtimeKind) bool { return k.index == uint32(program) }); kind != nil {
		h.mu.Lock()
		stored := h.data.has(kind.of, pid)
		h.mu.Unlock()
		if !stored {
			return errNoRuntime // its program may not be loaded: stacks would be lost there
		}
	}
	err := h.storeRange(pid, func() error {
		return h.EbpfHandler.UpdatePidInterpreterMapping(pid, prefix, program, file, bias)
	})
	return h.note("storing a runtime's code", err)
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
