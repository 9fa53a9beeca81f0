package unwind

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/processmanager"
	"go.opentelemetry.io/ebpf-profiler/processmanager/ebpfapi"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"correlator/internal/lab/testenv"
	"correlator/internal/stacks/unwind/deltas"
)

// newFileTables returns a table of tables of files, and a function that makes those.
func newFileTables(t *testing.T) (outer *ebpf.Map, newTable func(uint16, []ebpfapi.StackDeltaEBPF) (*ebpf.Map, error)) {
	t.Helper()
	testenv.NeedRoot(t)
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_INNER_MAP}
	spec := &ebpf.MapSpec{Type: ebpf.HashOfMaps, KeySize: 8, ValueSize: 4, MaxEntries: 64, InnerMap: inner}
	outer, err := ebpf.NewMap(spec)
	assert.NilError(t, err)
	t.Cleanup(func() { outer.Close() })
	return outer, func(bucket uint16, _ []ebpfapi.StackDeltaEBPF) (*ebpf.Map, error) {
		spec := inner.Copy()
		spec.MaxEntries = 1 << bucket
		return ebpf.NewMap(spec)
	}
}

// Tables of files, of any size, are stored together when a process is synchronized, or when there are many. One that
// is deleted before is not stored, and nothing of it is counted.
func TestPendingTables(t *testing.T) {
	outer, newTable := newFileTables(t)
	h, _ := madeUp()
	h.tables, h.newTable = outer, newTable
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
	_, err := h.UpdateExeIDToStackDeltas(200, nil)
	assert.Check(t, err == nil && len(stored()) == maxPending && len(h.pending) == 0, "%d are stored: %v",
		len(stored()), err)
	h.begin("user")
	_, err = h.UpdateExeIDToStackDeltas(300, nil)
	assert.NilError(t, err)
	var other error
	h.tables, other = newTable(0, nil) // no table of tables
	assert.NilError(t, other)
	defer h.tables.Close()
	assert.Check(t, h.flush() != nil && h.result(0).full && h.result(0).errors == 1, "%+v", h.result(0))
}

// panicking panics at the C library.
type panicking struct {
	nativeunwind.StackDeltaProvider
}

func (p panicking) GetIntervalDataForFile(ref *pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
	if strings.Contains(ref.FileName(), "/libc") {
		panic("a loader")
	}
	return p.StackDeltaProvider.GetIntervalDataForFile(ref)
}

// What the engine has stored of a process before it panics is deleted as that of any process which has ended.
func TestStoredBeforePanic(t *testing.T) {
	h, _ := madeUp()
	h.tables, h.newTable = newFileTables(t)
	h.quotas = newQuotas(1<<10, func(string) uint64 { return 1 << 16 })
	s := &server{procRoot: "/proc", handler: h, targets: make(map[libpf.PID]*target), pages: newPages()}
	s.budget.reset()
	s.deltas = deltas.NewProvider()
	s.provider = provider{StackDeltaProvider: panicking{s.deltas}, handler: h, uncorrected: &s.deltas.Uncorrected}
	var err error
	s.manager, err = processmanager.New(t.Context(), processmanager.Config{
		InterpretersConfig: runtimesConfig(), MonitorInterval: time.Hour, ExecutableUnloadDelay: time.Millisecond,
		EbpfHandler: h, StackDeltaProvider: &s.provider,
	})
	assert.NilError(t, err)
	cmd := exec.Command("cat")
	stdin, stdout := testenv.Start(t, cmd)
	_, err = stdin.Write([]byte{'x'})
	assert.NilError(t, err)
	_, err = stdout.Read(make([]byte, 1)) // it has mapped all
	assert.NilError(t, err)
	of := identify(t, cmd.Process.Pid)
	result := s.synchronize(&synchronize{ID: of.ID, KernelPID: of.KernelPID, User: of.User})
	assert.Check(t, result.Outcome == outcomeFailed && strings.HasPrefix(result.Failure, errEngine.Error()), "%+v",
		result)
	assert.Check(t, h.read && len(s.targets) == 0)
	testenv.Poll(t, deadline, "all tables to be deleted", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.quotas.tables.budget.Used()+h.quotas.pages.budget.Used() == 0
	})
}
