package try

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What one order has the shop do.
const (
	orders = 3
	// lastOrder is how long after the first order another one may begin: on a CPU that is busy with others, each takes
	// several times as long.
	lastOrder = 3 * time.Second

	priceTime  = 150 * time.Millisecond // of CPU time, alone
	packTime   = 100 * time.Millisecond // of CPU time, while another thread wants the CPU
	stockTime  = 120 * time.Millisecond // the lock is held for, since it is waited for
	lookTime   = 50 * time.Millisecond  // between looks for who waits: many naps take the room of other stacks
	answerTime = 140 * time.Millisecond // the bank takes
	retryTime  = 80 * time.Millisecond  // slept
)

// ShopEnv is what the shop needs in its environment: without it, the runtime interrupts what blocks.
const ShopEnv = "GODEBUG=asyncpreemptoff=1"

// Measured is what the thread that serves orders has measured by its own clocks while it served them. What it waited
// is wall time less CPU time and less what it waited for a CPU, by what it had called.
type Measured struct {
	TID    int           `json:"tid"`
	Orders int           `json:"orders"`
	CPU    time.Duration `json:"cpu_ns"`
	Wait   time.Duration `json:"wait_ns"` // for a CPU
	Lock   time.Duration `json:"lock_ns"`
	Net    time.Duration `json:"net_ns"`
	Nap    time.Duration `json:"nap_ns"`
	// Threads are those of the shop, with this one.
	Threads []int `json:"threads"`
}

// shop is threads that serve orders: all on one CPU, each in system calls of its own, of which Go's scheduler is not
// told. So they wait as threads of other languages do, and for as long as their own clocks say.
type shop struct {
	stock   uint32 // 1: locked
	wanted  atomic.Bool
	packed  atomic.Bool
	hash    uint64
	orders  pipe
	others  pipe
	reports pipe
	served  chan struct{}
	bank    [2]int // two ends of a connection

	cpu      unix.CPUSet
	measured Measured
}

type pipe [2]int

// Shop serves some orders once a line comes from the input, and writes what it has measured; a line says before that
// it is ready. It returns when the input ends.
func Shop(in io.Reader, out io.Writer) error {
	debug.SetGCPercent(-1)
	s := &shop{served: make(chan struct{}, orders)} // to send there does not block
	threads := []func() error{s.checkout, s.checkOutFirst, s.answer, s.report}
	runtime.GOMAXPROCS(2 * (len(threads) + 1)) // each blocks with one
	if err := s.open(); err != nil {
		return err
	}
	failed, tids := make(chan error, len(threads)), make(chan int)
	for i, name := range []string{"checkout", "checkout-2", "bank", "report"} {
		go func() {
			runtime.LockOSThread()
			tids <- unix.Gettid()
			if err := s.enter(name); err != nil {
				failed <- err
			} else if err := threads[i](); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}
	for range threads {
		s.measured.Threads = append(s.measured.Threads, <-tids)
	}
	lines := bufio.NewReader(in)
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	if _, err := lines.ReadString('\n'); err != nil {
		return nil //nolint:nilerr // nobody wants to know
	}
	for begun := time.Now(); takesOrder(s.measured.Orders, time.Since(begun)); s.measured.Orders++ {
		if err := s.others.send(); err != nil {
			return err
		}
		select {
		case err := <-failed:
			return err
		case <-s.served:
		}
	}
	if err := json.NewEncoder(out).Encode(&s.measured); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, lines)
	return err
}

// takesOrder reports whether another order is served after so many, which have taken so long.
func takesOrder(served int, took time.Duration) bool {
	return served == 0 || served < orders && took <= lastOrder
}

func (s *shop) open() error {
	for _, p := range []*pipe{&s.orders, &s.others, &s.reports} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return os.NewSyscallError("pipe2", err)
		}
	}
	if err := s.connect(); err != nil {
		return fmt.Errorf("connecting to the bank: %w", err)
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	for i := len(allowed)*64 - 1; i >= 0; i-- {
		if allowed.IsSet(i) {
			s.cpu.Set(i)
			break
		}
	}
	return nil
}

func (s *shop) connect() error {
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC
	listener, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		return err
	}
	defer unix.Close(listener) //nolint:errcheck // nothing was written to it
	if err := unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := unix.Listen(listener, 1); err != nil {
		return err
	}
	addr, err := unix.Getsockname(listener)
	if err != nil {
		return err
	}
	if s.bank[0], err = unix.Socket(unix.AF_INET, kind, 0); err != nil {
		return err
	}
	if err := unix.Connect(s.bank[0], addr); err != nil {
		return err
	}
	s.bank[1], _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	return err
}

// enter gives the current thread its name and its CPU.
func (s *shop) enter(name string) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &s.cpu))
}

// checkout is the thread that serves orders.
func (s *shop) checkout() error {
	m := &s.measured
	m.TID = unix.Gettid()
	delays, err := openDelays()
	if err != nil {
		return err
	}
	now := func() moment {
		return moment{clock(unix.CLOCK_MONOTONIC), clock(unix.CLOCK_THREAD_CPUTIME_ID), delays.read()}
	}
	for {
		if err := s.orders.await(); err != nil {
			return err
		}
		traced(rand.Uint64()) // each order is a trace
		began := now()
		s.price()
		priced := now()
		s.reserve()
		reserved := now()
		if err := s.pay(); err != nil {
			return err
		}
		paid := now()
		nap(retryTime)
		rested := now()
		s.packed.Store(false)
		if err := s.reports.send(); err != nil {
			return err
		}
		s.pack()
		packed := now()
		m.CPU += packed.cpu - began.cpu
		m.Wait += packed.delay - began.delay + priced.waitedSince(began) + packed.waitedSince(rested)
		m.Lock += reserved.waitedSince(priced)
		m.Net += paid.waitedSince(reserved)
		m.Nap += rested.waitedSince(paid)
		traced(0)
		s.served <- struct{}{}
	}
}

// traced makes a trace what the goroutine works on, by its labels; 0: none.
func traced(id uint64) {
	ctx := context.Background()
	if id != 0 {
		ctx = pprof.WithLabels(ctx, pprof.Labels("trace_id", fmt.Sprintf("%016x%016[1]x", id),
			"span_id", fmt.Sprintf("%016x", id)))
	}
	pprof.SetGoroutineLabels(ctx)
}

//go:noinline
func (s *shop) price() { s.compute(priceTime) }

// pack computes while report does, on the same CPU.
//
//go:noinline
func (s *shop) pack() {
	s.compute(packTime)
	s.packed.Store(true)
}

// reserve waits for the lock that another order holds.
//
//go:noinline
func (s *shop) reserve() {
	for !atomic.CompareAndSwapUint32(&s.stock, 0, 1) {
		s.wanted.Store(true)
		futex(&s.stock, futexWaitPrivate, 1)
	}
	atomic.StoreUint32(&s.stock, 0)
}

//go:noinline
func (s *shop) pay() error {
	if err := write(s.bank[0]); err != nil {
		return err
	}
	return read(s.bank[0])
}

// checkOutFirst is the thread of another order, which locks the stock before checkout serves its one, and until that
// waits.
func (s *shop) checkOutFirst() error {
	for {
		if err := s.others.await(); err != nil {
			return err
		}
		traced(rand.Uint64())
		atomic.StoreUint32(&s.stock, 1)
		s.wanted.Store(false)
		if err := s.orders.send(); err != nil {
			return err
		}
		for !s.wanted.Load() {
			nap(lookTime)
		}
		nap(stockTime)
		atomic.StoreUint32(&s.stock, 0)
		futex(&s.stock, futexWakePrivate, 1)
		traced(0)
	}
}

// answer is the bank.
func (s *shop) answer() error {
	for {
		if err := read(s.bank[1]); err != nil {
			return err
		}
		nap(answerTime)
		if err := write(s.bank[1]); err != nil {
			return err
		}
	}
}

// report computes while checkout packs.
func (s *shop) report() error {
	h := uint64(1)
	for {
		if err := s.reports.await(); err != nil {
			return err
		}
		for !s.packed.Load() {
			h = mix(h, mixes)
		}
	}
}

// mixes is how often mix is to be repeated between two looks at a clock: for some 50 microseconds.
const mixes = 1 << 15

// compute uses CPU time. It is not interrupted for others by Go's scheduler, as it calls nothing that asks it.
//
//go:noinline
func (s *shop) compute(d time.Duration) {
	for end := clock(unix.CLOCK_THREAD_CPUTIME_ID) + d; clock(unix.CLOCK_THREAD_CPUTIME_ID) < end; {
		s.hash = mix(s.hash, mixes)
	}
}

//go:noinline
//go:nosplit
func mix(h uint64, n int) uint64 {
	for range n {
		h = (h ^ h>>29) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return h
}

// moment is what the clocks of a thread show.
type moment struct{ wall, cpu, delay time.Duration }

// waitedSince returns how long the thread was not on a CPU, and did not wait for one.
func (m moment) waitedSince(before moment) time.Duration {
	return (m.wall - before.wall) - (m.cpu - before.cpu) - (m.delay - before.delay)
}
