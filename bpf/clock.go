package bpf

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"correlator/procscan"
)

// maxSpread limits the time that openClock takes to start the CPUs one after the other.
const maxSpread = 100 * time.Millisecond

// clock runs a program at a steady rate on every online CPU: on each, a perf event counts the time
// and raises an interrupt at the end of each period. It does so on an idle CPU, too, which would
// have the interrupt anyway; so all ticks are accounted for.
//
// It is a period, not a frequency, which the kernel would have to approximate, and would refuse
// above kernel.perf_event_max_sample_rate. (It throttles more interrupts than that in 1/HZ s either
// way.) CPUs start evenly spread over a period. At the same instant, they would all need the same
// cache lines of the tables, and on a virtual machine the same CPU of the host.
type clock struct {
	program *ebpf.Program
	period  time.Duration
	taken   func(cpu int) (uint64, error) // how often the program has run there
	list    string                        // file with the list of CPUs

	mu     sync.Mutex
	events map[int]*clockEvent // by CPU; nil once closed
	missed uint64              // ticks of events that were closed, and of CPUs without one
	looked uint64              // at the list, CLOCK_MONOTONIC, ns
}

// clockEvent is the perf event of a CPU.
type clockEvent struct {
	fd      int
	counted uint64 // at the last refresh, ns
	begun   uint64 // CLOCK_MONOTONIC when it was enabled, ns
	before  uint64 // how often the program had run on the CPU then
	missed  uint64 // ticks until the last refresh
}

// openClock starts the clock. At 0 samples per second it returns a closed one.
func openClock(program *ebpf.Program, samplesPerSecond int, taken func(cpu int) (uint64, error)) (*clock, error) {
	if samplesPerSecond == 0 {
		return &clock{}, nil
	}
	c := &clock{
		program: program,
		period:  time.Second / time.Duration(samplesPerSecond),
		taken:   taken,
		list:    procscan.OnlineCPUs,
		events:  make(map[int]*clockEvent),
		looked:  Now(),
	}
	cpus, err := procscan.ReadCPUs(c.list)
	if err != nil {
		return nil, err
	}
	for i, cpu := range cpus {
		if i > 0 {
			time.Sleep(min(c.period, maxSpread) / time.Duration(len(cpus)))
		}
		if err := c.add(cpu); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// close ends sampling. When it has returned, no event runs the program any more.
func (c *clock) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for cpu, event := range c.events {
		_, err := c.update(cpu, event)
		errs = append(errs, err, c.remove(cpu, event))
	}
	c.events = nil
	return errors.Join(errs...)
}

func (c *clock) totalMissed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	missed := c.missed
	for _, event := range c.events {
		missed += event.missed
	}
	return missed
}

// refresh starts events on new CPUs and closes those of offline ones. A CPU that went offline and
// came back in between is detected by its event, which does not count any more: at the second call,
// if it did count for a while after the one before.
//
// When in between a CPU went or came is not known. It counts as online, and what it was not sampled
// as missed: no tick is without a count, at the price of some that were none.
func (c *clock) refresh() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		return nil
	}
	cpus, err := procscan.ReadCPUs(c.list)
	if err != nil {
		return err
	}
	now := Now()
	for _, cpu := range cpus {
		if c.events[cpu] == nil {
			c.missed += (now - c.looked) / uint64(c.period)
		}
	}
	c.looked = now
	var errs []error
	for cpu, event := range c.events {
		counts, err := c.update(cpu, event)
		errs = append(errs, err)
		if !counts || !slices.Contains(cpus, cpu) {
			errs = append(errs, c.remove(cpu, event))
		}
	}
	for _, cpu := range cpus {
		if c.events[cpu] == nil {
			errs = append(errs, c.add(cpu))
		}
	}
	return errors.Join(errs...)
}

// update counts what the event has missed, and reports whether it still counts. The kernel omits a
// tick that is so late that the next one is due.
func (c *clock) update(cpu int, event *clockEvent) (counts bool, err error) {
	now := Now()
	if counts, err = event.counts(); err != nil {
		return false, fmt.Errorf("reading perf event of CPU %d: %w", cpu, err)
	}
	taken, err := c.taken(cpu)
	if err != nil {
		return counts, err
	}
	due := (now - event.begun) / uint64(c.period)
	if late := taken - event.before + 1; due > late { // the last one may still come
		event.missed = max(event.missed, due-late)
	}
	return counts, nil
}

// remove disables an event, and closes it. close(2) ends it only with its last descriptor, and a child of ours
// has copies of all from its fork to its exec.
func (c *clock) remove(cpu int, event *clockEvent) error {
	c.missed += event.missed
	delete(c.events, cpu)
	return errors.Join(unix.IoctlSetInt(event.fd, unix.PERF_EVENT_IOC_DISABLE, 0), unix.Close(event.fd))
}

// counts reports whether the event has counted time since the last call.
func (e *clockEvent) counts() (bool, error) {
	counted, err := readEvent(e.fd)
	if err != nil {
		return false, err
	}
	advanced := counted != e.counted
	e.counted = counted
	return advanced, nil
}

// add starts an event on a CPU. A CPU that has just gone offline is not an error.
func (c *clock) add(cpu int) error {
	fd, err := openCPUClock(cpu, c.period)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	event := &clockEvent{fd: fd}
	if err := c.begin(cpu, event); err != nil {
		unix.Close(fd)
		return fmt.Errorf("attaching program to perf event of CPU %d: %w", cpu, err)
	}
	c.events[cpu] = event
	return nil
}

// openCPUClock opens the perf event of a CPU, disabled. ENODEV means that the CPU is offline.
func openCPUClock(cpu int, period time.Duration) (fd int, err error) {
	fd, err = unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: uint64(period.Nanoseconds()),
		Bits:   unix.PerfBitDisabled,
	}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return -1, missingPerfPermission(err)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT):
		return -1, missingPerf(err)
	case err != nil:
		return -1, fmt.Errorf("opening perf event of CPU %d: %w", cpu, err)
	}
	return fd, nil
}

func (c *clock) begin(cpu int, event *clockEvent) (err error) {
	if err = unix.IoctlSetInt(event.fd, unix.PERF_EVENT_IOC_SET_BPF, c.program.FD()); err != nil {
		return err
	}
	if event.before, err = c.taken(cpu); err != nil {
		return err
	}
	if err = unix.IoctlSetInt(event.fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return err
	}
	event.begun = Now()
	return nil
}
