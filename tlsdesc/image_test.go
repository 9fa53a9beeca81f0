package tlsdesc

import (
	"encoding/binary"
	"fmt"

	"correlator/memread"
)

// image is a Memory made by hand: what is in it can be read, everything else is not mapped.
type image struct {
	areas   []area
	batches int                  // how many there were
	before  map[int]func(*image) // what happens in the process before the nth batch, from 1
	gone    bool
}

type area struct {
	addr  uint64
	bytes []byte
}

// words puts 8-byte words at addr.
func (m *image) words(addr uint64, words ...uint64) *image {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return m.bytes(addr, b...)
}

// bytes puts bytes at addr. What is put later lies above what was put before.
func (m *image) bytes(addr uint64, b ...byte) *image {
	m.areas = append(m.areas, area{addr, b})
	return m
}

// changing has something happen in the process before the nth batch.
func (m *image) changing(n int, change func(*image)) *image {
	m.before = map[int]func(*image){n: change}
	return m
}

func (m *image) at(addr uint64) (byte, bool) {
	for i := len(m.areas) - 1; i >= 0; i-- {
		if off := addr - m.areas[i].addr; off < uint64(len(m.areas[i].bytes)) {
			return m.areas[i].bytes[off], true
		}
	}
	return 0, false
}

func (m *image) ReadBatch(requests []memread.Request) error {
	m.batches++
	if change := m.before[m.batches]; change != nil {
		change(m)
	}
	if m.gone {
		return memread.ErrGone
	}
	for i := range requests {
		r := &requests[i]
		r.N, r.Err = 0, nil
		for r.N < len(r.Buf) {
			addr := r.Addr + uint64(r.N)
			b, ok := m.at(addr)
			if !ok || addr < r.Addr {
				r.Err = fmt.Errorf("%w: %#x", memread.ErrUnmapped, addr)
				break
			}
			r.Buf[r.N] = b
			r.N++
		}
	}
	return nil
}
