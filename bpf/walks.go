package bpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

const (
	// walkPeriod is the time of waits for which a stack is due at least.
	walkPeriod = 10 * time.Millisecond

	// windowWalks are the walks that a CPU makes in a tenth of a second: on average, and at most twice as many more
	// after it has made fewer. Each takes 25 to 75 µs.
	windowWalks = 6

	// walkBytes is the room for walks of one CPU: for those of some tenths of a second, with 40 frames. In all there
	// is minWalkBytes at least, where few CPUs may have deep stacks, and maxWalkBytes at most, as not all are busy.
	walkBytes, minWalkBytes, maxWalkBytes = 32 << 10, 256 << 10, 4 << 20
)

const paces, ownerPaces = int(waitsBudgetPACES), int(waitsBudgetOWNER_PACES)

// owners is OWNERS of waits.bpf.c.
const owners = 1 << 12

// walks are the stacks of a Waits.
type walks struct {
	objects walkObjects
	hook    link.Link
	ring    *ringbuf.Reader
	record  ringbuf.Record
	bells   []*bell
	unwinds bool // there is an unwinder, with a chain for waits
}

type walkObjects struct {
	Walk      *ebpf.Program  `ebpf:"walk_wait"`
	Test      *ebpf.Program  `ebpf:"ask_test"`
	Walks     *ebpf.Map      `ebpf:"walks"`
	Walking   *ebpf.Map      `ebpf:"walking"`
	Unwinder  *ebpf.Map      `ebpf:"walk_unwinder"`
	Constants *ebpf.Map      `ebpf:".rodata"`
	Unwound   *ebpf.Variable `ebpf:"unwound_targets"`
}

func (o *walkObjects) Close() error {
	return _WalksClose(o.Walk, o.Test, o.Walks, o.Walking, o.Unwinder, o.Constants)
}

// walkHook is the tracepoint of the interrupt that a CPU asks for itself.
func walkHook() string {
	if runtime.GOARCH == "arm64" {
		return "ipi_entry"
	}
	return "irq_work_entry"
}

// openWalks has stacks of waits walked, if that works.
func (w *Waits) openWalks() (err error) {
	if isRealTime() {
		return &MissingError{Feature: "a kernel whose eBPF ring buffers do not sleep",
			Remedy: "boot a kernel without PREEMPT_RT", Err: errors.ErrUnsupported}
	}
	k := &walks{}
	defer func() {
		if err != nil {
			_ = k.close()
		}
	}()
	if k.bells, err = openBells(w.objects.Bells, uint32(w.cpus)); err != nil {
		return err
	}
	runtime.LockOSThread() // the one that is tested
	defer runtime.UnlockOSThread()
	self, err := w.sampler.Identify(os.Getpid())
	if err != nil {
		return err
	}
	spec, err := w.newWalksSpec(self.level)
	if err != nil {
		return err
	}
	if err := load(spec, &k.objects, ebpf.CollectionOptions{MapReplacements: w.sharedWithWalks()}); err != nil {
		return err
	}
	if k.ring, err = ringbuf.NewReader(k.objects.Walks); err != nil {
		return fmt.Errorf("opening ring buffer: %w", err)
	}
	k.ring.SetDeadline(time.Unix(1, 0)) // it never waits
	if err := k.attach(w.options.hook); err != nil {
		return err
	}
	if err := k.test(); err != nil {
		return err
	}
	w.walks = k
	return nil
}

// attach has stacks walked at a tracepoint.
func (k *walks) attach(hook string) (err error) {
	if k.hook != nil {
		return nil
	}
	k.hook, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: hook, Program: k.objects.Walk})
	if err != nil {
		k.hook = nil // and no link of that type
		return missingWalks(err)
	}
	return nil
}

func (k *walks) detach() (err error) {
	if k.hook != nil {
		err = k.hook.Close()
	}
	k.hook = nil
	return err
}

// isRealTime reports whether the kernel is one with PREEMPT_RT, where locks may sleep, also when a switch of threads
// asks for an interrupt, and interrupts are threads.
func isRealTime() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	return strings.Contains(unix.ByteSliceToString(name.Version[:]), "PREEMPT_RT")
}

// ownPIDNamespace returns the inode of our own pid namespace, 0 if it is not known.
func ownPIDNamespace() uint32 {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &stat); err != nil {
		return 0
	}
	return uint32(stat.Ino)
}

func missingWalks(err error) error {
	return &MissingError{
		Feature: "a tracepoint in the interrupt that a CPU asks for itself (" + walkHook() + ")",
		Remedy:  "run on x86-64 or arm64, without a hypervisor that replaces this interrupt (Xen PV)", Err: err,
	}
}

func (w *Waits) sharedWithWalks() map[string]*ebpf.Map {
	shared := w.sampler.sharedContexts()
	shared[walksMapThreads], shared[walksMapCounters] = w.objects.Threads, w.objects.Counters
	shared[walksMapJobs], shared[walksMapBells] = w.objects.Jobs, w.objects.Bells
	return shared
}

func (w *Waits) newWalksSpec(level uint32) (*ebpf.CollectionSpec, error) {
	spec, err := shared.read(walksObject)
	if err != nil {
		return nil, err
	}
	err = SetVariables(spec, map[string]any{
		walksVarHashSeed:      w.sampler.seed,
		walksVarAddressMask:   addressMask(),
		walksVarFindsCallers:  !w.sampler.options.ChainOnly,
		walksVarKeepUnsampled: w.sampler.options.KeepUnsampled,
		walksVarBySpan:        w.sampler.options.BySpan,
		walksVarByThread:      w.options.ByThread,
		walksVarLevel:         level,
		walksVarPidNamespace:  ownPIDNamespace(),
		walksVarTested:        uint32(unix.Gettid()),
	})
	if err := errors.Join(err, w.sampler.setLabels(spec)); err != nil {
		return nil, err
	}
	spec.Maps[walksMapTargets].MaxEntries = uint32(w.sampler.options.MaxTargets)
	spec.Maps[walksMapCounters].MaxEntries = uint32(w.cpus)
	spec.Maps[walksMapBells] = setBells(spec.Maps[walksMapBells])
	spec.Maps[walksMapWalks].MaxEntries = uint32(min(max(roundUp(w.cpus*walkBytes), minWalkBytes), maxWalkBytes))
	return spec, nil
}

// setUnwound says which targets' stacks the unwinder walks.
func (w *Waits) setUnwound(bits *filterBits) error {
	if w.walks == nil || !w.walks.unwinds {
		return nil
	}
	return w.walks.objects.Unwound.Set(bits)
}

// setUnwinder has stacks walked by an unwinder: no target's yet. nil, or one without a chain for waits: by frame
// pointers.
func (w *Waits) setUnwinder(u *Unwinder) error {
	if w.walks == nil {
		return nil
	}
	k := w.walks
	k.unwinds, w.chainless = false, nil
	err := errors.Join(k.objects.Unwound.Set(&filterBits{}), ignoreMissing(k.objects.Unwinder.Delete(firstOfChain)))
	if err != nil || u == nil {
		return err
	}
	if u.WaitEntry == nil {
		w.chainless = u.WaitError
		return nil
	}
	if err := k.setChain(w, u); err != nil {
		return err
	}
	k.unwinds = true
	return nil
}

func (k *walks) setChain(w *Waits, u *Unwinder) error {
	last, err := w.loadLast(u)
	if err != nil {
		return fmt.Errorf("loading last program for waits: %w", err)
	}
	defer last.Close() // the chain keeps it
	if err := u.SetWaitLast(last); err != nil {
		return err
	}
	return k.objects.Unwinder.Put(firstOfChain, u.WaitEntry)
}

// loadLast loads the last program of a chain, as Sampler.loadLast does.
func (w *Waits) loadLast(u *Unwinder) (*ebpf.Program, error) {
	spec, err := w.newWalksSpec(0)
	if err != nil {
		return nil, err
	}
	if err := SetVariables(spec, map[string]any{walksVarLayout: u.Layout}); err != nil {
		return nil, err
	}
	spec.Maps[walksMapRecords].ValueSize, spec.Maps[walksMapRecords].Value = u.Records.ValueSize(), nil
	shared := w.sharedWithWalks()
	shared[walksMapWalks], shared[walksMapWalking] = w.walks.objects.Walks, w.walks.objects.Walking
	shared[walksMapRecords], shared[".rodata"] = u.Records, w.walks.objects.Constants
	var programs struct {
		SendUnwound *ebpf.Program `ebpf:"send_unwound"`
	}
	err = load(spec, &programs, ebpf.CollectionOptions{MapReplacements: shared})
	return programs.SendUnwound, err
}

var errNotWalked = errors.New("no stack came")

// test reports whether the stack of this thread comes when it has slept. The thread must be locked.
func (k *walks) test() error {
	asking, err := link.AttachTracing(link.TracingOptions{Program: k.objects.Test})
	if err != nil {
		return fmt.Errorf("attaching: %w", err)
	}
	defer asking.Close()
	const tries = 100 // one is enough, but for interrupts that another bell's CPU had asked for
	for range tries {
		for _, b := range k.bells {
			b.silence()
		}
		sleepInTest()
		walked := false
		if err := k.drain(func(w *Walk) {
			walked = walked || w.Stack.Target == 0 && slices.ContainsFunc(w.Frames.User, isOfTest)
		}); err != nil || walked {
			return err
		}
	}
	return missingWalks(errNotWalked)
}

// sleepInTest is what test looks for in the stack.
//
//go:noinline
func sleepInTest() {
	_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
}

func isOfTest(addr uint64) bool {
	f := runtime.FuncForPC(uintptr(addr))
	return f != nil && strings.HasSuffix(f.Name(), ".sleepInTest")
}

// drain calls yield with each walk since the last call. It does not wait.
func (k *walks) drain(yield func(*Walk)) error {
	for _, b := range k.bells {
		b.silence()
	}
	// Not up to the end, of which the reader would tell after a system call that wakes the Go runtime's monitor thread.
	for k.ring.AvailableBytes() > 0 {
		err := k.ring.ReadInto(&k.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("draining walks: %w", err)
		}
		walk, err := decodeWalk(k.record.RawSample)
		if err != nil {
			return err
		}
		yield(&walk)
	}
	return nil
}

func (k *walks) close() error {
	errs := []error{k.detach()}
	if k.ring != nil {
		errs = append(errs, k.ring.Close())
	}
	for _, b := range k.bells {
		errs = append(errs, b.close())
	}
	if k.objects.Walk != nil {
		errs = append(errs, k.objects.Close())
	}
	return errors.Join(errs...)
}
