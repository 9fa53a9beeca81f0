package unwind

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
	"correlator/internal/worker"
	"correlator/procscan"
)

const (
	// selfTestTime is the CPU time in which stacks of our own must arrive: that of some samples. How long it takes to
	// get that is no fault of the programs.
	selfTestTime   = time.Second
	selfTestPeriod = time.Millisecond
	// selfTestMajority is how many more stacks have to be right than are not.
	selfTestMajority = 2

	collectorBytes = 1 << 20 // some 40 records
)

// selfUser is nobody else: of it is the process of the self-test.
const selfUser worker.User = "self"

// collector is a last program that hands over whole records.
type collector struct {
	program *ebpf.Program
	records *ebpf.Map
	reader  *ringbuf.Reader
	layout  recordLayout
}

// newCollector loads one.
func newCollector(c *chain) (*collector, error) {
	records, err := ebpf.NewMap(&ebpf.MapSpec{Name: "unwind_collect", Type: ebpf.RingBuf, MaxEntries: collectorBytes})
	if err != nil {
		return nil, fmt.Errorf("creating a ring buffer: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "unwind_collect", Type: ebpf.PerfEvent, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, c.maps[recordsMap].FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.LoadMapPtr(asm.R1, records.FD()),
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.Mov.Imm(asm.R3, int32(c.layout.size)),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnRingbufOutput.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	})
	if err != nil {
		records.Close()
		return nil, fmt.Errorf("loading a program that collects stacks: %w", err)
	}
	reader, err := ringbuf.NewReader(records)
	if err != nil {
		program.Close()
		records.Close()
		return nil, fmt.Errorf("reading a ring buffer: %w", err)
	}
	return &collector{program, records, reader, c.layout}, nil
}

func (c *collector) close() {
	c.reader.Close()
	c.program.Close()
	c.records.Close()
}

// collected is the user half of a stack.
type collected struct {
	pid, tid uint32
	words    []uint64
	failure  uint32
}

// read returns the next stack, or os.ErrDeadlineExceeded.
func (c *collector) read(deadline time.Time) (s collected, err error) {
	c.reader.SetDeadline(deadline)
	record, err := c.reader.Read()
	if err != nil {
		return s, err
	}
	b, l := record.RawSample, &c.layout
	count := uint32(binary.NativeEndian.Uint16(b[l.wordCount:]))
	kernel := uint32(binary.NativeEndian.Uint16(b[l.kernelFrames:]))
	if kernel > count || l.words+8*count > uint32(len(b)) {
		return s, fmt.Errorf("record of %d words, %d of them of the kernel", count, kernel)
	}
	s.pid, s.tid = binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:]) // first in a trace
	s.failure = binary.NativeEndian.Uint32(b[l.failure:])
	for i := kernel; i < count; i++ {
		s.words = append(s.words, binary.NativeEndian.Uint64(b[l.words+8*i:]))
	}
	return s, nil
}

// selfTest unwinds and names a stack of our own, by all of the chain.
func (e *Engine) selfTest(ctx context.Context, procRoot string) error {
	self, err := ownTarget(procRoot, e.chain.kernel.ownKernelPID)
	if err != nil {
		return err
	}
	c, err := newCollector(e.chain)
	if err != nil {
		return err
	}
	defer c.close()
	if err := e.chain.setLast(c.program); err != nil {
		return fmt.Errorf("setting the last program: %w", err)
	}
	if _, err := e.Synchronize(ctx, self); err != nil {
		return err
	}
	err = e.sampleSelf(ctx, c, self)
	return errors.Join(err, e.Remove(ctx, self), e.chain.setLast(nil))
}

// ownTarget returns this process as a target.
func ownTarget(procRoot string, kernelPID uint32) (Target, error) {
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return Target{}, err
	}
	proc, err := fs.Self()
	if err != nil {
		return Target{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return Target{}, err
	}
	id := procscan.ProcessID{PID: proc.PID, StartTime: stat.Starttime}
	return Target{ID: id, KernelPID: kernelPID, Program: id, User: selfUser}, nil
}

// sampleSelf samples its goroutine until most stacks are of it. Some may be of others: the runtime has
// stacks of its own for signal handlers and the scheduler, and where interrupts are slow they are seen.
func (e *Engine) sampleSelf(ctx context.Context, c *collector, self Target) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: uint64(selfTestPeriod),
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("opening a perf event: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, e.chain.programs[entryProgram].FD()); err != nil {
		return fmt.Errorf("attaching the unwinding programs: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enabling a perf event: %w", err)
	}
	last, own, others := errors.New("no stack arrived"), 0, 0
	for end := ownTime() + selfTestTime; ownTime() < end; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		spin()
		s, err := c.read(time.Unix(1, 0))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			return err
		case s.failure != 0:
			last = fmt.Errorf("a stack was not walked to its end (error %d of the engine)", s.failure)
			continue
		}
		named, err := e.Frames(ctx, self, [][]uint64{s.words})
		switch {
		case err != nil:
			return err
		case hasSampleSelf(named[0].Frames):
			own++
		default:
			others++
		}
		if own >= others+selfTestMajority {
			return nil
		}
		last = fmt.Errorf("of %d stacks, %d are those that were sampled", own+others, own)
	}
	return last
}

// spin uses the CPU for more than one period, if it gets it.
//
//go:noinline
func spin() {
	for end := time.Now().Add(3 * selfTestPeriod); time.Now().Before(end); {
	}
}

// ownTime returns the CPU time of the calling thread.
func ownTime() time.Duration { return self.Clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// hasSampleSelf reports whether a stack is one of sampleSelf.
func hasSampleSelf(frames []Frame) bool {
	return slices.ContainsFunc(frames, func(f Frame) bool {
		fn := runtime.FuncForPC(uintptr(f.Address))
		return fn != nil && strings.HasSuffix(fn.Name(), ".sampleSelf")
	})
}
