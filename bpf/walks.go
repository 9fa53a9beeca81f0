package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// A Walk is a wait whose stack was walked when it had ended, with what it stands for.
type Walk struct {
	Time          uint64   // CLOCK_MONOTONIC: when its stack was walked, ns
	Stack         StackKey // its Target is the process
	Frames        Stack    // which Sampler.Stack does not know; without the kernel's
	TID           int      // in our own pid namespace
	TraceID       [16]byte
	TransactionID [8]byte
	SpanID        [8]byte // with BySpan; else 0
	OTel          bool    // as in Count
	Attributes    []byte  // the same; valid until the next Walk

	// State is what the thread did, and NS the time in it, and in other waits of the thread, that the stack
	// stands for; Longest is how long this wait was. Then it waited for a CPU, which took Queue, and the
	// stack stands for Queued of that. One of NS and Queued may be 0. All in ns.
	State         ThreadState
	NS, Longest   uint64
	Queued, Queue uint64

	Peer  netip.AddrPort // of a socket of IP, zero: none
	Path  string         // the end of the path of a file; empty: none
	Futex uint64         // the address of one, 0: none
	Waker Waker
}

// A WakerKind is what ended a wait.
type WakerKind uint8

// The kinds of wakers.
const (
	UnknownWaker = WakerKind(walksWakerKindWAKER_UNKNOWN)
	ThreadWaker  = WakerKind(walksWakerKindWAKER_THREAD)
	TimerWaker   = WakerKind(walksWakerKindWAKER_TIMER)
	DeviceWaker  = WakerKind(walksWakerKindWAKER_DEVICE)
	NetworkWaker = WakerKind(walksWakerKindWAKER_NETWORK)
)

// A Waker is who ended a wait. Only a ThreadWaker has more than its kind.
type Waker struct {
	Kind          WakerKind
	PID, TID      int    // in our own pid namespace; 0: it is not there
	Name          string // of the thread: any bytes
	TraceID       [16]byte
	TransactionID [8]byte
	OTel          bool // as in Count
}

const (
	// walkPeriod is the time of waits for which a stack is walked at first.
	walkPeriod = 10 * time.Millisecond

	// windowWalks are the walks that a CPU makes at most in a tenth of a second. Each takes 25 to 75 µs.
	windowWalks = 5

	// walkBytes is the room for walks of one CPU: for those of some tenths of a second, with 40 frames. In all there
	// is minWalkBytes at least, where few CPUs may have deep stacks, and maxWalkBytes at most, as not all are busy.
	walkBytes, minWalkBytes, maxWalkBytes = 32 << 10, 256 << 10, 4 << 20
)

// paces is PACES of waits.h.
const paces = 256

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
	k.hook, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: w.options.hook, Program: k.objects.Walk})
	if err != nil {
		return missingWalks(err)
	}
	if err := k.test(); err != nil {
		return err
	}
	w.walks = k
	return nil
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
	return map[string]*ebpf.Map{
		walksMapTargets: w.sampler.objects.Targets, walksMapThreads: w.objects.Threads,
		walksMapCounters: w.objects.Counters, walksMapJobs: w.objects.Jobs, walksMapBells: w.objects.Bells,
	}
}

func (w *Waits) newWalksSpec(level uint32) (*ebpf.CollectionSpec, error) {
	spec, err := loadWalks()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		walksVarHashSeed:      w.sampler.seed,
		walksVarAddressMask:   addressMask(),
		walksVarFindsCallers:  !w.sampler.options.ChainOnly,
		walksVarKeepUnsampled: w.sampler.options.KeepUnsampled,
		walksVarBySpan:        w.sampler.options.BySpan,
		walksVarLevel:         level,
		walksVarPidNamespace:  ownPIDNamespace(),
		walksVarTested:        uint32(unix.Gettid()),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	spec.Maps[walksMapTargets].MaxEntries = uint32(w.sampler.options.MaxTargets)
	spec.Maps[walksMapCounters].MaxEntries = uint32(w.cpus)
	spec.Maps[walksMapBells] = setBells(spec.Maps[walksMapBells])
	spec.Maps[walksMapWalks].MaxEntries = uint32(min(max(roundUp(w.cpus*walkBytes), minWalkBytes), maxWalkBytes))
	return spec, nil
}

// Chainless returns why the unwinder walks no stacks of waits though it walks others, nil if there is none, or it
// does. They are walked by frame pointers then. It may be called by any goroutine.
func (w *Waits) Chainless() error {
	t := &w.sampler.table
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.chainless
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
		w.chainless = err
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
	if err := spec.Variables[walksVarLayout].Set(u.Layout); err != nil {
		return nil, fmt.Errorf("setting %s: %w", walksVarLayout, err)
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
	if k.ring.AvailableBytes() == 0 {
		return nil
	}
	for {
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
}

func (k *walks) close() error {
	var errs []error
	if k.hook != nil {
		errs = append(errs, k.hook.Close())
	}
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

// A bell is a ring buffer that nobody reads: see bells in waits.bpf.c.
type bell struct {
	ring               *ebpf.Map
	consumer, producer []byte // a page each, which begins with a position
}

// openBells makes the bells of so many CPUs.
func openBells(bells *ebpf.Map, cpus uint32) (all []*bell, err error) {
	for i := range min(bells.MaxEntries(), cpus) {
		b := &bell{}
		all = append(all, b)
		spec := ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())}
		if b.ring, err = ebpf.NewMap(&spec); err != nil {
			return all, fmt.Errorf("making bells: %w", err)
		}
		if err := bells.Put(i, b.ring); err != nil {
			return all, fmt.Errorf("making bells: %w", err)
		}
		if err := b.open(); err != nil {
			return all, fmt.Errorf("mapping bells: %w", err)
		}
	}
	return all, nil
}

func (b *bell) open() (err error) {
	page := os.Getpagesize()
	if b.consumer, err = unix.Mmap(b.ring.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	b.producer, err = unix.Mmap(b.ring.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	return err
}

// silence frees the room of what was put into it.
func (b *bell) silence() {
	position := func(page []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(page))) }
	atomic.StoreUint64(position(b.consumer), atomic.LoadUint64(position(b.producer)))
}

func (b *bell) close() error {
	var errs []error
	for _, page := range [][]byte{b.consumer, b.producer} {
		if page != nil {
			errs = append(errs, unix.Munmap(page))
		}
	}
	if b.ring != nil {
		errs = append(errs, b.ring.Close())
	}
	return errors.Join(errs...)
}

// setBells returns the spec of the table of bells for this machine's pages.
func setBells(bells *ebpf.MapSpec) *ebpf.MapSpec {
	bells.InnerMap.MaxEntries = uint32(os.Getpagesize())
	return bells
}

// decodeWalk decodes a struct walked, cut off after the attributes, which follow the last address.
func decodeWalk(raw []byte) (Walk, error) {
	var d walksWalked
	stackOff := int(unsafe.Offsetof(d.Stack))
	addrsOff := stackOff + int(unsafe.Offsetof(d.Stack.Addrs))
	if len(raw) < addrsOff {
		return Walk{}, fmt.Errorf("%w: %d bytes", errDeferredShort, len(raw))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&d)), stackOff), raw)
	key := StackKey{Target: Target(d.Target), hash: d.Hash}
	_, frames, err := decodeStack(raw[stackOff:], key.Unwound())
	if err != nil {
		return Walk{}, err
	}
	attributes := raw[addrsOff+frames.addrs()*8:]
	if int(d.AttributesSize) > len(attributes) {
		return Walk{}, fmt.Errorf("%w: %d, %d", errDeferredAttributes, d.AttributesSize, len(attributes))
	}
	if d.State >= uint32(ThreadStates) {
		return Walk{}, fmt.Errorf("%w: state %d", ErrMalformed, d.State)
	}
	walk := Walk{
		Time: d.Time, Stack: key, Frames: frames, TID: int(d.Tid),
		OTel: isOTel(d.Context), Attributes: attributes[:d.AttributesSize], State: ThreadState(d.State),
		NS: d.Ns, Longest: d.Longest, Queued: d.Queued, Queue: d.Queue,
		Peer: newPeer(d.Family, d.Port, &d.Address), Path: newPath(&d.Path), Futex: d.Futex,
		Waker: Waker{
			Kind: WakerKind(d.Waker.Kind), PID: int(d.Waker.Pid), TID: int(d.Waker.Tid), Name: cString(d.Waker.Name[:]),
			OTel: isOTel(uint32(d.Waker.Context)),
		},
	}
	putTraceID(&walk.TraceID, d.TraceId)
	binary.NativeEndian.PutUint64(walk.TransactionID[:], d.TransactionId)
	binary.NativeEndian.PutUint64(walk.SpanID[:], d.SpanId)
	putTraceID(&walk.Waker.TraceID, d.Waker.TraceId)
	binary.NativeEndian.PutUint64(walk.Waker.TransactionID[:], d.Waker.TransactionId)
	return walk, nil
}

func isOTel(context uint32) bool {
	return waitsCorrelatorContextKind(context) == waitsCorrelatorContextKindCORRELATOR_OTEL
}

// newPeer returns the peer of a socket. One that is not connected has none.
func newPeer(family, port uint16, address *[16]byte) netip.AddrPort {
	var addr netip.Addr
	switch family {
	case unix.AF_INET:
		addr = netip.AddrFrom4([4]byte(address[:4]))
	case unix.AF_INET6:
		addr = netip.AddrFrom16(*address).Unmap()
	}
	number := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
	if !addr.IsValid() || number == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, number)
}

// newPath joins names, the last of which comes first. What is above is not known.
func newPath(names *[4][64]int8) string {
	path := ""
	for i := range names {
		name := cString(names[i][:])
		if name == "" {
			break
		}
		if len(name) == len(names[i])-1 {
			name += "…" // there may be more of it
		}
		path = "/" + name + path
	}
	if path == "" {
		return ""
	}
	return "…" + path
}

// cString returns the bytes before the first NUL.
func cString(text []int8) string {
	raw := asBytes(text)
	if end := slices.Index(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return string(raw)
}

// interruptsAt returns how the programs can tell that they run in an interrupt: the distance from the run queue of a
// CPU to where it counts its interrupts on x86. 0: they cannot.
func interruptsAt(kernel *btf.Spec) int32 {
	if runtime.GOARCH == "arm64" {
		return 1 // it is in the task
	}
	var perCPU *btf.Datasec
	if kernel.TypeByName(".data..percpu", &perCPU) != nil || !hasMember(kernel, "sched_entity", "cfs_rq") {
		return 0
	}
	offsets := make(map[string]int64)
	for _, v := range perCPU.Vars {
		if variable, ok := v.Type.(*btf.Var); ok {
			offsets[variable.Name] = int64(v.Offset)
		}
	}
	queue, found := offsets["runqueues"]
	count, own := offsets["__preempt_count"]
	if hot, isHot := offsets["pcpu_hot"]; !own && isHot { // from Linux 6.2 to 6.14
		var of *btf.Struct
		if kernel.TypeByName("pcpu_hot", &of) != nil {
			return 0
		}
		var at uint32
		if at, own = memberOffset(of.Members, "preempt_count"); own {
			count = hot + int64(at)
		}
	}
	distance := count - queue
	if !found || !own || distance < math.MinInt32 || distance > math.MaxInt32 {
		return 0
	}
	return int32(distance)
}

func hasMember(kernel *btf.Spec, name, member string) bool {
	var of *btf.Struct
	if kernel.TypeByName(name, &of) != nil {
		return false
	}
	_, found := memberOffset(of.Members, member)
	return found
}

// memberOffset looks also into members without a name.
func memberOffset(members []btf.Member, name string) (offset uint32, found bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
		}
		var inner []btf.Member
		if m.Name == "" {
			switch t := btf.UnderlyingType(m.Type).(type) {
			case *btf.Struct:
				inner = t.Members
			case *btf.Union:
				inner = t.Members
			}
		}
		if at, found := memberOffset(inner, name); found {
			return m.Offset.Bytes() + at, true
		}
	}
	return 0, false
}
