package unwind

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"correlator/internal/lab/testenv"
)

// Tables of files, of any size, are stored together when a process is synchronized, or when there are many. One that
// is deleted before is not stored, and nothing of it is counted.
func TestPendingTables(t *testing.T) {
	testenv.NeedRoot(t)
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_INNER_MAP}
	spec := &ebpf.MapSpec{Type: ebpf.HashOfMaps, KeySize: 8, ValueSize: 4, MaxEntries: 64, InnerMap: inner}
	outer, err := ebpf.NewMap(spec)
	assert.NilError(t, err)
	defer outer.Close()
	h, _ := madeUp()
	h.tables = outer
	h.newTable = func(bucket uint16, _ []ebpfapi.StackDeltaEBPF) (*ebpf.Map, error) {
		spec := inner.Copy()
		spec.MaxEntries = 1 << bucket
		return ebpf.NewMap(spec)
	}
	stored := func() []uint64 {
		files := make(map[uint64]bool)
		var file uint64
		var id uint32
		for all := outer.Iterate(); all.Next(&file, &id); {
			files[file] = true
		}
		return slices.Sorted(maps.Keys(files))
	}
	h.begin("user")
	for file := range 3 {
		_, err := h.UpdateExeIDToStackDeltas(host.FileID(file), make([]ebpfapi.StackDeltaEBPF, 300*file))
		assert.NilError(t, err)
	}
	assert.NilError(t, h.DeleteExeIDToStackDeltas(1, 0))
	assert.Check(t, len(stored()) == 0, "each waits for programs to end")
	assert.NilError(t, h.flush())
	assert.Check(t, slices.Equal(stored(), []uint64{0, 2}) && len(h.pending) == 0, "%d are stored", stored())
	assert.Check(t, h.quotas.tables.budget.Used() == 2)
	assert.NilError(t, h.DeleteExeIDToStackDeltas(0, 0))
	assert.Check(t, slices.Equal(stored(), []uint64{2}), "%d are stored", stored())
	assert.NilError(t, h.DeleteExeIDToStackDeltas(2, 0))

	h.begin("hostile") // the engine panics after it has stored the file
	pages := h.EbpfHandler.(*madeUpTables).pages
	assert.Check(t, cmp.Panics(func() {
		h.store(mappedFile{1, 1}, time.Now(), func() bool {
			_, err := h.UpdateExeIDToStackDeltas(3, nil)
			assert.NilError(t, err)
			assert.NilError(t, h.UpdateStackDeltaPages(3, make([]uint16, 4), madeUpBucket, 1<<20))
			assert.Check(t, len(pages) == 4)
			panic("a loader")
		})
	}))
	assert.NilError(t, h.flush())
	assert.Check(t, len(stored()) == 0 && len(pages) == 0, "%d, %v are left", stored(), pages)
	for _, q := range h.quotas.all() {
		assert.Check(t, q.budget.Used() == 0, "%d are counted", q.budget.Used())
	}

	h.begin("another") // another half of what there is
	for file := range maxPending - 1 {
		_, err := h.UpdateExeIDToStackDeltas(host.FileID(100+file), nil)
		assert.NilError(t, err)
	}
	assert.Check(t, len(stored()) == 0, "%d are stored", stored())
	_, err = h.UpdateExeIDToStackDeltas(200, nil)
	assert.Check(t, err == nil && len(stored()) == maxPending && len(h.pending) == 0, "%d are stored: %v",
		len(stored()), err)
	h.begin("user")
	_, err = h.UpdateExeIDToStackDeltas(300, nil)
	assert.NilError(t, err)
	spec.KeySize = 4
	h.tables, err = ebpf.NewMap(spec)
	assert.NilError(t, err)
	defer h.tables.Close()
	assert.Check(t, h.flush() != nil && h.result(0).full && h.result(0).errors == 1, "%+v", h.result(0))
}
