package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

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
