package unwind

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/support"
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
	errFull   = errors.New("the table of ways to unwind a frame is full")
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
	maxInfos uint32 // entries of the table of ways to unwind a frame

	mu      sync.Mutex // the engine cleans up on a goroutine of its own
	errors  uint64
	failure error // the first one
	infos   int
	full    bool // there was no room for a way to unwind a frame; the file is not tried again
	read    bool // a file was read, since takeFilesRead
	ranges  map[libpf.PID]map[host.FileID][]codeRange
	count   map[libpf.PID]int // of ranges, of files and of JVMs
	jvms    map[libpf.PID]struct{}
}

// newHandler returns a handler around the engine's own. newTable makes a table of 1<<bucket entries.
func newHandler(own ebpfapi.EbpfHandler, tables map[string]*ebpf.Map,
	newTable func(bucket uint16) (*ebpf.Map, error)) *handler {
	h := &handler{
		EbpfHandler: own, outer: make(map[uint16]*ebpf.Map), newTable: newTable,
		ranges: make(map[libpf.PID]map[host.FileID][]codeRange), count: make(map[libpf.PID]int),
		jvms: make(map[libpf.PID]struct{}), maxInfos: tables[infosMap].MaxEntries(),
	}
	for bucket := uint16(support.StackDeltaBucketSmallest); bucket <= support.StackDeltaBucketLargest; bucket++ {
		h.outer[bucket] = tables[fmt.Sprintf(outerFormat, bucket)]
	}
	return h
}

// begin prepares a synchronization.
func (h *handler) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors, h.failure, h.infos = 0, nil, 0
}

// result returns what the synchronization came to; ready: the process's JVM can be unwound.
func (h *handler) result(pid libpf.PID) (errors uint64, failure error, ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ready = h.jvms[pid]
	return h.errors, h.failure, ready
}

// isFull reports whether there was no room for a way to unwind a frame.
func (h *handler) isFull() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full
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
	if h.failure == nil {
		h.failure = err
	}
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

// reserve counts an entry of a process in the table of mappings.
func (h *handler) reserve(pid libpf.PID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count[pid] == maxRanges {
		return errRanges
	}
	h.count[pid]++
	return nil
}

func (h *handler) release(pid libpf.PID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count[pid]--; h.count[pid] <= 0 {
		delete(h.count, pid)
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
	err := h.EbpfHandler.UpdateProcData(kind, pid, data)
	if err == nil {
		h.mu.Lock()
		h.jvms[pid] = struct{}{}
		h.mu.Unlock()
	}
	return h.note("storing the layout of a JVM", err)
}

// DeleteProcData deletes what UpdateProcData has stored.
func (h *handler) DeleteProcData(kind libpf.InterpreterType, pid libpf.PID) error {
	if kind != libpf.HotSpot {
		return errAPM
	}
	h.mu.Lock()
	delete(h.jvms, pid)
	h.mu.Unlock()
	return h.EbpfHandler.DeleteProcData(kind, pid)
}

// UpdatePidInterpreterMapping stores where a JVM's generated code is.
func (h *handler) UpdatePidInterpreterMapping(pid libpf.PID, prefix lpm.Prefix, program uint8, file host.FileID,
	bias uint64) error {
	err := h.reserve(pid)
	if err == nil {
		if err = h.EbpfHandler.UpdatePidInterpreterMapping(pid, prefix, program, file, bias); err != nil {
			h.release(pid)
		}
	}
	return h.note("storing a JVM's code", err)
}

// DeletePidInterpreterMapping deletes what UpdatePidInterpreterMapping has stored.
func (h *handler) DeletePidInterpreterMapping(pid libpf.PID, prefix lpm.Prefix) error {
	err := h.EbpfHandler.DeletePidInterpreterMapping(pid, prefix)
	if err == nil {
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
	err := h.reserve(pid)
	if err == nil {
		if err = h.EbpfHandler.UpdatePidPageMappingInfo(pid, prefix, file, bias); err != nil {
			h.release(pid)
		}
	}
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
				h.count[pid]--
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
	if h.count[pid] <= 0 {
		delete(h.count, pid)
	}
	return deleted, err
}

// UpdateUnwindInfo stores a way to unwind a frame.
func (h *handler) UpdateUnwindInfo(index uint16, info stackdeltatypes.UnwindInfo) error {
	h.mu.Lock()
	h.infos++
	tooMany, full := h.infos > maxUnwindInfos, uint32(index) >= h.maxInfos
	h.full = h.full || full
	h.mu.Unlock()
	var err error
	switch {
	case tooMany:
		err = errInfos
	case full:
		err = errFull
	default:
		err = h.EbpfHandler.UpdateUnwindInfo(index, info)
	}
	return h.note("storing ways to unwind", err)
}

// UpdateStackDeltaPages stores which part of a file's table is that of which part of its code.
func (h *handler) UpdateStackDeltaPages(file host.FileID, deltas []uint16, bucket uint16, first uint64) error {
	if len(deltas) > maxPagesOfFile {
		return h.note("storing a file", errPages)
	}
	return h.note("storing a file", h.EbpfHandler.UpdateStackDeltaPages(file, deltas, bucket, first))
}

// UpdateExeIDToStackDeltas stores a file's table, in a table that the agent makes.
func (h *handler) UpdateExeIDToStackDeltas(file host.FileID, deltas []ebpfapi.StackDeltaEBPF) (uint16, error) {
	h.mu.Lock()
	h.read = true
	h.mu.Unlock()
	bucket := uint16(max(bits.Len32(uint32(len(deltas))), support.StackDeltaBucketSmallest))
	return bucket, h.note("storing a file's table", h.storeTable(file, bucket, deltas))
}

func (h *handler) storeTable(file host.FileID, bucket uint16, deltas []ebpfapi.StackDeltaEBPF) error {
	outer := h.outer[bucket]
	if outer == nil {
		return fmt.Errorf("none is for %d entries", len(deltas))
	}
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
	return outer.Update(uint64(file), table, ebpf.UpdateAny)
}

// DeleteExeIDToStackDeltas deletes a file's table. The engine's own would do that at some later time.
func (h *handler) DeleteExeIDToStackDeltas(file host.FileID, bucket uint16) error {
	outer := h.outer[bucket]
	if outer == nil {
		return fmt.Errorf("there are no tables of 1<<%d entries", bucket)
	}
	return outer.Delete(uint64(file))
}
