package tlsdesc

import (
	"encoding/binary"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

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

// TestImage: the tests below stand on it.
func TestImage(t *testing.T) {
	m := new(image).words(0x1000, 0x1122334455667788).bytes(0x1008, 9)
	whole, part, none := make([]byte, 8), make([]byte, 4), make([]byte, 1)
	requests := []memread.Request{
		{Addr: 0x1000, Buf: whole},
		{Addr: 0x1007, Buf: part},
		{Addr: 0xfff, Buf: none},
	}
	assert.NilError(t, m.ReadBatch(requests))
	if got := binary.LittleEndian.Uint64(whole); got != 0x1122334455667788 || requests[0].Err != nil {
		t.Errorf("read %#x, %v", got, requests[0].Err)
	}
	assert.Check(t, requests[1].N == 2 && part[0] == 0x11 && part[1] == 9 && requests[1].Err != nil,
		"partial read: %d bytes % x, %v", requests[1].N, part, requests[1].Err)
	assert.Check(t, requests[2].N == 0 && requests[2].Err != nil,
		"unmapped read: %d bytes, %v", requests[2].N, requests[2].Err)
}
