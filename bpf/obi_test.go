package bpf

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// fakeOBI has a map as OBI makes it, and programs that write it.
type fakeOBI struct {
	t        testing.TB
	path     string
	contexts *ebpf.Map
	writer   *ebpf.Program
}

// obiSpec has types, as OBI's: up to Linux 6.1, only maps that have them are alike.
var obiSpec = ebpf.MapSpec{Name: "traces_ctx_v1", Type: ebpf.LRUHash, KeySize: 8, ValueSize: 24, MaxEntries: 1 << 14,
	Key: &btf.Int{Name: "u64", Size: 8}, Value: &btf.Struct{Name: "obi_ctx_info", Size: 24, Members: []btf.Member{
		{Name: "trace_id", Type: &btf.Array{Index: obiByte, Type: obiByte, Nelems: 16}},
		{Name: "span_id", Type: &btf.Array{Index: obiByte, Type: obiByte, Nelems: 8}, Offset: 16 * 8}}}}

var obiByte = &btf.Int{Name: "unsigned char", Size: 1}

// startOBI pins the map. The test's thread is locked, and has a mount namespace of its own.
func startOBI(t *testing.T) *fakeOBI {
	t.Helper()
	dir := mountBPF(t)
	assert.NilError(t, os.Mkdir(dir, 0o700))
	o := &fakeOBI{t: t, path: filepath.Join(dir, "traces_ctx_v1")}
	o.pin(obiSpec)
	o.write()
	return o
}

// pin puts another map in the place of that which is there.
func (o *fakeOBI) pin(spec ebpf.MapSpec) {
	o.t.Helper()
	o.unpin()
	var err error
	o.contexts, err = ebpf.NewMap(&spec)
	assert.NilError(o.t, err)
	o.t.Cleanup(func() { _ = o.contexts.Close() })
	assert.NilError(o.t, o.contexts.Pin(o.path))
}

func (o *fakeOBI) unpin() {
	o.t.Helper()
	if o.contexts == nil {
		return
	}
	assert.NilError(o.t, o.contexts.Unpin())
}

// load loads a program that puts its three arguments into the map, for the thread that runs it.
func (o *fakeOBI) load(kind ebpf.ProgramType, others ...*ebpf.Map) *ebpf.Program {
	o.t.Helper()
	instructions := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	for _, m := range others {
		instructions = append(instructions, asm.LoadMapPtr(asm.R1, m.FD()))
	}
	for i := range int16(3) {
		value := asm.Mov.Imm(asm.R1, 0)
		if kind == ebpf.RawTracepoint {
			value = asm.LoadMem(asm.R1, asm.R6, 8*i, asm.DWord)
		}
		instructions = append(instructions, value, asm.StoreMem(asm.R10, -24+8*i, asm.R1, asm.DWord))
	}
	instructions = append(instructions, asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.R10, -32, asm.R0, asm.DWord), asm.LoadMapPtr(asm.R1, o.contexts.FD()),
		asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -32), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -24),
		asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return())
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "GPL", Instructions: instructions})
	assert.NilError(o.t, err)
	o.t.Cleanup(func() { _ = program.Close() })
	return program
}

// write loads the program that begin runs, and then ends the former one.
func (o *fakeOBI) write() {
	o.t.Helper()
	former := o.writer
	o.writer = o.load(ebpf.RawTracepoint)
	if former != nil {
		o.end(former)
	}
}

// end unloads a program, which takes until no CPU runs it any more.
func (o *fakeOBI) end(program *ebpf.Program) {
	o.t.Helper()
	info, err := program.Info()
	assert.NilError(o.t, err)
	id, _ := info.ID()
	assert.NilError(o.t, program.Close())
	testenv.Poll(o.t, waiting, "the end of a program", func() bool {
		p, err := ebpf.NewProgramFromID(id)
		if err == nil {
			p.Close()
		}
		return err != nil
	})
}

func obiIDs(number byte) (context obiContext) {
	for i := range context {
		context[i] = number
	}
	return context
}

// begin has the test's thread work on a trace.
func (o *fakeOBI) begin(context obiContext) {
	o.t.Helper()
	_, err := o.writer.Run(&ebpf.RunOptions{Context: context})
	assert.NilError(o.t, err)
}

// follow has the sampler look, and says whether the map is to be read then, and what is to be wrong.
func (o *fakeOBI) follow(s *Sampler, reads bool, wrong string) {
	o.t.Helper()
	read, err := s.FollowOBI()
	assert.Check(o.t, read == reads && (err == nil) == (wrong == ""), "%v, %v", read, err)
	if wrong != "" {
		assert.ErrorContains(o.t, err, wrong)
	}
	again, err := s.FollowOBI()
	assert.Check(o.t, again == reads && err == nil, "%v, %v", again, err)
}

// putOBI puts a map into the sampler that has no contexts.
func putOBI(t testing.TB, s *Sampler) *ebpf.Map {
	t.Helper()
	contexts, err := ebpf.NewMap(&obiSpec)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = contexts.Close() })
	assert.NilError(t, errors.Join(s.objects.OBI.Put(uint32(obiContexts), contexts), s.table.accountAll()))
	return contexts
}

// putOBIContexts gives each thread of a process a context when it leaves a CPU, until stop.
func putOBIContexts(t testing.TB, s *Sampler, contexts *ebpf.Map, pid int) (stop func()) {
	t.Helper()
	identity, err := s.Identify(pid)
	assert.NilError(t, err)
	instructions := asm.Instructions{asm.FnGetCurrentPidTgid.Call(), asm.StoreMem(asm.R10, -32, asm.R0, asm.DWord),
		asm.RSh.Imm(asm.R0, 32), asm.JNE.Imm(asm.R0, int32(identity.KernelPID()), "end"), asm.Mov.Imm(asm.R1, 99)}
	for i := range int16(3) {
		instructions = append(instructions, asm.StoreMem(asm.R10, -24+8*i, asm.R1, asm.DWord))
	}
	instructions = append(instructions, asm.LoadMapPtr(asm.R1, contexts.FD()), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -32), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -24), asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(), asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return())
	program, err := ebpf.NewProgram(
		&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: instructions})
	assert.NilError(t, err)
	defer program.Close()
	attached, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_switch", Program: program})
	assert.NilError(t, err)
	return func() { assert.NilError(t, attached.Close()) }
}

// obiTarget is the test's own process, of which one thread, that of the test, is in the map.
type obiTarget struct {
	*fakeOBI
	s   *Sampler
	tid int
}

func (o *fakeOBI) target(options SamplerOptions) *obiTarget {
	o.t.Helper()
	options.OBI, options.KeepUntraced, options.BySpan, options.ByThread = o.path, true, true, true
	s := openSampler(o.t, options)
	addRules(o.t, s, os.Getpid(), func() TargetRules { return TargetRules{} })
	return &obiTarget{fakeOBI: o, s: s, tid: unix.Gettid()}
}

// ids returns the context of the samples that the test's thread has from now on, zero if they have none.
func (o *obiTarget) ids() (context obiContext) {
	o.t.Helper()
	drainAll(o.t, o.s)
	samples, burnt := 0, 0
	testenv.Poll(o.t, waiting, "samples of the test", func() bool {
		for i := range 1 << 20 {
			burnt ^= i
		}
		for _, c := range drainAll(o.t, o.s) {
			if c.TID != o.tid {
				assert.Check(o.t, !c.OTel, "of another thread: %+v", c)
				continue
			}
			got := obiContext(append(append([]byte{}, c.TraceID[:]...), c.SpanID[:]...))
			assert.Check(o.t, samples == 0 || got == context, "%x, %x", got, context)
			assert.Check(o.t, c.OfOBI == (got != obiContext{}) && c.OTel == c.OfOBI && !c.OfLabels &&
				c.Attributes == nil && c.TransactionID == [8]byte{} && c.TraceFlags == 0, "%+v", c)
			samples, context = samples+1, got
		}
		return samples > 0
	})
	return context
}

func (o *obiTarget) expect(context obiContext) {
	o.t.Helper()
	got := o.ids()
	assert.Check(o.t, got == context, "%x, not %x", got, context)
}

// A thread has the context that OBI's map has for it, as it changes, and none with an entry that lacks an id; the map's
// layout is OBI's, and so is who the key says that it is.
func TestOBI(t *testing.T) {
	o := startOBI(t).target(SamplerOptions{})
	o.follow(o.s, true, "")
	o.expect(obiContext{})
	for number := byte(1); number < 4; number++ {
		o.begin(obiIDs(number))
		o.expect(obiIDs(number))
	}
	processes, err := OBIProcesses(o.path)
	assert.Check(t, err == nil && len(processes) == 1 && processes[os.Getpid()], "%v, %v", processes, err)
	of := readSide(t, o.s).OfOBI
	assert.Check(t, of >= 3)
	for from, to := range map[int]int{0: 24, 1: 16, 17: 24} { // the last two lack the ids in all but a byte, or whole
		context := obiIDs(7)
		clear(context[from:to])
		wanted := context
		if from != 1 {
			wanted = obiContext{}
		}
		if from == 17 {
			context[16], wanted = 0, obiContext{}
		}
		o.begin(context)
		o.expect(wanted)
	}
	before := readCounters(t, o.s)[ZeroIDs]
	o.begin(obiContext{})
	o.expect(obiContext{})
	assert.Check(t, readCounters(t, o.s)[ZeroIDs] > before)
	var thread uint64
	assert.NilError(t, o.contexts.NextKey(nil, &thread))
	o.begin(obiIDs(9))
	o.expect(obiIDs(9))
	assert.NilError(t, o.contexts.Delete(thread))
	o.expect(obiContext{})
}

// Waits of a thread have the context that OBI's map has for it, too, and their stacks its span.
func TestOBIWaits(t *testing.T) {
	o := startOBI(t).target(SamplerOptions{})
	o.follow(o.s, true, "")
	w := openWaits(t, o.s, WaitOptions{Period: time.Millisecond})
	for number := byte(1); number < 3; number++ {
		wanted := obiIDs(number)
		trace, span := [16]byte(wanted[:16]), [8]byte(wanted[16:])
		o.begin(wanted)
		accounts, walks := 0, 0
		testenv.Poll(t, waiting, "waits of the test", func() bool {
			sleepInTest()
			assert.NilError(t, w.Drain(func(a *Account) {
				if a.TID == o.tid && a.TraceID == trace && a.OTel && a.States[Sleep].NS > 0 {
					accounts++
				} else {
					assert.Check(t, a.TID == o.tid && a.TraceID[0] == number-1, "%+v", a)
				}
			}))
			assert.NilError(t, w.DrainWalks(func(walk *Walk) {
				if walk.TraceID == trace {
					assert.Check(t, walk.TID == o.tid && walk.OTel && walk.SpanID == span && len(walk.Attributes) == 0,
						"%+v", walk)
					walks++
				} else {
					assert.Check(t, walk.TraceID[0] == number-1, "%+v", walk)
				}
			}))
			return accounts > 0 && (walks > 0 || w.Walkless() != nil)
		})
	}
}

// A process that publishes contexts itself has these, and its threads without one have none, whatever OBI says.
func TestOBIOwnContexts(t *testing.T) {
	o := startOBI(t)
	s := openSampler(t, SamplerOptions{OBI: o.path, BySpan: true, KeepUntraced: true})
	o.follow(s, true, "")
	p := demo.StartOTel(t, demo.OTelOptions{Form: demo.OTelTLSDESC, Threads: 2})
	rule := otelRule(t, p)
	addRules(t, s, p.PID, func() TargetRules { return TargetRules{OTel: rule} })
	elastic := demo.Start(t, demo.Options{Busy: 1, Manual: true})
	addDemo(t, s, elastic)
	for _, pid := range []int{p.PID, elastic.PID} {
		t.Cleanup(putOBIContexts(t, s, o.contexts, pid))
	}
	p.Begin(1, otelRecord(5, nil))
	p.Busy(1, true)
	p.Busy(2, true) // without a record
	begun := elastic.Begin(1)
	testenv.Poll(t, waiting, "contexts of all threads of both", func() bool {
		entries, err := readOBI(o.contexts)
		return err == nil && len(entries) >= len(taskNumbers(t, p.PID))+len(taskNumbers(t, elastic.PID))
	})
	drainAll(t, s)
	own, of, without := false, false, false
	testenv.Poll(t, waiting, "samples of both processes", func() bool {
		for _, c := range drainAll(t, s) {
			assert.Check(t, !c.OfOBI && c.TraceID[0] != 99, "%+v", c)
			own = own || c.TraceID == otelRecord(5, nil).TraceID
			of = of || c.TraceID == begun.TraceID
			without = without || c.TraceID == [16]byte{}
		}
		return own && of && without
	})
	assert.Check(t, readSide(t, s).OfOBI == 0)
}

// Labels of a goroutine that have ids are its context, and so it is unknown with labels that are refused; with others
// it is what OBI says. So it is for samples and for waits, which have the span and the attributes of labels.
func TestOBIAndLabels(t *testing.T) {
	o := startOBI(t).target(SamplerOptions{Labels: labelKeys, Attributes: LabelAttributes, BySpan: true})
	o.follow(o.s, true, "")
	fake := new(fakeGo)
	layout := fake.layout(t)
	addRules(t, o.s, os.Getpid(), func() TargetRules { return TargetRules{Labels: layout} })
	o.begin(obiIDs(3))
	w := openWalks(t, o.s, WaitOptions{Period: 1})
	for name, test := range map[string]struct {
		labels []string
		obi    bool
		trace  byte
	}{
		"none": {nil, true, 3}, "others": {several(3), true, 3},
		"ids":     {append([]string{"root_id", "00000000000000fe"}, labelTrace...), false, 0x4b},
		"refused": {several(30, labelTrace...), false, 0}, "attributes": {[]string{"span_name", "GET /"}, false, 0},
	} {
		fake.set(false, test.labels...)
		drainAll(t, o.s)
		samples, burnt := 0, 0
		testenv.Poll(t, waiting, "samples with labels: "+name, func() bool {
			for i := range 1 << 20 {
				burnt ^= i
			}
			for _, c := range drainAll(t, o.s) {
				if c.TID == o.tid {
					samples++
					assert.Check(t, c.OfOBI == test.obi && c.TraceID[0] == test.trace, "%s: %+v", name, c)
				}
			}
			return samples > 0
		})
		got := newSpent(t, w)
		unknown := got.counters().Unknown
		sleepInTest() // it leaves the context of before
		got.drain()
		got = newSpent(t, w)
		testenv.Poll(t, waiting, "waits with labels: "+name, func() bool {
			for range 10 {
				sleepInTest()
			}
			got.drain()
			return len(got.walks) > 0 && len(got.traces) > 0 || test.trace == 0
		})
		if name == "refused" {
			assert.Check(t, got.counters().Unknown > unknown)
		}
		for trace, a := range got.traces {
			assert.Check(t, trace[0] == test.trace && a.TID == o.tid && a.OTel, "%s: %+v", name, a)
		}
		for _, walk := range got.walks {
			ids := name == "ids"
			assert.Check(t, walk.TraceID[0] == test.trace && walk.OTel && walk.OfLabels == ids &&
				(string(walk.Attributes) == rootAttribute("00000000000000fe")) == ids &&
				(hex.EncodeToString(walk.SpanID[:]) == recordSpan) == ids, "%s: %+v", name, walk)
		}
	}
	runtime.KeepAlive(fake)
}

// A map that is not as OBI makes it, or that another user has pinned, is not read, which is said once; and one that is
// not pinned any more, or is replaced by another, is not either.
func TestOBIPins(t *testing.T) {
	o := startOBI(t).target(SamplerOptions{})
	o.follow(o.s, true, "")
	o.begin(obiIDs(1))
	o.expect(obiIDs(1))
	o.unpin()
	o.follow(o.s, false, "")
	o.expect(obiContext{})
	assert.NilError(t, o.contexts.Pin(o.path))
	o.follow(o.s, true, "") // nobody knows who wrote it meanwhile
	o.expect(obiContext{})
	o.begin(obiIDs(2))
	o.expect(obiIDs(2))

	o.pin(obiSpec)
	o.write()
	o.begin(obiIDs(3))
	o.expect(obiIDs(2)) // until the sampler looks
	o.follow(o.s, true, "")
	o.expect(obiContext{}) // it may be of a former OBI
	o.begin(obiIDs(4))
	o.expect(obiIDs(4))

	for name, change := range map[string]func(*ebpf.MapSpec){
		"type":  func(m *ebpf.MapSpec) { m.Type = ebpf.Hash },
		"key":   func(m *ebpf.MapSpec) { m.KeySize, m.Key = 16, nil },
		"value": func(m *ebpf.MapSpec) { m.ValueSize, m.Value = 25, nil },
		"flags": func(m *ebpf.MapSpec) { m.Flags = unix.BPF_F_NO_COMMON_LRU },
		"size":  func(m *ebpf.MapSpec) { m.MaxEntries = 2 * maxOBIContexts },
	} {
		spec := obiSpec
		change(&spec)
		o.pin(spec)
		read, err := o.s.FollowOBI()
		assert.Check(t, !read && (err == nil || strings.Contains(err.Error(), errNotOBIs.Error())), "%s: %v", name, err)
		o.expect(obiContext{})
	}
	o.pin(obiSpec)
	o.write()
	o.follow(o.s, true, "")
	o.begin(obiIDs(4))
	o.expect(obiIDs(4))
	for name, change := range map[string]func() error{
		"owner":     func() error { return os.Chown(o.path, 1, 1) },
		"mode":      func() error { return errors.Join(os.Chown(o.path, 0, 0), os.Chmod(o.path, 0o622)) },
		"directory": func() error { return os.Chown(filepath.Dir(o.path), 1, 1) },
	} {
		assert.NilError(t, change())
		read, err := o.s.FollowOBI()
		assert.Check(t, !read && err != nil, "%s: %v", name, err)
		assert.NilError(t, errors.Join(os.Chown(o.path, 0, 0), os.Chmod(o.path, 0o600),
			os.Chown(filepath.Dir(o.path), 0, 0)))
		o.follow(o.s, true, "")
		o.expect(obiContext{}) // who wrote it meanwhile is not known
	}
	path := filepath.Join(t.TempDir(), "traces_ctx_v1")
	assert.NilError(t, os.WriteFile(path, nil, 0o600))
	o.s.options.OBI = path
	o.follow(o.s, false, errNotOBIs.Error())
	o.s.options.OBI = filepath.Join(path, "none")
	o.follow(o.s, false, "")
}

// What is in the map when nobody writes it any more is no context, nor is it that of the next one who writes, until it
// changes: also of one who comes before the sampler looks, at first or later. A profiler that reads the map writes
// nothing.
func TestOBIWriters(t *testing.T) {
	o := startOBI(t).target(SamplerOptions{})
	o.begin(obiIDs(4))
	profilers, err := ebpf.NewMap(&ebpf.MapSpec{Name: "per_cpu_records", Type: ebpf.Array, KeySize: 4, ValueSize: 4,
		MaxEntries: 1})
	assert.NilError(t, err)
	defer profilers.Close()
	readers := []*ebpf.Program{o.load(ebpf.PerfEvent), o.load(ebpf.Kprobe, profilers)}
	o.follow(o.s, true, "")
	o.expect(obiContext{})
	o.begin(obiIDs(1))
	o.expect(obiIDs(1))

	o.end(o.writer)
	o.writer = nil
	o.follow(o.s, false, "")
	o.expect(obiContext{})
	processes, err := OBIProcesses(o.path)
	assert.Check(t, err == nil && len(processes) == 0, "%v, %v", processes, err)
	o.write()
	o.follow(o.s, true, "")
	o.expect(obiContext{})
	o.begin(obiIDs(2))
	o.expect(obiIDs(2))

	another := o.load(ebpf.Kprobe) // of the same OBI
	o.follow(o.s, true, "")
	o.expect(obiIDs(2))
	o.end(another)
	o.follow(o.s, true, "")
	o.expect(obiIDs(2))

	before := o.writer // the next one begins before it ends
	o.writer = nil
	o.write()
	o.follow(o.s, true, "")
	o.expect(obiIDs(2))
	o.end(before)
	o.follow(o.s, true, "")
	o.expect(obiContext{})
	o.begin(obiIDs(5))
	o.expect(obiIDs(5))

	o.write() // at once after the last one
	o.follow(o.s, true, "")
	o.expect(obiContext{})
	o.begin(obiIDs(5)) // no new one would say the same
	o.expect(obiContext{})
	o.begin(obiIDs(3))
	o.expect(obiIDs(3))
	runtime.KeepAlive(readers)
}

// All that a full map has is kept apart.
func TestOBIFormer(t *testing.T) {
	o := startOBI(t)
	s := openSampler(t, SamplerOptions{OBI: o.path})
	o.follow(s, true, "")
	for i := range uint64(obiSpec.MaxEntries) {
		context := obiIDs(1)
		binary.NativeEndian.PutUint64(context[:], i)
		assert.NilError(t, o.contexts.Put(i, context))
	}
	o.write()
	o.follow(s, true, "")
	var id ebpf.MapID
	assert.NilError(t, s.objects.OBI.Lookup(uint32(obiFormer), &id))
	former, err := ebpf.NewMapFromID(id)
	assert.NilError(t, err)
	defer former.Close()
	was, err := readOBI(o.contexts)
	assert.NilError(t, err)
	is, err := readOBI(former)
	assert.NilError(t, err)
	assert.Check(t, len(was) > int(obiSpec.MaxEntries)/2)
	assert.Check(t, maps.Equal(is, was))
}
