package main

import (
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
)

// mountBPF mounts a bpf file system that only the thread of the calling goroutine, and the
// processes that it starts, can see, and returns its directory. The thread ends with the goroutine.
func mountBPF(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	runtime.LockOSThread()
	assert.NilError(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	assert.NilError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	assert.NilError(t, unix.Mount("bpf", dir, "bpf", 0, ""))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func pinnedTargets(t *testing.T, path string) (pids []int) {
	t.Helper()
	table, err := ebpf.LoadPinnedMap(path, nil)
	assert.NilError(t, err)
	defer table.Close()
	const pidOffset = 140 // in struct correlator_target of bpf/correlator.h
	var key uint32
	var value [168]byte
	all := table.Iterate()
	for all.Next(&key, &value) {
		pids = append(pids, int(binary.NativeEndian.Uint32(value[pidOffset:])))
	}
	assert.NilError(t, all.Err())
	return pids
}

// rootAlone checks the type and mode of a file, and that only root has access.
func rootAlone(t *testing.T, path string, mode uint32) {
	t.Helper()
	var status unix.Stat_t
	assert.NilError(t, unix.Lstat(path, &status))
	assert.Check(t, status.Mode == mode && status.Uid == 0 && status.Gid == 0,
		"%s: mode %#o, owner %d:%d", path, status.Mode, status.Uid, status.Gid)
}

// Other programs can use the table of targets while an agent runs, whether or not it samples.
func TestPinMaps(t *testing.T) {
	needSampler(t)
	dir := filepath.Join(mountBPF(t), "correlator")
	table := filepath.Join(dir, "targets")
	p := demo.Start(t, demo.Options{Busy: 1})
	inTable := func() {
		t.Helper()
		pids := pinnedTargets(t, table)
		assert.Check(t, slices.Contains(pids, p.PID), "process %d is not among those in the table: %v", p.PID, pids)
	}

	first := startAgent(t, nil, "--pin-maps", dir, "--samples-per-second", "97")
	first.registered(p.PID)
	inTable()
	rootAlone(t, dir, unix.S_IFDIR|0o700)
	rootAlone(t, table, unix.S_IFREG|0o600)
	p.ReportWhen("samples", func(report demo.Report) bool { return report.Samples > 10 })

	refused := exec.Command(installed(t), "run", "--pin-maps", dir)
	output, _ := refused.CombinedOutput()
	if refused.ProcessState.ExitCode() != 1 || !strings.Contains(string(output), dir+" is in use by another sampler") {
		t.Errorf("another agent beside the first: %v, %q", refused.ProcessState, output)
	}
	inTable()

	first.end().addUp(t)
	left := pinnedTargets(t, table)
	assert.Check(t, len(left) == 0, "processes %v are left in the table", left)

	// The same table serves an agent that takes no samples.
	second := startAgent(t, nil, "--pin-maps", dir, "--samples-per-second", "0")
	second.registered(p.PID)
	p.Registration(2) // behind all samples of the first
	inTable()
	before := p.Report()
	after := p.ReportWhen("CPU time", func(report demo.Report) bool {
		return report.CPUInTransactions-before.CPUInTransactions > 200*time.Millisecond
	})
	counted := second.end()
	taken := counted.sum("kernel_") + counted["samples_missed"] + counted["samples_sent"]
	assert.Check(t, taken == 0 && after.Samples == before.Samples, "samples were taken: %v", counted)
	left = pinnedTargets(t, table)
	assert.Check(t, len(left) == 0, "processes %v are left in the table", left)
	clean(t, p.Report())
}
