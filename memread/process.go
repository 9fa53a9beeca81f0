// Package memread reads the memory of another process without stopping it, and decodes the two
// layouts of the APM correlation protocol found there: process storage and thread slot.
//
// This package does not check which process has a pid: a caller that must not be fooled by a reused
// pid holds a pidfd and polls it after reading. A pidfd does not notice an exec; reading again what
// was found before shows that there was none.
//
// A read can block as long as the process likes: it can back its pages with userfaultfd or with a
// file system that it serves itself. Read different processes on different goroutines.
package memread

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrGone: the process has no memory any more, reaped or not. The same is returned for kernel
	// threads, which never have any, and for processes whose main thread has exited before the
	// others.
	ErrGone = errors.New("process is gone")
	// ErrUnmapped: a page of the range is not mapped, or not readable by the process itself.
	ErrUnmapped = errors.New("memory is not mapped or not readable")
	// ErrDenied: neither process_vm_readv nor /proc/PID/mem lets us read this process.
	ErrDenied = errors.New("reading the memory of the process is not permitted")
)

const (
	pointerBytes = 8
	// smallestPage is the smallest page of any architecture that we run on.
	smallestPage = 4096
)

// Process reads the memory of one process. It may be used by one goroutine at a time.
//
// It has no buffer until it is read in batches; then it keeps scratch space for the largest batch
// so far: at most 44 kB, and 330 bytes when slots are read one by one.
type Process struct {
	pid      int
	procRoot string
	mem      *os.File // /proc/PID/mem, once process_vm_readv was refused
	remote   Remote   // nil: it is read here
	alone    bool     // see OpenAlone

	// Scratch space, so that repeated reads allocate nothing.
	word     [pointerBytes]byte
	local    []unix.Iovec
	far      []unix.RemoteIovec
	requests []Request
	slots    []slotReads
	split    *splitReads
}

// Open makes no system call and cannot fail: reads return the errors. pid is one of our own pid
// namespace, and procRoot must be a procfs of that namespace. The caller must Close.
func Open(procRoot string, pid int) *Process {
	return &Process{pid: pid, procRoot: procRoot}
}

// OpenAlone is Open for a program that does nothing else while it reads: the Go runtime is not told of system calls,
// so that none of its other threads wakes up. While the process lets one wait (see the package), no goroutine
// may run that shares a CPU with it, nor the garbage collector.
func OpenAlone(procRoot string, pid int) *Process {
	return &Process{pid: pid, procRoot: procRoot, alone: true}
}

// Remote reads memory elsewhere, as Process.ReadBatch: up to 1024 requests in one go.
type Remote func(reqs []Request) error

// OpenRemote is Open for memory that another process reads for us, so that a page whose owner lets
// us wait forever (see the package) makes that one wait.
func OpenRemote(procRoot string, pid int, read Remote) *Process {
	return &Process{pid: pid, procRoot: procRoot, remote: read}
}

// Close releases the descriptor. The Process must not be used afterwards.
func (p *Process) Close() error {
	if p.mem == nil {
		return nil
	}
	err := p.mem.Close()
	p.mem = nil
	return err
}

// Read fills buf with the memory at addr. The first n bytes of buf are valid, whatever the error:
// when the range runs into a page that cannot be read, they are all those before that page. err is
// nil exactly when n == len(buf).
func (p *Process) Read(addr uint64, buf []byte) (n int, err error) {
	var local [1]unix.Iovec
	var remote [1]unix.RemoteIovec
	v := vector{local[:], remote[:]}
	v.set(0, addr, buf)
	err = p.transfer(v)
	n = len(buf) - v.missing(0)
	if err == nil && n < len(buf) {
		err = ErrUnmapped
	}
	if err != nil {
		err = fmt.Errorf("reading %d bytes at %#x: %w", len(buf), addr, err)
	}
	return n, err
}

// Request is one read of a batch. ReadBatch sets N and Err as Read returns them, except that Err is
// the bare sentinel: the request has the address and length.
type Request struct {
	Addr uint64
	Buf  []byte
	N    int
	Err  error
}

// ReadBatch serves all requests in order, 1024 with each call of process_vm_readv, or one with each
// pread of /proc/PID/mem. A request that fails costs two more calls and does not affect the others.
// The error is that of the whole process (ErrGone, ErrDenied); then every request that was not
// served in full has it too.
func (p *Process) ReadBatch(reqs []Request) error {
	for start := 0; start < len(reqs); start += maxElements {
		chunk := reqs[start:min(start+maxElements, len(reqs))]
		v := p.vector(len(chunk))
		for i := range chunk {
			v.set(i, chunk[i].Addr, chunk[i].Buf)
		}
		err := p.transfer(v)
		for i := range chunk {
			missing := v.missing(i)
			chunk[i].N, chunk[i].Err = len(chunk[i].Buf)-missing, nil
			if missing > 0 {
				chunk[i].Err = ErrUnmapped
				if err != nil {
					chunk[i].Err = err
				}
			}
		}
		clear(v.local) // the scratch space must not keep the caller's buffers alive
		if err != nil {
			for i := start + len(chunk); i < len(reqs); i++ {
				reqs[i].N, reqs[i].Err = 0, err
			}
			return fmt.Errorf("reading %d ranges: %w", len(reqs), err)
		}
	}
	return nil
}

// vector returns n empty elements in the scratch space of p, valid until the next call.
func (p *Process) vector(n int) vector {
	if cap(p.local) < n { // exactly n, so that the bound of Process holds
		p.local, p.far = make([]unix.Iovec, n), make([]unix.RemoteIovec, n)
	}
	v := vector{p.local[:n], p.far[:n]}
	clear(v.local)
	clear(v.remote)
	return v
}
