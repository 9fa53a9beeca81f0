package unwind

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"go.opentelemetry.io/ebpf-profiler/util"

	"correlator/internal/worker"
)

// errNoRuntime: the kind of runtime is not one of runtimeKinds, or cannot be switched on. For the engine there is
// no such runtime then: its code is native.
var errNoRuntime = errors.New("the runtime is not unwound")

// processData is what the tables have of runtimes of processes, besides where their code is.
type processData struct {
	of map[libpf.InterpreterType]map[libpf.PID]worker.User
	// files are those with code of a runtime.
	files map[host.FileID]runtimeFile
	// on are the tables of the kinds that were asked for, nil for what is refused.
	on map[*runtimeKind]*ebpf.Map
	// switchOn asks the agent for the table of a kind.
	switchOn func(*runtimeKind) (*ebpf.Map, error)
}

// runtimeFile is a file with code of a runtime, which counts against a user's quota.
type runtimeFile struct {
	user worker.User
	kind *runtimeKind
}

func newProcessData() processData {
	return processData{
		of:    make(map[libpf.InterpreterType]map[libpf.PID]worker.User),
		files: make(map[host.FileID]runtimeFile), on: make(map[*runtimeKind]*ebpf.Map),
	}
}

// table returns the table of a kind, which is switched on if it is not yet. What was refused is not asked for
// again by this worker.
func (d *processData) table(kind *runtimeKind) (*ebpf.Map, error) {
	table, asked := d.on[kind]
	if !asked {
		table, _ = d.switchOn(kind) // the agent knows why not
		d.on[kind] = table
	}
	if table == nil {
		return nil, errNoRuntime
	}
	return table, nil
}

// has reports whether there is something of a process.
func (d *processData) has(of libpf.InterpreterType, pid libpf.PID) bool {
	_, stored := d.of[of][pid]
	return stored
}

// kinds returns which runtimes of a process can be unwound, and one which it has mapped and cannot. h.mu must be
// held.
func (h *handler) kinds(pid libpf.PID) (ready []*runtimeKind, missing *runtimeKind) {
	for _, kind := range runtimeKinds {
		if h.data.has(kind.of, pid) {
			ready = append(ready, kind)
		}
	}
	for file := range h.ranges[pid] {
		if kind := h.data.files[file].kind; kind != nil && !h.data.has(kind.of, pid) {
			missing = kind
		}
	}
	return ready, missing
}

// UpdateProcData stores what the programs need of a process with a runtime.
func (h *handler) UpdateProcData(of libpf.InterpreterType, pid libpf.PID, data unsafe.Pointer) error {
	if of == libpf.APMInt {
		return errAPM // and it is no failure
	}
	err := h.storeData(of, pid, data)
	if errors.Is(err, errNoRuntime) {
		return err
	}
	return h.note("storing what is known of a "+of.String()+" process", err)
}

func (h *handler) storeData(of libpf.InterpreterType, pid libpf.PID, data unsafe.Pointer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	quota := h.quotas.processData[of]
	if quota == nil {
		return errNoRuntime
	}
	update := func() error { return h.EbpfHandler.UpdateProcData(of, pid, data) }
	if kind := runtimeBy(func(k *runtimeKind) bool { return k.of == of }); kind != nil {
		table, err := h.data.table(kind)
		if err != nil {
			return err
		}
		update = func() error { return table.Update(uint32(pid), data, ebpf.UpdateAny) }
	}
	if h.data.has(of, pid) {
		return update()
	}
	if err := quota.take(h.user, 1); err != nil {
		return err
	}
	if err := update(); err != nil {
		quota.give(h.user, 1)
		return err
	}
	if h.data.of[of] == nil {
		h.data.of[of] = make(map[libpf.PID]worker.User)
	}
	h.data.of[of][pid] = h.user
	return nil
}

// DeleteProcData deletes what UpdateProcData has stored.
func (h *handler) DeleteProcData(of libpf.InterpreterType, pid libpf.PID) error {
	if of == libpf.APMInt {
		return errAPM
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if user, stored := h.data.of[of][pid]; stored {
		h.quotas.processData[of].give(user, 1)
		delete(h.data.of[of], pid)
	}
	kind := runtimeBy(func(k *runtimeKind) bool { return k.of == of })
	if kind == nil {
		return h.EbpfHandler.DeleteProcData(of, pid)
	}
	table := h.data.on[kind]
	if table == nil {
		return errNoRuntime
	}
	return table.Delete(uint32(pid))
}

// UpdateInterpreterOffsets stores where the code of a runtime is in a file that has a table.
func (h *handler) UpdateInterpreterOffsets(program uint16, file host.FileID, ranges []util.Range) error {
	err := h.storeOffsets(program, file, ranges)
	if errors.Is(err, errNoRuntime) {
		return err
	}
	return h.note("storing where a runtime's code is", err)
}

func (h *handler) storeOffsets(program uint16, file host.FileID, ranges []util.Range) error {
	kind := runtimeBy(func(k *runtimeKind) bool { return k.index == uint32(program) })
	if kind == nil {
		return errNoRuntime
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	stored, ok := h.files[file]
	if !ok {
		return fmt.Errorf("file %x has no table", file)
	}
	if _, err := h.data.table(kind); err != nil {
		return err
	}
	if kind.of == libpf.PHP && h.cold != (util.Range{}) && len(ranges) == 1 {
		ranges = []util.Range{ranges[0], h.cold}
	}
	key, value, err := ebpfapi.InterpreterOffsetKeyValue(program, file, ranges)
	if err != nil {
		return err
	}
	if _, ok := h.data.files[file]; !ok {
		if err := h.quotas.offsets.take(stored.user, 1); err != nil {
			return err
		}
		h.data.files[file] = runtimeFile{stored.user, kind}
	}
	if err := h.offsets.Update(unsafe.Pointer(&key), unsafe.Pointer(&value), ebpf.UpdateAny); err != nil {
		h.releaseOffsets(file)
		return err
	}
	return nil
}

// releaseOffsets deletes where the code of a runtime is in a file, if it has one. The engine never does.
func (h *handler) releaseOffsets(file host.FileID) {
	stored, ok := h.data.files[file]
	if !ok {
		return
	}
	delete(h.data.files, file)
	h.quotas.offsets.give(stored.user, 1)
	_ = h.offsets.Delete(uint64(file)) // it is not there if storing it has failed
}

// changeData changes what the program of a kind knows of a process.
func changeData[Data any](h *handler, of libpf.InterpreterType, pid libpf.PID, change func(*Data)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	table := h.data.on[runtimeBy(func(k *runtimeKind) bool { return k.of == of })]
	if table == nil {
		return errNoRuntime
	}
	var data Data
	if err := table.Lookup(uint32(pid), &data); err != nil {
		return err
	}
	change(&data)
	return table.Update(uint32(pid), &data, ebpf.UpdateExist)
}
