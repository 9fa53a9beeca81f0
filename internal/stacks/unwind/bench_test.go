package unwind

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/self"
	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

// loopsWithChecks returns x86-64 code with so many checks, ten in each loop, all in one more loop, and what a JVM
// would have of it.
func loopsWithChecks(checks int) ([]byte, *methodTables) {
	t := &methodTables{entries: []int32{0}, safepoints: make(map[int32]bool), notes: make(map[int32]opcode)}
	t.isTrap = func(instruction, int32) bool { return true }
	var code []byte
	jump := func(op []byte, to int) {
		code = append(code, op...)
		code = binary.LittleEndian.AppendUint32(code, uint32(to-len(code)-4))
	}
	const checkBytes, loopBytes = 3 + 2 + 2 + 6, 2 + 6
	traps := checks*checkBytes + (checks/10+1)*loopBytes + 1
	for loop := range checks / 10 {
		begin := len(code)
		for check := range 10 {
			code = append(code, 0x8b, 0x04, 0x81, 0x01, 0xc8) // mov, add
			t.notes[int32(len(code))] = opcode{number: iadd}
			code = append(code, 0x39, 0xd0)                   // cmp
			jump([]byte{0x0f, 0x83}, traps+5*(10*loop+check)) // jae
		}
		code = append(code, 0x01, 0xc9) // add
		jump([]byte{0x0f, 0x85}, begin) // jne
	}
	code = append(code, 0x01, 0xc9)
	jump([]byte{0x0f, 0x85}, 0)
	code = append(code, 0xc3)
	for range checks {
		jump([]byte{0xe8}, 0)
		t.safepoints[int32(len(code))] = true
	}
	return code, t
}

// nameless are frames of no names: those of each place are its own.
type nameless struct{}

func (nameless) root(places []int32) ([]Frame, error) {
	if len(places) != 1 {
		return []Frame{{Function: "main"}}, nil
	}
	return []Frame{{Line: uint32(places[0])}, {Function: "main"}}, nil
}

func (nameless) lasting([]int32) int                  { return 1 }
func (nameless) callsNone(int32, int) bool            { return false }
func (nameless) callsBetween(_, _ []int32, _ int) int { return 0 }
func (nameless) inLoop([]int32, int) (int, bool)      { return 1, false }
func (nameless) areSame(_, _ []int32) bool            { return false }

// BenchmarkLeaf measures the CPU time of following a compiled method, once as long as it is kept, and of finding a
// place in it, once for each that is sampled. That of reading and naming PcDescs comes on top.
func BenchmarkLeaf(b *testing.B) {
	for _, checks := range []int{100, 1000} {
		code, t := loopsWithChecks(checks)
		at := func(offset int32) instruction {
			var here [maxInstructionBytes]byte
			copy(here[:], code[offset:])
			return decodeX86(here[:])
		}
		follow := func() *flow { return newFlow(t, int32(len(code)), at, maxInstructions) }
		g := follow()
		assert.Assert(b, g != nil && g.whole)
		n := g.find(3, false)
		for name, do := range map[string]func(){
			"follow": func() { follow() },
			"find": func() {
				_, _, err := g.leaf(n, false, nameless{})
				assert.NilError(b, err)
			},
		} {
			b.Run(fmt.Sprintf("%s/instructions=%d", name, len(g.nodes)), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				before := self.CPUTime(unix.RUSAGE_THREAD)
				for b.Loop() {
					do()
				}
				used := self.CPUTime(unix.RUSAGE_THREAD) - before
				b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
				b.ReportMetric(float64(g.bytes())/1024, "kB")
			})
		}
	}
}

// BenchmarkStartup measures the CPU time, of agent and worker, from the first process of a host to the first names of
// its stacks, by what it is for.
func BenchmarkStartup(b *testing.B) {
	testenv.NeedRoot(b)
	j := startProgram(b, "17", []string{"Recursion", "1", "10"})
	ctx := b.Context()
	var phases []string
	sums := make(map[string]time.Duration)
	for b.Loop() {
		var e *Engine
		var last, lastOfWorker time.Duration
		phase := func(name string, do func() error) {
			b.Helper()
			assert.NilError(b, do(), name)
			now, ofWorker := self.Clock(unix.CLOCK_PROCESS_CPUTIME_ID), time.Duration(0)
			if e != nil && e.worker != nil {
				var err error
				ofWorker, err = procscan.CPUTime(e.worker.PID())
				assert.NilError(b, err)
			}
			if name != "" {
				sums[name] += now - last + ofWorker - lastOfWorker
				if !slices.Contains(phases, name) {
					phases = append(phases, name)
				}
			}
			last, lastOfWorker = now, ofWorker
		}
		var types *KernelTypes
		phase("", func() error { return nil })
		phase("kernel's types", func() (err error) {
			types, err = ReadKernelTypes()
			return err
		})
		phase("programs", func() (err error) {
			e, err = open(ctx, Options{ProcRoot: "/proc", Types: types}, new(Counters), Kind())
			return err
		})
		phase("worker", func() error { return e.serve(ctx, selfUser, nil, func() error { return nil }) })
		phase("test", func() error { return e.selfTest(ctx, "/proc") })
		phase("JVM", func() error {
			_, err := e.Synchronize(ctx, j.target)
			return err
		})
		var stack collected
		phase("", func() error {
			c, err := newCollector(e.chain)
			assert.NilError(b, err)
			defer c.close()
			assert.NilError(b, e.chain.setLast(c.program))
			of := &testEngine{Engine: e, collector: c}
			of.sample(b)
			for stack = of.next(b, j.target); stack.failure != 0; stack = of.next(b, j.target) {
			}
			return nil
		})
		phase("names", func() error {
			_, err := e.Frames(ctx, j.target, [][]uint64{stack.words})
			return err
		})
		assert.NilError(b, e.Close())
	}
	for _, name := range phases {
		b.ReportMetric(float64(sums[name].Microseconds())/1000/float64(b.N), strings.ReplaceAll(name, " ",
			"-")+"-cpu-ms")
	}
}
