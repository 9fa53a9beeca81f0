package inspect

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/testenv"
)

// Processes of which OBI has contexts have that among theirs, and others are named. Nothing is said where there is no
// OBI.
func TestOBI(t *testing.T) {
	testenv.NeedRoot(t)
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC) // mounted nowhere
	assert.NilError(t, err)
	defer unix.Close(fs)
	assert.NilError(t, unix.FsconfigSetString(fs, "mode", "0700"))
	assert.NilError(t, unix.FsconfigCreate(fs))
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(mount)
	path := fmt.Sprintf("/proc/self/fd/%d/traces_ctx_v1", mount)
	published := []string{"elastic", ""}[:1]
	own := os.Getpid()
	processes := []Process{{View: process.View{PID: own, Contexts: published}},
		{View: process.View{PID: 1<<22 + 8}}} // none has that
	line, err := AddOBI(path, processes)
	assert.Check(t, line == "" && err == nil && len(processes[0].Contexts) == 1, "%q, %v", line, err)

	contexts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 8, ValueSize: 24, MaxEntries: 1 << 14})
	assert.NilError(t, err)
	defer contexts.Close()
	assert.NilError(t, contexts.Pin(path))
	other := exec.Command("cat")
	testenv.Start(t, other)
	sampler, err := bpf.OpenSampler(bpf.SamplerOptions{})
	assert.NilError(t, err)
	defer sampler.Close()
	for _, pid := range []int{own, other.Process.Pid} {
		identity, err := sampler.Identify(pid)
		assert.NilError(t, err)
		for thread := range uint64(3) {
			assert.NilError(t, contexts.Put(uint64(identity.KernelPID())<<32|thread, make([]byte, 24)))
		}
	}
	line, err = AddOBI(path, processes)
	assert.Check(t, line == "" && err == nil, "nobody writes it: %q, %v", line, err)
	writer, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapPtr(asm.R1, contexts.FD()), asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	assert.NilError(t, err)
	defer writer.Close()
	line, err = AddOBI(path, processes)
	assert.NilError(t, err)
	assert.Check(t, strings.HasSuffix(line, fmt.Sprint(": ", other.Process.Pid)) && len(processes[1].Contexts) == 0,
		line)
	assert.Check(t, slices.Equal(processes[0].Contexts, []string{"elastic", "obi"}) && published[:2][1] == "")
}

// Of many, some are named.
func TestDescribeOBI(t *testing.T) {
	assert.Check(t, strings.HasSuffix(describeOBI([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), "9 10 and 2 more"))
}
