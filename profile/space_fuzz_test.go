package profile

import (
	"encoding/binary"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/procscan"
)

// FuzzUpdate updates twice with mappings of any bounds and offsets, some of a file, and compares
// every frame with the mappings.
func FuzzUpdate(f *testing.F) {
	words := func(words ...uint16) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint16(b, w)
		}
		return b
	}
	f.Add(words(1, 2, 1, 1, 2, 3, 0, 0), words(3, 5, 1, 1), uint16(1))
	f.Add(words(1, 9, 1, 1, 3, 5, 1, 1, 9, 1, 0, 0), words(), uint16(4))
	f.Add(words(0xffff, 0, 0xffff, 1), words(4, 5, 0, 1, 5, 6, 0, 1), uint16(4))
	f.Fuzz(func(t *testing.T, first, second []byte, page uint16) {
		files := newFiles(t)
		space := NewAddressSpace(files, pace)
		mapped := fileMapping(t, library, 0, 0)
		for _, b := range [][]byte{first, second} {
			p := &fakeProcess{}
			for ; len(b) >= 8 && len(p.mappings) < 64; b = b[8:] {
				word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint16(b[2*i:])) }
				m := procscan.Mapping{Start: word(0) << 12, End: word(1) << 12}
				if word(3)&1 != 0 {
					m.Offset, m.Dev, m.Ino, m.Path = word(2)<<12, mapped.Dev, mapped.Ino, mapped.Path
				}
				p.mappings = append(p.mappings, m)
			}
			update(t, space, p)
			if len(p.mappings) == 0 { // what was known stays
				continue
			}
			addr := uint64(page)<<12 + 0x123
			frame := space.AppendFrames(nil, []uint64{addr})[0]
			covers := func(m procscan.Mapping) bool { return m.Start <= addr && addr < m.End }
			if frame.File == nil {
				assert.Assert(t, frame.Address == addr, "%+v", frame)
				continue
			}
			// Every segment of this library lies at its offset in the file.
			if !slices.ContainsFunc(p.mappings, func(m procscan.Mapping) bool {
				return covers(m) && m.Path != "" && frame.Address == addr-m.Start+m.Offset
			}) {
				t.Fatalf("%+v of %+v", frame, p.mappings)
			}
		}
		regions := space.layout.Load().regions
		for i, r := range regions {
			assert.Assert(t, r.start < r.end && (i <= 0 || regions[i-1].end <= r.start), "%+v", regions)
		}
	})
}
