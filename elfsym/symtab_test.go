package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

type section = elf.Section64

const symtab, strtab = uint32(elf.SHT_SYMTAB), uint32(elf.SHT_STRTAB)

// testNameBytes is how much of a name the tests of symbol tables read.
const testNameBytes = 4096

// nameAt returns the name of the last function that holds an address. A name that cannot be read
// for what the file says is empty.
func nameAt(t *SymbolTable, addr uint64) (name string, err error) {
	err = t.Functions(func(f Function) error {
		if addr < f.Start || addr >= f.End {
			return nil
		}
		text, err := t.Name(f.Name, make([]byte, testNameBytes))
		if err != nil && !IsContentError(err) {
			return err
		}
		name = string(text)
		return nil
	})
	return name, err
}

// sectionsImage is a file of section headers: null, .symtab, .strtab and .text, which says that it
// is everywhere.
func sectionsImage(symbols, names section, entries ...[]byte) []byte {
	b := make([]byte, headerBytes+4*sectionHeaderBytes)
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	binary.LittleEndian.PutUint64(b[40:], headerBytes)
	binary.LittleEndian.PutUint16(b[58:], sectionHeaderBytes)
	binary.LittleEndian.PutUint16(b[60:], 4)
	text := section{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_EXECINSTR), Size: 1 << 62}
	for i, s := range []section{symbols, names, text} {
		binary.Encode(b[headerBytes+(i+1)*sectionHeaderBytes:], binary.LittleEndian, s)
	}
	return append(b, bytes.Join(entries, nil)...)
}

func symbolEntry(name uint32, info byte, shndx uint16, value, size uint64) []byte {
	b := make([]byte, symbolBytes)
	binary.LittleEndian.PutUint32(b, name)
	b[4] = info
	binary.LittleEndian.PutUint16(b[6:], shndx)
	binary.LittleEndian.PutUint64(b[8:], value)
	binary.LittleEndian.PutUint64(b[16:], size)
	return b
}

const (
	entriesOff = headerBytes + 4*sectionHeaderBytes
	function   = byte(elf.STB_GLOBAL)<<4 | byte(elf.STT_FUNC)
)

func TestHostileSymbolTables(t *testing.T) {
	const huge = 1 << 50
	valid := symbolEntry(1, function, 3, 0x1000, 16)
	symbols := section{Type: symtab, Off: entriesOff, Size: symbolBytes, Link: 2, Entsize: symbolBytes}
	names := section{Type: strtab, Off: entriesOff + symbolBytes, Size: 64}
	with := func(change func(symbols, names *section)) []byte {
		s, n := symbols, names
		change(&s, &n)
		return sectionsImage(s, n, valid, []byte("\x00name\x00"))
	}
	nothing := func(_, _ *section) {}
	for _, test := range []struct {
		what string
		file []byte
		size int64
		want error // of reading or of naming
		name string
	}{
		{"none of it", with(nothing), huge, nil, "name"},
		{"a billion symbols", with(func(s, _ *section) { s.Size = 24 << 30 }), huge, ErrLimit, ""},
		{"symbols behind the end", with(func(s, _ *section) { s.Off = huge }), huge, errTruncated, ""},
		{"symbols that wrap", with(func(s, _ *section) { s.Off = ^uint64(0) - 8 }), huge, errTruncated, ""},
		{"symbols of another size", with(func(s, _ *section) { s.Entsize = 25 }), huge, nil, ""},
		{"names in no section", with(func(s, _ *section) { s.Link = 9 }), huge, nil, ""},
		{"names that are none", with(func(_, n *section) { n.Type = uint32(elf.SHT_PROGBITS) }), huge, nil, ""},
		{"names behind the end", with(func(_, n *section) { n.Off = huge }), huge, nil, ""},
		{"names that wrap", with(func(_, n *section) { n.Off = ^uint64(0); n.Size = ^uint64(0) }), huge, nil, ""},
		{"a name behind its table", with(func(_, n *section) { n.Size = 1 }), huge, nil, ""},
		{"a name without an end", sectionsImage(symbols, names, valid, []byte("\x00name")),
			entriesOff + symbolBytes + 5,
			nil, "name"},
		{"a name of a gigabyte", sectionsImage(symbols, section{Type: strtab, Size: huge},
			symbolEntry(entriesOff+symbolBytes, function, 3, 0x1000, 16), bytes.Repeat([]byte("x"), 1<<20)), huge,
			nil, strings.Repeat("x", testNameBytes)},
		{"a symbol that wraps", sectionsImage(symbols, names, symbolEntry(1, function, 3, 0x1000, ^uint64(0)),
			[]byte("\x00name\x00")), huge, nil, ""},
		{"no room for the header", []byte(elf.ELFMAG), 4, errTruncated, ""},
		{"no room for the sections", with(nothing)[:headerBytes], headerBytes, errTruncated, ""},
		{"no ELF file", make([]byte, headerBytes), headerBytes, errNotELF, ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			m := &meter{r: sparse(test.file)}
			var name string
			tables, err := ReadSymbolTables(m, test.size)
			if err == nil {
				name, err = nameAt(tables.Static, 0x1008)
			}
			assert.Check(t, errors.Is(err, test.want) && name == test.name,
				"%q, %v; want %.20q, %v", name, err, test.name, test.want)
			assert.Check(t, m.bytes <= maxSymbols*symbolBytes+1<<20, "read %d bytes", m.bytes)
		})
	}
	// As many as are allowed are visited, one more is not.
	stop := errors.New("stop")
	for n, want := range map[uint64]error{maxSymbols: stop, maxSymbols + 1: ErrLimit} {
		tables, err := ReadSymbolTables(sparse(with(func(s, _ *section) { s.Size = n * symbolBytes })), huge)
		assert.NilError(t, err)
		assert.ErrorIs(t, tables.Static.Functions(func(Function) error { return stop }), want)
	}
}

// An error of reading is none of the contents; a file that has become shorter is one.
func TestSymbolTableReadErrors(t *testing.T) {
	errRead := errors.New("no more")
	r := failing{ReaderAt: bytes.NewReader(nil), from: -1, err: errRead}
	_, err := ReadSymbolTables(r, 1<<20)
	assert.Check(t, errors.Is(err, errRead) && !IsContentError(err), err)
	_, err = ReadSymbolTables(bytes.NewReader(nil), 1<<20)
	assert.Check(t, errors.Is(err, errTruncated), err)
	symbols := section{
		Type: symtab, Off: pageBytes, Size: 2 * symbolBytes, Link: 2, Entsize: symbolBytes,
	}
	b := sectionsImage(symbols, section{Type: strtab, Size: 4}, make([]byte, pageBytes))
	tables, err := ReadSymbolTables(bytes.NewReader(b[:pageBytes+symbolBytes]), 1<<20)
	assert.NilError(t, err)
	_, err = nameAt(tables.Static, 0)
	assert.Check(t, errors.Is(err, errTruncated) && !errors.Is(err, io.EOF), err)
}

func FuzzReadSymbolTables(f *testing.F) {
	for _, b := range readFixtures(f) {
		f.Add(b)
	}
	symbols := section{Type: symtab, Off: entriesOff, Size: 3 * symbolBytes, Link: 2, Entsize: symbolBytes}
	f.Add(sectionsImage(symbols, section{Type: strtab, Off: entriesOff + 3*symbolBytes, Size: 16},
		symbolEntry(1, function, 3, 0x1000, 16), symbolEntry(1, function, 3, 0x1000, 0),
		symbolEntry(3, byte(elf.STB_GLOBAL)<<4, 3, 0x401000, 0), []byte("\x00name\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		tables, err := ReadSymbolTables(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			assert.Assert(t, tables == nil && IsContentError(err), "%+v, %v", tables, err)
			return
		}
		for _, table := range []*SymbolTable{tables.Static, tables.Dynamic} {
			err := table.Functions(func(f Function) error {
				assert.Assert(t, f.Start <= f.End || !f.Sized, "%+v", f)
				name, err := table.Name(f.Name, make([]byte, testNameBytes))
				assert.Assert(t, bytes.IndexByte(name, 0) < 0, "%q", name)
				return err
			})
			assert.Assert(t, err == nil || IsContentError(err), err)
		}
	})
}

// functionsOf returns the functions of a table with their names.
func functionsOf(t *testing.T, table *SymbolTable) (texts []string) {
	t.Helper()
	assert.NilError(t, table.Functions(func(f Function) error {
		name, err := table.Name(f.Name, make([]byte, testNameBytes))
		texts = append(texts, fmt.Sprintf("%x %x %s", f.Start, f.End, name))
		return err
	}))
	return texts
}

// A file without section headers, or that is cut before them, has the functions that the loader finds.
func TestSymbolTablesWithoutSections(t *testing.T) {
	files := readFixtures(t)
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"} {
		if b, err := os.ReadFile(path); err == nil {
			files[path] = b
		}
	}
	functions := 0
	for name, b := range files {
		tables, err := ReadSymbolTables(bytes.NewReader(b), int64(len(b)))
		assert.NilError(t, err)
		want := functionsOf(t, tables.Dynamic)
		functions += len(want)
		cut := b[:binary.LittleEndian.Uint64(b[40:])]
		if len(cut) < len(b)/2 { // they are not at the end
			continue
		}
		tables, err = ReadSymbolTables(bytes.NewReader(cut), int64(len(cut)))
		assert.NilError(t, err)
		assert.Check(t, errors.Is(tables.Partial, errTruncated), "%s: %v", name, tables.Partial)
		assert.DeepEqual(t, functionsOf(t, tables.Dynamic), want)
		none := bytes.Clone(b)
		clear(none[40:48])
		clear(none[60:64])
		tables, err = ReadSymbolTables(bytes.NewReader(none), int64(len(none)))
		assert.NilError(t, errors.Join(err, tables.Partial))
		assert.DeepEqual(t, functionsOf(t, tables.Dynamic), want)
	}
	assert.Check(t, functions > 0)
}

// The number of sections, and that of their names, are in the first of them where the ELF header has no room.
func TestManySections(t *testing.T) {
	build := func(count uint64) []byte {
		b := make([]byte, headerBytes+count*sectionHeaderBytes)
		copy(b, sectionsImage(section{}, section{})[:headerBytes])
		binary.LittleEndian.PutUint16(b[60:], 0)
		binary.LittleEndian.PutUint16(b[62:], uint16(elf.SHN_XINDEX))
		end := uint64(len(b))
		names := []byte("\x00" + debugLinkName + "\x00name\x00")
		link := []byte("file\x00\x00\x00\x00\x01\x02\x03\x04")
		entry := symbolEntry(uint32(len(debugLinkName)+2), function, uint16(elf.SHN_XINDEX), 0x1000, 16)
		b = slices.Concat(b, entry, names, link)
		for i, s := range map[uint64]section{
			0: {Size: count, Link: uint32(count - 1)},
			count - 3: {Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: uint64(len(b) - len(link)),
				Size: uint64(len(link))},
			count - 2: {Type: symtab, Off: end, Size: symbolBytes, Link: uint32(count - 1), Entsize: symbolBytes},
			count - 1: {Type: strtab, Off: end + symbolBytes, Size: uint64(len(names))},
		} {
			_, err := binary.Encode(b[headerBytes+i*sectionHeaderBytes:], binary.LittleEndian, s)
			assert.NilError(t, err)
		}
		return b
	}
	for _, count := range []uint64{uint64(elf.SHN_LORESERVE), 70_000, maxSections} {
		b := build(count)
		tables, err := ReadSymbolTables(bytes.NewReader(b), int64(len(b)))
		assert.NilError(t, err)
		name, err := nameAt(tables.Static, 0x1008)
		assert.Check(t, err == nil && name == "name" && tables.DebugLink.Name == "file", "%d: %q, %v, %+v", count, name,
			err, tables.DebugLink)
	}
	b := build(maxSections + 1)
	_, err := ReadSymbolTables(bytes.NewReader(b), int64(len(b)))
	assert.ErrorIs(t, err, ErrLimit)
	for _, b := range [][]byte{build(1000), build(70_000)[:headerBytes+sectionHeaderBytes/2]} { // there are none
		tables, err := ReadSymbolTables(bytes.NewReader(b), int64(len(b)))
		assert.Check(t, err != nil || tables.Static == nil && tables.Partial == nil, "%+v, %v", tables, err)
	}
}
