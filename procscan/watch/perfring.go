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

// ringBytes is the size of a CPU's ring, a power of 2. It takes the records of some 150 programs
// that start: those of a CPU in a tenth of a second in which this process does not run. A hundred
// CPUs take 14 MiB of kernel memory.
const ringBytes = 128 << 10

// perfRing is a dummy event of one CPU, and the memory into which the kernel writes its records.
//
// A record costs the process that maps something less than 1 µs. A wake-up for each would be
// several times that: 8 µs on a virtual machine, which has to leave for the interrupt. So the event
// wakes nobody. A second one does, the alarm, and it is off while the ring is looked at regularly.
type perfRing struct {
	fd      int
	memory  []byte // mapped: a page that tells how far reader and writer are, then the data
	data    []byte // its length is a power of 2
	meta    *unix.PerfEventMmapPage
	enabled uint64              // for how long the event was, at the last look, ns
	wrapped [largestRecord]byte // room for a record that wraps round the end

	alarm    int    // descriptor
	alarmed  []byte // mapped read-only, so the kernel writes without end and we need not read
	alarmOff bool
}

// openPerfRing begins on a CPU, with the alarm on.
func openPerfRing(cpu, size int) (*perfRing, error) {
	r := &perfRing{fd: -1, alarm: -1}
	if err := r.open(cpu, size); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// open leaves it to close to clear up after an error. The kernel serves the event first that was
// opened last: a record is in the ring, then there is alarm.
func (r *perfRing) open(cpu, size int) (err error) {
	const (
		anyRecord = 1             // byte
		never     = math.MaxInt32 // the kernel makes that once in a ringful, and nobody waits for it
	)
	if r.alarm, err = openDummy(cpu, anyRecord); err != nil {
		return err
	}
	if r.alarmed, err = mapRing(r.alarm, 0, unix.PROT_READ); err != nil {
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

// openDummy opens an event that counts nothing and has the kernel record executable mappings and
// names of programs and threads.
//
// Exits and forks (attr.task) are not asked for: those would be records of every thread of the
// host, and ExitWatcher tells the exits that matter. Other mappings than executable ones are not,
// for want of attr.mmap_data.
func openDummy(cpu int, wakeBytes uint32) (int, error) {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec |
			unix.PerfBitWatermark, // counted in records, only samples would wake
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
		err = fmt.Errorf("%w: needs CAP_IPC_LOCK, or a larger kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK: %w", procscan.ErrDenied, err)
	}
	if err != nil {
		return nil, fmt.Errorf("mapping ring of perf event: %w", err)
	}
	return memory, nil
}

// use has records read from memory that is laid out as the kernel does.
func (r *perfRing) use(memory []byte) {
	r.memory, r.data = memory, memory[os.Getpagesize():]
	r.meta = (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0]))
}

// classifyPerf adds what can be done about the error of a system call that most are refused.
func classifyPerf(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: needs CAP_PERFMON in the initial user namespace (before Linux 5.8 CAP_SYS_ADMIN), "+
			"and a seccomp profile that allows perf_event_open: %w", procscan.ErrDenied, err)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: needs a kernel built with CONFIG_PERF_EVENTS: %w", errors.ErrUnsupported, err)
	}
	return err
}

func (r *perfRing) close() error {
	var errs []error
	for _, memory := range [][]byte{r.memory, r.alarmed} {
		if memory != nil {
			errs = append(errs, unix.Munmap(memory))
		}
	}
	for _, fd := range []int{r.fd, r.alarm} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// look passes on what the ring holds, and reports whether to look again after wakeInterval. The
// alarm is off from one look that found something to one that found nothing. After that one there
// is another: for what was recorded while the alarm was about to go on.
func (r *perfRing) look(tell func(Event)) (again bool, err error) {
	held := r.drain(tell)
	if held == r.alarmOff {
		return held, nil
	}
	var off int
	if held {
		off = 1
	}
	if err := unix.IoctlSetInt(r.alarm, unix.PERF_EVENT_IOC_PAUSE_OUTPUT, off); err != nil {
		return false, fmt.Errorf("switching alarm of perf ring: %w", err)
	}
	r.alarmOff = held
	return true, nil
}

// drain passes on what the ring held when it was called, so a process that makes records without
// end does not keep it here, and reports whether that was anything.
//
// The kernel tells how many records did not fit with the next one that does, which may be much
// later. So a ring that may not have taken another one before there was room again is said to have
// lost some.
func (r *perfRing) drain(tell func(Event)) bool {
	// The kernel writes data_head after the data, and data after it has read data_tail. Go's atomic
	// operations are full barriers, as the reader's side of that needs.
	begin, end := atomic.LoadUint64(&r.meta.Data_tail), atomic.LoadUint64(&r.meta.Data_head)
	for tail := begin; tail != end; {
		record := r.record(tail, end)
		if event, ok := decodeEvent(record); ok {
			tell(event)
		}
		if len(record) == 0 {
			break // nor does it make sense what follows
		}
		tail += uint64(len(record))
	}
	atomic.StoreUint64(&r.meta.Data_tail, end)
	held := atomic.LoadUint64(&r.meta.Data_head) - begin // in this order: until the store, more is lost
	if held+lostSize+largestRecord >= uint64(len(r.data)) {
		tell(Event{Kind: EventLost})
	}
	return begin != end
}

// record returns the one at tail, in one piece, until the next call or the end of drain. It is
// empty when its header does not fit in with the ring.
func (r *perfRing) record(tail, end uint64) []byte {
	at := tail & uint64(len(r.data)-1)
	if end-tail < headerSize || end-tail > uint64(len(r.data)) || at%8 != 0 {
		return nil
	}
	size := uint64(binary.NativeEndian.Uint16(r.data[at+6:])) // all of the header: records are aligned to 8
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
// the kernel switches it off, for ever.
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
