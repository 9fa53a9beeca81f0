package deltas

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
)

// The tables of Go's functions, as cmd/link writes them since Go 1.18: a header, tables of names and files, a
// table of values by address (pctab), and the functions, by address, with a final entry for their end.
const (
	magicGo118 = 0xfffffff0
	magicGo120 = 0xfffffff1

	headerBytes  = 72
	entryBytes   = 8  // of the table of functions: address and place of the function, 4 bytes each
	nameAt       = 4  // of a function: where its name is in the table of names
	pcspAt       = 16 // where its sizes of frames are in pctab
	functionSize = 20 // as far as pcspAt is read

	// maxTableBytes bounds what is read. Programs of 200 MB have tables of 60 MB.
	maxTableBytes = 128 << 20

	// maxFunctionSizes and maxSizes bound the sizes of frames that are read, of a function and of all. Go's compiler
	// has a function with 7,871; kubectl has 586,000, and 12 MB of tables. Functions can share their sizes, so the
	// table's length is no bound.
	maxFunctionSizes = 1 << 16
	maxSizes         = 1 << 22

	// maxGoBytes bounds the table with what is made of each size.
	maxGoBytes = 192 << 20
	sizeBytes  = 32

	// moduleTextAt is where Go's description of a program (.go.module, since Go 1.26) has the address of the
	// text.
	moduleTextAt = 22 * 8
)

var (
	errTable    = errors.New("table of Go's functions is damaged")
	errTooLarge = fmt.Errorf("table of Go's functions has more than %d bytes", maxTableBytes)

	errTooManySizes = errors.New("table of Go's functions has too many sizes of frames")
)

// goTable are the functions of a Go program.
type goTable struct {
	file      *pfelf.File
	names     uint64 // their address
	text      uint64 // address that those of functions count from
	quantum   uint64 // length of the shortest instruction
	values    []byte // pctab
	functions []byte
	n         int
	left      int // functions, and sizes of their frames, that may be read
}

// goFunction is a function, with the size of its frame at each of its addresses.
type goFunction struct {
	start, end uint64
	name       uint32      // where it is in the table
	sizes      []frameSize // empty: not known
}

// frameSize is how many bytes a function has on the stack from an address on, without the return address.
type frameSize struct {
	from uint64
	size int32
}

// readGoTable returns nil if a file has no table, or one of a Go before 1.18.
func readGoTable(file *pfelf.File) (*goTable, error) {
	tableAt, size, textAt := findGoTable(file)
	if size < headerBytes {
		return nil, nil
	}
	header := make([]byte, headerBytes)
	if _, err := file.ReadAt(header, int64(tableAt)); err != nil {
		return nil, err
	}
	magic := binary.LittleEndian.Uint32(header)
	if magic != magicGo118 && magic != magicGo120 || header[7] != 8 {
		return nil, nil
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(header[8*i:]) }
	n, text, values, functions := word(1), word(3), word(7), word(8)
	if header[6] == 0 || values > functions || functions > size || n >= (size-functions)/entryBytes {
		return nil, errTable
	}
	if size-values > maxTableBytes {
		return nil, errTooLarge
	}
	b := make([]byte, size-values)
	if _, err := file.ReadAt(b, int64(tableAt+values)); err != nil {
		return nil, err
	}
	if text == 0 {
		text = textAt
	}
	if text == 0 {
		var err error
		if text, err = moduleText(file); err != nil {
			return nil, err
		}
	}
	return &goTable{
		file: file, names: tableAt + word(4), text: text, quantum: uint64(header[6]),
		values: b[:functions-values], functions: b[functions-values:], n: int(n),
		left: mostSizes(len(b)),
	}, nil
}

// mostSizes returns how many sizes there may be beside a table.
func mostSizes(tableBytes int) int { return min(maxSizes, (maxGoBytes-tableBytes)/sizeBytes) }

// findGoTable returns where the table is, and, if symbols say so, where the text is. Programs that can be anywhere
// and that the system's linker has linked have no section of it.
func findGoTable(file *pfelf.File) (table, size, text uint64) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if section := file.Section(name); section != nil {
			return section.Addr, section.FileSize, 0
		}
	}
	if file.Section(".go.buildinfo") == nil {
		return 0, 0, 0
	}
	var end uint64
	_ = file.VisitSymbols(func(symbol libpf.Symbol) bool {
		switch symbol.Name {
		case "runtime.pclntab":
			table = uint64(symbol.Address)
		case "runtime.epclntab":
			end = uint64(symbol.Address)
		case "runtime.text":
			text = uint64(symbol.Address)
		}
		return table == 0 || end == 0 || text == 0
	})
	if table == 0 || end < table {
		return 0, 0, 0
	}
	return table, end - table, text
}

// moduleText returns the address of the text of a program whose table does not have it.
func moduleText(file *pfelf.File) (uint64, error) {
	section := file.Section(".go.module")
	if section == nil {
		return 0, errTable
	}
	b := make([]byte, 8)
	if _, err := section.ReadAt(b, moduleTextAt); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// entry returns the address of a function, or of the end of the last one, and where it is described.
func (t *goTable) entry(i int) (addr uint64, at uint32) {
	b := t.functions[i*entryBytes:]
	return t.text + uint64(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:])
}

// function reads a function. It is valid until the next one is read.
func (t *goTable) function(i int, f *goFunction) error {
	var at uint32
	f.start, at = t.entry(i)
	f.end, _ = t.entry(i + 1)
	f.sizes = f.sizes[:0]
	if t.left--; t.left < 0 {
		return errTooManySizes
	}
	if f.end < f.start || uint64(at)+functionSize > uint64(len(t.functions)) {
		return errTable
	}
	f.name = binary.LittleEndian.Uint32(t.functions[at+nameAt:])
	where := binary.LittleEndian.Uint32(t.functions[at+pcspAt:])
	if where == 0 {
		return nil
	}
	if uint64(where) >= uint64(len(t.values)) {
		return errTable
	}
	size, addr := int32(-1), f.start
	for b := t.values[where:]; len(b) > 0 && b[0] != 0 || len(f.sizes) == 0; {
		change, n := binary.Uvarint(b)
		length, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || length == 0 || length > (f.end-f.start)/t.quantum {
			return errTable
		}
		if t.left--; t.left < 0 || len(f.sizes) == maxFunctionSizes {
			return errTooManySizes
		}
		b = b[n+m:]
		size += int32(change>>1) ^ -int32(change&1)
		f.sizes = append(f.sizes, frameSize{addr, size})
		if addr += length * t.quantum; addr > f.end {
			return errTable
		}
	}
	return nil
}

// isNamed reports whether a function has a name.
func (t *goTable) isNamed(f *goFunction, name string) bool {
	b := make([]byte, len(name)+1)
	n, _ := t.file.ReadAt(b, int64(t.names)+int64(f.name))
	return n == len(b) && string(b) == name+"\x00"
}

// window reads code in large pieces, from lower to higher addresses.
type window struct {
	file  *pfelf.File
	start uint64
	code  []byte
	err   error
}

const windowBytes = 1 << 18

// at returns n bytes at an address, nil if they cannot be read.
func (w *window) at(addr uint64, n int) []byte {
	if off := addr - w.start; addr < w.start || off > uint64(len(w.code)) || uint64(len(w.code))-off < uint64(n) {
		if cap(w.code) == 0 {
			w.code = make([]byte, windowBytes)
		}
		w.start, w.code = addr, w.code[:windowBytes]
		read, err := w.file.ReadAt(w.code, int64(addr))
		if w.code = w.code[:max(read, 0)]; len(w.code) < n {
			w.err = err
			return nil
		}
	}
	return w.code[addr-w.start:][:n]
}
