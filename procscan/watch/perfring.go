package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// ringBytes is the size of a CPU's ring, a power of 2. It holds the records of some 150 programs
// that start: those of a CPU in a tenth of a second in which this process does not run. A hundred
// CPUs take 14 MiB of kernel memory.
const ringBytes = 128 << 10

// perfRing is a dummy event of one CPU, and the memory into which the kernel writes its records.
//
// A record costs the process that makes the mapping less than 1 µs. A wake-up for each would cost
// several times that: 8 µs on a virtual machine, which exits to its hypervisor for the interrupt.
// So the event wakes no reader. A second one, the waker, does, and is paused while the ring is
// polled.
type perfRing struct {
	fd      int
	memory  []byte // mapped: a page with the positions of reader and writer, then the data
	data    []byte // its length is a power of 2
	meta    *unix.PerfEventMmapPage
	enabled uint64              // how long the event had been enabled at the last check, ns
	wrapped [largestRecord]byte // buffer for a record that wraps around the end

	waker       int    // descriptor
	wakerMemory []byte // mapped read-only, so the kernel overwrites and nothing must be read
	wakerPaused bool
}

// openPerfRing starts recording on a CPU, with the waker on.
func openPerfRing(cpu, size int) (*perfRing, error) {
	r := &perfRing{fd: -1, waker: -1}
	if err := r.open(cpu, size); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// open leaves cleaning up after an error to close. The kernel serves the event first that was
// opened last: a record is in the ring before the waker fires.
func (r *perfRing) open(cpu, size int) (err error) {
	const (
		anyRecord = 1             // byte
		never     = math.MaxInt32 // the kernel wakes once per filled ring, and nothing waits for it
	)
	if r.waker, err = openDummy(cpu, anyRecord); err != nil {
		return err
	}
	if r.wakerMemory, err = mapRing(r.waker, 0, unix.PROT_READ); err != nil {
		return err
	}
	if r.fd, err = openDummy(cpu, never); err != nil {
		return err
	}
	memory, err := mapRing(r.fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err == nil {
		r.use(memory)
	}
	return err
}

// openDummy opens an event that counts nothing and has the kernel record executable mappings.
//
// Exits and forks (attr.task) are not requested: those would be records of every thread of the
// host, and ExitWatcher reports the exits that matter. Nor are mappings that are not executable
// (attr.mmap_data), nor names (attr.comm): that would record execs, but also every thread that
// renames itself, which any process can do two million times a second and so fill the ring.
func openDummy(cpu int, wakeBytes uint32) (int, error) {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED,
		// The watermark is counted in bytes: a count of records would count samples only.
		Bits:   unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitWatermark,
		Wakeup: wakeBytes,
	}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("opening perf event of CPU %d: %w", cpu, classifyPerf(err))
	}
	return fd, nil
}

// mapRing maps a page for the positions and one or more for the data.
func mapRing(fd, size, prot int) ([]byte, error) {
	page := os.Getpagesize() // 64 KiB on some arm64 machines
	memory, err := unix.Mmap(fd, 0, page+max(page, size), prot, unix.MAP_SHARED)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: needs CAP_IPC_LOCK, or a larger kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK: %w",
			procscan.ErrDenied, err)
	}
	if err != nil {
		return nil, fmt.Errorf("mapping ring of perf event: %w", err)
	}
	return memory, nil
}

// use sets the memory that records are read from, laid out as the kernel does.
func (r *perfRing) use(memory []byte) {
	r.memory, r.data = memory, memory[os.Getpagesize():]
	r.meta = (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0]))
}

// classifyPerf wraps an error of perf_event_open with its remedy.
func classifyPerf(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: needs CAP_PERFMON in the initial user namespace (CAP_SYS_ADMIN before Linux 5.8, and on "+
			"some distributions' kernels with kernel.perf_event_paranoid above 2), and a seccomp profile that allows "+
			"perf_event_open: %w", procscan.ErrDenied, err)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: needs a kernel built with CONFIG_PERF_EVENTS: %w", errors.ErrUnsupported, err)
	}
	return err
}

func (r *perfRing) close() error {
	var errs []error
	for _, memory := range [][]byte{r.memory, r.wakerMemory} {
		if memory != nil {
			errs = append(errs, unix.Munmap(memory))
		}
	}
	for _, fd := range []int{r.fd, r.waker} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// poll passes what the ring holds to handle, and reports whether to poll again after pollInterval.
// The waker is paused from a poll that found records until one that found none. That one is
// followed by another, for what was recorded before the waker was on again.
func (r *perfRing) poll(handle func(Event)) (again bool, err error) {
	held := r.drain(handle)
	if held == r.wakerPaused {
		return held, nil
	}
	var off uintptr
	if held {
		off = 1
	}
	// Raw, because it cannot block: an ordinary system call wakes the runtime's monitor thread.
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(r.waker), unix.PERF_EVENT_IOC_PAUSE_OUTPUT, off)
	if errno != 0 {
		return false, fmt.Errorf("switching waker of perf ring: %w", errno)
	}
	r.wakerPaused = held
	return true, nil
}

// drain passes on the records that the ring held when it was called, so a process that makes
// records without end does not keep it running, and reports whether there were any.
//
// The kernel reports how many records did not fit with the next one that does, which may be much
// later. So a ring that may have been too full for another record is reported as having lost some.
func (r *perfRing) drain(handle func(Event)) bool {
	// The kernel writes data_head after the data, and data after it has read data_tail. Go's atomic
	// operations are full barriers, as this needs on the reader's side.
	begin, end := atomic.LoadUint64(&r.meta.Data_tail), atomic.LoadUint64(&r.meta.Data_head)
	for tail := begin; tail != end; {
		record := r.record(tail, end)
		if event, ok := decodeEvent(record); ok {
			handle(event)
		}
		if len(record) == 0 {
			break // what follows makes no sense either
		}
		tail += uint64(len(record))
	}
	atomic.StoreUint64(&r.meta.Data_tail, end)
	held := atomic.LoadUint64(&r.meta.Data_head) - begin // in this order: records can be lost until the store
	if held+lostSize+largestRecord >= uint64(len(r.data)) {
		handle(Event{Kind: EventLost})
	}
	return begin != end
}

// record returns the record at tail as one slice, valid until the next call or the end of drain. It
// is empty when its header contradicts the ring.
func (r *perfRing) record(tail, end uint64) []byte {
	at := tail & uint64(len(r.data)-1)
	if end-tail < headerSize || end-tail > uint64(len(r.data)) || at%8 != 0 {
		return nil
	}
	size := uint64(binary.NativeEndian.Uint16(r.data[at+6:])) // the header does not wrap: records are aligned to 8
	if size < headerSize || size > min(end-tail, largestRecord) {
		return nil
	}
	if at+size <= uint64(len(r.data)) {
		return r.data[at : at+size]
	}
	n := copy(r.wrapped[:], r.data[at:])
	copy(r.wrapped[n:size], r.data)
	return r.wrapped[:size]
}

// counts reports whether the event was enabled at any time since the last call. When its CPU goes
// offline the kernel disables it for good.
func (r *perfRing) counts() (bool, error) {
	var raw [16]byte // value, time enabled
	if _, err := unix.Read(r.fd, raw[:]); err != nil {
		return false, err
	}
	enabled := binary.NativeEndian.Uint64(raw[8:])
	advanced := enabled != r.enabled
	r.enabled = enabled
	return advanced, nil
}
