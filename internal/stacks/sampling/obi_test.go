package sampling

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/bpf"
	"correlator/internal/attach/process"
	"correlator/internal/lab/testenv"
	"correlator/internal/worker/access/accesstest"
	"correlator/profile"
)

// mountBPF returns a directory of a bpf file system that is mounted nowhere.
func mountBPF(t *testing.T) string {
	t.Helper()
	testenv.NeedRoot(t)
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	assert.NilError(t, err)
	defer unix.Close(fs)
	assert.NilError(t, unix.FsconfigSetString(fs, "mode", "0700"))
	assert.NilError(t, unix.FsconfigCreate(fs))
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

// pinOBI pins a map as OBI's, and returns it with a program that uses it.
func pinOBI(t *testing.T, path string) (*ebpf.Map, *ebpf.Program) {
	t.Helper()
	contexts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 8, ValueSize: 24, MaxEntries: 1 << 14})
	assert.NilError(t, err)
	t.Cleanup(func() { _ = contexts.Close() })
	assert.NilError(t, contexts.Pin(path))
	writer, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapPtr(asm.R1, contexts.FD()), asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	assert.NilError(t, err)
	t.Cleanup(func() { _ = writer.Close() })
	return contexts, writer
}

// obiSink counts samples with OBI's context, and others.
type obiSink struct {
	t            *testing.T
	with, others atomic.Uint64
}

var obiContext = profile.Sample{Context: profile.OTelContext, TraceID: [16]byte{1, 2, 15: 16}, SpanID: [8]byte{3, 7: 4}}

func (o *obiSink) Sampled(s profile.Sample) {
	switch {
	case !s.HasTrace():
		o.others.Add(s.Count)
	case s.Context == obiContext.Context && s.TraceID == obiContext.TraceID && s.SpanID == obiContext.SpanID &&
		s.TransactionID == [8]byte{}:
		o.with.Add(s.Count)
	default:
		o.t.Errorf("%+v", s)
	}
}

func (*obiSink) Waited(profile.Sample)                 {}
func (*obiSink) Flush()                                {}
func (*obiSink) Accounted(*profile.Account)            {}
func (*obiSink) Refused(process.SampleOutcome, uint64) {}

// A process that publishes nothing and is chosen is sampled, and has the contexts that OBI has of it, from when its map
// appears until that has no writer; whoever lists the process sees whose they are.
func TestOBI(t *testing.T) {
	path := filepath.Join(mountBPF(t), "traces_ctx_v1")
	s := openWith(t, Options{SamplerOptions: bpf.SamplerOptions{OBI: path, BySpan: true}})
	command := exec.Command("sh", "-c", "while :; do :; done")
	assert.NilError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	found := findProcess(t, command.Process.Pid)
	target, err := process.Open(accesstest.Open(t), "/proc", found, process.Filter{All: true})
	assert.NilError(t, err)
	defer target.Close()
	assert.NilError(t, target.Load())
	sink := &obiSink{t: t}
	sampler := NewProcessSampler(s.Sampling, target, func(bpf.ExecID) Sink { return sink }, new(atomic.Bool), time.Hour)
	assert.Check(t, sampler.Start() == nil && !sampler.IsRunning()) // its samples would be of no use
	sees := func() []string {
		sampler.Serve()
		sampler.Probe()
		var view process.View
		target.Describe(&view)
		return view.Contexts
	}

	contexts, writer := pinOBI(t, path)
	identity, err := s.sampler.Identify(command.Process.Pid)
	assert.NilError(t, err)
	entry := slices.Concat(obiContext.TraceID[:], obiContext.SpanID[:])
	thread := uint64(identity.KernelPID()) * (1<<32 + 1)
	s.poll("OBI's map", func() bool { return sampler.Start() == nil && sampler.IsRunning() })
	assert.NilError(t, contexts.Put(thread, entry)) // what was there before may be of a former OBI
	s.poll("samples with OBI's context", func() bool { return slices.Equal(sees(), []string{"obi"}) && sink.with.Load() > 0 })
	assert.NilError(t, writer.Close())
	s.poll("the end of OBI", func() bool { return !s.obi.Load() })
	s.end()
	assert.Check(t, sink.others.Load() == 0)
	assert.NilError(t, sampler.Close())
	assert.NilError(t, os.Remove(path))
}
