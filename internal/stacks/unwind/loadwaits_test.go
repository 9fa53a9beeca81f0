package unwind

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// All programs of the chain load for waits, too, in a table of their own, which stays as long as the chain: also those
// of runtimes, whether they were switched on before or are later.
func TestLoadForWaits(t *testing.T) {
	testenv.NeedUnwinding(t)
	c, err := loadUntil(t.Context(), nil)
	assert.NilError(t, err)
	defer c.close()
	for i, kind := range runtimeKinds {
		if i == 1 {
			assert.Check(t, c.waits == nil)
			c.loadWaits()
			loaded := c.waits
			c.loadWaits()
			assert.Check(t, loaded != nil && c.waits == loaded)
		}
		_, err := c.loadRuntime(kind)
		assert.NilError(t, err)
		assert.NilError(t, c.noWaits)
	}
	runtime.GC()
	for _, index := range append(kindIndexes(), support.ProgUnwindNative, support.ProgUnwindHotspot) {
		ids := make(map[uint32]bool)
		for _, table := range []*ebpf.Map{c.maps[programsMap], c.waits.next} {
			var id uint32
			assert.NilError(t, table.Lookup(index, &id))
			ids[id] = true
		}
		assert.Check(t, len(ids) == 2, "program %d: %v", index, ids)
	}
	for _, p := range c.waits.programs {
		assert.Check(t, p.Type() == ebpf.RawTracepoint)
	}
}

// An engine walks no waits until it is told to, and none after it is closed.
func TestLoadWaits(t *testing.T) {
	e := openEngine(t)
	before := e.Unwinder()
	assert.Check(t, before.WaitEntry == nil && before.WaitError == nil)
	assert.NilError(t, e.LoadWaits(t.Context()))
	assert.NilError(t, e.NoWaits())
	after := e.Unwinder()
	assert.Check(t, after.WaitEntry != nil && after.SetWaitLast != nil)
	e.interrupt()
	assert.ErrorIs(t, e.LoadWaits(t.Context()), ErrClosed)
}

func kindIndexes() (all []uint32) {
	for _, kind := range runtimeKinds {
		all = append(all, kind.index)
	}
	return all
}

// That a runtime's program cannot be called for waits is said, and no failure of the runtime.
func TestLoadForWaitsFails(t *testing.T) {
	testenv.NeedUnwinding(t)
	c, err := loadUntil(t.Context(), nil)
	assert.NilError(t, err)
	defer c.close()
	c.loadWaits()
	assert.NilError(t, c.waits.next.Freeze())
	_, err = c.loadRuntime(runtimeKinds[0])
	assert.NilError(t, err)
	assert.ErrorIs(t, c.noWaits, unix.EPERM)
}

// Programs that do not look at what was interrupted, or do so twice, are not changed but refused.
func TestWithoutRegisters(t *testing.T) {
	full, err := support.LoadCollectionSpec()
	assert.NilError(t, err)
	entry := full.Programs[entryProgram].Copy().Instructions
	twice := append(append(asm.Instructions{}, entry...), entry...)
	assert.ErrorContains(t, withoutRegisters(twice), "2 times")
	assert.NilError(t, withoutRegisters(entry))
	assert.ErrorContains(t, withoutRegisters(entry), "0 times")
}
