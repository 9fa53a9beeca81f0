package elfsym

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// dwarfOf returns the DWARF of a file with these sections, by name, and what is read of it.
func dwarfOf(sections map[string]string) (*DWARF, *meter) {
	var file []byte
	d := newDWARF()
	for name, contents := range sections {
		name, compressed := strings.CutSuffix(name, " compressed")
		section := elf.Section64{Off: uint64(len(file)), Size: uint64(len(contents))}
		if compressed {
			section.Flags = uint64(elf.SHF_COMPRESSED)
		}
		file = append(file, contents...)
		d.add(name, source{}, section)
	}
	m := &meter{r: bytes.NewReader(file)}
	for _, s := range []*dwarfSection{&d.info, &d.abbrev, &d.str, &d.lineStr, &d.strOffsets, &d.addr} {
		s.source = source{m, uint64(len(file))}
	}
	return d, m
}

// dwarfUnitOf returns a unit of DWARF 4 with 8-byte addresses.
func dwarfUnitOf(table uint32, entries string) string {
	b := binary.LittleEndian.AppendUint32(nil, uint32(7+len(entries)))
	b = binary.LittleEndian.AppendUint16(b, 4)
	b = append(binary.LittleEndian.AppendUint32(b, table), addressBytes)
	return string(b) + entries
}

// dwarfUnit5 returns a compilation unit of DWARF 5.
func dwarfUnit5(entries string) string {
	b := binary.LittleEndian.AppendUint32(nil, uint32(8+len(entries)))
	return string(b) + "\x05\x00\x01\x08\x00\x00\x00\x00" + entries
}

func uint64s(numbers ...uint64) string {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return string(b)
}

// readDWARF returns the names of functions by their first address, and what is said of them.
func readDWARF(d *DWARF) (names map[uint64]string, err error) {
	names = make(map[uint64]string)
	err = d.Functions(func(f Function) error {
		name, err := d.Name(f.Name, make([]byte, testNameBytes))
		names[f.Start] = string(name)
		return err
	})
	return names, err
}

// Abbreviations: 1 a unit, 2 a function with text, 3 one of an origin in the unit, 4 in another, 5
// one without code.
const (
	dwarfTables = "\x01\x11\x01\x00\x00" +
		"\x02\x2e\x00\x03\x08\x11\x01\x12\x0b\x00\x00" +
		"\x03\x2e\x00\x31\x11\x11\x01\x12\x0b\x00\x00" +
		"\x04\x2e\x00\x31\x10\x11\x01\x12\x01\x00\x00" +
		"\x05\x2e\x00\x47\x11\x00\x00" +
		"\x00"
	dwarfFirst = "\x02first\x00\x00\x10\x00\x00\x00\x00\x00\x00\x20"
)

// Names are those of a function's entry, or of what it refers to, in its unit and in others.
func TestDWARFNames(t *testing.T) {
	first := "\x01" + dwarfFirst + "\x00"
	second := "\x01\x05\x0e" + "\x02s\x00" + uint64s(0x2000) + "\x20" +
		"\x03\x0c" + uint64s(0x3000) + "\x20" + // by one that refers to s
		"\x04\x0c\x00\x00\x00" + uint64s(0x4000, 0x4010) + "\x00"
	d, _ := dwarfOf(map[string]string{
		".debug_info": dwarfUnitOf(0, first) + dwarfUnitOf(0, second) + dwarfUnitOf(0, first), ".debug_abbrev": dwarfTables,
	})
	for range 2 { // it can be read again
		names, err := readDWARF(d)
		assert.NilError(t, err)
		assert.DeepEqual(t, names, map[uint64]string{0x1000: "first", 0x2000: "s", 0x3000: "s", 0x4000: "first"})
	}
	// A name that is as many entries away as is allowed, and one more.
	for n, want := range map[int]string{maxOrigins: "first", maxOrigins + 1: ""} {
		const start, header, size = 11, 1, 2
		entries := "\x01"
		for i := range n - 2 {
			entries += "\x05" + string(byte(start+header+size*(i+1)))
		}
		entries += "\x02first\x00" + uint64s(0) + "\x20" + "\x03" + string(byte(start+header)) + uint64s(0x2000) + "\x20"
		d, _ := dwarfOf(map[string]string{".debug_info": dwarfUnitOf(0, entries), ".debug_abbrev": dwarfTables})
		names, err := readDWARF(d)
		assert.NilError(t, err)
		assert.DeepEqual(t, names, map[uint64]string{0x2000: want})
	}
	// Only that which others are read after is copied.
	buf := make([]byte, testNameBytes)
	err := d.Functions(func(f Function) error {
		if f.Start == 0x1000 {
			name, err := d.Name(f.Name, buf)
			assert.Check(t, err == nil && &name[0] == &buf[0], "%q, %v", name, err)
		}
		return nil
	})
	assert.NilError(t, err)
	_, err = d.Name(math.MaxUint32, nil)
	assert.Check(t, errors.Is(err, errMalformed), "%v", err)
	_, err = d.Name(0, nil)
	assert.Check(t, errors.Is(err, errMalformed), "%v", err)
	stop := errors.New("stop")
	assert.ErrorIs(t, d.Functions(func(Function) error { return stop }), stop)
	assert.NilError(t, (*DWARF)(nil).Functions(nil))
}

// A linkage name, wherever it is, is preferred to one in the source, and that of the nearest entry
// to others. Numbers are those of the unit's part of a table.
func TestDWARFIndexes(t *testing.T) {
	const tables = "\x01\x11\x01\x72\x17\x73\x17\x00\x00" +
		"\x02\x2e\x00\x03\x25\x11\x1b\x12\x0f\x47\x13\x00\x00" + // strx1, addrx, udata, ref4
		"\x03\x2e\x00\x03\x0e\x6e\x0e\x00\x00" + // two strp
		"\x04\x2e\x00\x03\x1f\x11\x29\x12\x21\x90\x01\x00\x00" + // line_strp, addrx1, 16 as implicit_const
		"\x05\x2e\x00\x03\x26\x11\x16\x12\x0d\x00\x00" + // strx2, what is said there, sdata
		"\x00"
	entries := func(origin byte) string {
		return "\x01\x08\x00\x00\x00\x08\x00\x00\x00" +
			"\x02\x00\x01\x20" + string(origin) + "\x00\x00\x00" + // near, that refers to linked
			"\x02\x01\x00\x20" + string(origin+9) + "\x00\x00\x00" + // own, to near
			"\x04\x00\x00\x00\x00\x02" + // line
			"\x05\x00\x00\x01" + uint64s(0x4000) + "\x10" + // near
			"\x00"
	}
	origin := byte(len(dwarfUnit5(entries(0))))
	info := dwarfUnit5(entries(origin) + "\x03\x00\x00\x00\x00\x05\x00\x00\x00" +
		"\x03\x00\x00\x00\x00\x04\x00\x00\x00" + "\x00")
	d, _ := dwarfOf(map[string]string{
		".debug_info": info, ".debug_abbrev": tables,
		".debug_str": "near\x00linked\x00own\x00", ".debug_line_str": "line\x00",
		".debug_str_offsets": "\x00\x00\x00\x00\x05\x00\x00\x00" + "\x00\x00\x00\x00" + "\x0c\x00\x00\x00",
		".debug_addr":        uint64s(0xdead, 0x1000, 0x2000, 0x3000),
	})
	names, err := readDWARF(d)
	assert.NilError(t, err)
	assert.DeepEqual(t, names, map[uint64]string{0x1000: "own", 0x2000: "linked", 0x3000: "line", 0x4000: "near"})
	assert.NilError(t, d.Functions(func(f Function) error {
		if f.Start == 0x2000 { // a name that is passed over takes none of its room
			name, err := d.Name(f.Name, make([]byte, len("linked")))
			assert.Check(t, err == nil && string(name) == "linked", "%q, %v", name, err)
		}
		return nil
	}))
}

// Units of each kind are read: their headers, what references in them mean, and abbreviations with
// codes of any order. What a unit does not say where it is, has no address, or no name.
func TestDWARFUnits(t *testing.T) {
	first := "\x01" + dwarfFirst
	of := func(version, rest string) string { // with 32-bit offsets
		return string(binary.LittleEndian.AppendUint32(nil, uint32(2+len(rest)))) + version + rest
	}
	const v5, offset, number = "\x05\x00", "\x00\x00\x00\x00", "xxxxxxxx"
	long := func(version, rest string) string {
		return "\xff\xff\xff\xff" + uint64s(uint64(2+len(rest))) + version + rest
	}
	for _, test := range []struct {
		what, info, tables string
		want               map[uint64]string
	}{
		{"a skeleton", of(v5, "\x04\x08"+offset+number+first), dwarfTables, map[uint64]string{0x1000: "first"}},
		{"a type", of(v5, "\x02\x08"+offset+number+offset+first), dwarfTables, map[uint64]string{0x1000: "first"}},
		{"a type of 64 bits", long(v5, "\x06\x08"+uint64s(0)+number+uint64s(0)+first), dwarfTables,
			map[uint64]string{0x1000: "first"}},
		{"version 4 of 64 bits", long("\x04\x00", uint64s(0)+"\x08"+first), dwarfTables,
			map[uint64]string{0x1000: "first"}},
		{"references of version 2", of("\x02\x00", offset+"\x08"+first+"\x04"+uint64s(12, 0x2000, 0x2001)), dwarfTables,
			map[uint64]string{0x1000: "first", 0x2000: "first"}},
		{"no order of codes", dwarfUnitOf(0, "\x09"+dwarfFirst), "\x09\x11\x01\x00\x00" + "\x02" + dwarfTables[6:],
			map[uint64]string{0x1000: "first"}},
		{"no offsets of texts", dwarfUnit5("\x01" + uint64s(0x1000) + "\x10\x00"),
			"\x01\x2e\x00\x11\x01\x12\x0b\x03\x25\x00\x00\x00", map[uint64]string{0x1000: ""}},
		{"no addresses", dwarfUnit5("\x01\x00\x10x\x00"), "\x01\x2e\x00\x11\x1b\x12\x0b\x03\x08\x00\x00\x00",
			map[uint64]string{}},
		{"a name in another file", dwarfUnit5("\x01" + uint64s(0x1000) + "\x10xxxx"),
			"\x01\x2e\x00\x11\x01\x12\x0b\x03\xa1\x3e\x00\x00\x00", map[uint64]string{0x1000: ""}},
		{"a text without an end", dwarfUnit5("\x01" + uint64s(0x1000) + "\x10\x00\x00\x00\x00"),
			"\x01\x2e\x00\x11\x01\x12\x0b\x03\x0e\x00\x00\x00", nil},
	} {
		d, _ := dwarfOf(map[string]string{".debug_info": test.info, ".debug_abbrev": test.tables, ".debug_str": "text"})
		names, err := readDWARF(d)
		if test.want == nil {
			assert.Check(t, errors.Is(err, errMalformed), "%s: %v", test.what, err)
			continue
		}
		assert.NilError(t, err, test.what)
		assert.DeepEqual(t, names, test.want)
	}
}

// Values of each form are read with their size, so that what follows them is where it is.
func TestDWARFForms(t *testing.T) {
	for form, value := range map[string]string{
		"\x01": uint64s(1), "\x03": "\x02\x00xx", "\x04": "\x02\x00\x00\x00xx", "\x05": "xx", "\x06": "xxxx",
		"\x07": "xxxxxxxx",
		"\x08": "text\x00", "\x09": "\x02xx", "\x0a": "\x02xx", "\x0b": "x", "\x0c": "x", "\x0d": "\x80\x7f",
		"\x0e": "xxxx",
		"\x0f": "\x80\x01", "\x10": "xxxx", "\x11": "x", "\x12": "xx", "\x13": "xxxx", "\x14": "xxxxxxxx",
		"\x15": "\x80\x01",
		"\x16": "\x16\x16\x0b\x01", "\x17": "xxxx", "\x18": "\x01x", "\x19": "", "\x1a": "\x80\x01", "\x1b": "\x80\x01",
		"\x1c": "xxxx", "\x1d": "xxxx", "\x1e": "xxxxxxxxxxxxxxxx", "\x1f": "xxxx", "\x20": "xxxxxxxx",
		"\x21\x80\x7f": "",
		"\x22":         "\x01", "\x23": "\x01", "\x24": "xxxxxxxx", "\x25": "x", "\x26": "xx", "\x27": "xxx",
		"\x28": "xxxx",
		"\x29": "x", "\x2a": "xx", "\x2b": "xxx", "\x2c": "xxxx", "\xa0\x3e": "xxxx", "\xa1\x3e": "xxxx",
	} {
		tables := "\x01\x11\x00\x7f" + form + "\x00\x00" + dwarfTables[5:]
		d, _ := dwarfOf(map[string]string{
			".debug_info": dwarfUnitOf(0, "\x01"+value+dwarfFirst), ".debug_abbrev": tables,
		})
		names, err := readDWARF(d)
		assert.Check(t, err == nil && names[0x1000] == "first", "%x: %q, %v", form, names, err)
	}
}

func compressedDWARF(kind uint32, size uint64, contents string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = io.WriteString(w, contents)
	_ = w.Close()
	head := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(kind)), size)
	return string(head) + uint64s(1) + b.String()
}

// Whatever DWARF says, what is read and kept of it is bounded, and a limit that is reached is said;
// what was found before is kept.
func TestHostileDWARF(t *testing.T) {
	first := dwarfUnitOf(0, "\x01"+dwarfFirst)
	with := func(info string) map[string]string {
		return map[string]string{".debug_info": first + info, ".debug_abbrev": dwarfTables}
	}
	tables := func(tables, entries string) map[string]string {
		return map[string]string{
			".debug_info":   first + dwarfUnitOf(uint32(len(dwarfTables)), entries),
			".debug_abbrev": dwarfTables + tables,
		}
	}
	const zlibKind, zstdKind = uint32(elf.COMPRESS_ZLIB), uint32(elf.COMPRESS_ZSTD)
	compressed := func(b string) map[string]string {
		return map[string]string{".debug_info": first, ".debug_abbrev compressed": b}
	}
	atEnd := uint64(math.MaxUint64 - 8)
	for _, test := range []struct {
		what     string
		sections map[string]string
		want     error
		found    bool // of the first function
	}{
		{"none of it", with(""), nil, true},
		{"a cycle of origins", with(dwarfUnitOf(0, "\x03\x0b"+uint64s(0x2000)+"\x20")), nil, true},
		{"a cycle of two", with(dwarfUnitOf(0, "\x03\x16"+uint64s(0x2000)+"\x20\x05\x0b")), nil, true},
		{"an origin before units", with(dwarfUnitOf(0, "\x03\x00"+uint64s(0x2000)+"\x20")), errMalformed, true},
		{"an origin in no unit", with(dwarfUnitOf(0, "\x04\xff\xff\xff\xff"+uint64s(0x2000, 0x2001))), errMalformed,
			true},
		{"code at 0", with(dwarfUnitOf(0, "\x02x\x00"+uint64s(0)+"\x20")), nil, true},
		{"code that wraps", with(dwarfUnitOf(0, "\x02x\x00"+uint64s(atEnd)+"\x20")), nil, true},
		{"code that ends before", with(dwarfUnitOf(0, "\x04\x00\x00\x00\x00"+uint64s(0x2000, 0x1fff))), nil, true},
		{"a unit behind the end", with("\xff\xff\xff\x7f\x04\x00"), errMalformed, true},
		{"a unit that wraps", with("\xff\xff\xff\xff" + uint64s(math.MaxUint64) + "\x04\x00"), errMalformed, true},
		{"a unit of nothing", with("\x00\x00\x00\x00"), errMalformed, true},
		{"a unit that ends in its header", with("\x02\x00\x00\x00\x04\x00" + dwarfTables), errMalformed, true},
		{"an unknown version", with("\x07\x00\x00\x00\x06\x00\x00\x00\x00\x00\x08"), errMalformed, true},
		{"addresses of 4 bytes", with("\x07\x00\x00\x00\x04\x00\x00\x00\x00\x00\x04"), errMalformed, true},
		{"an entry over its unit", with(dwarfUnitOf(0, "\x02x\x00") + first), errMalformed, true},
		{"an unknown abbreviation", with(dwarfUnitOf(0, "\x06")), errMalformed, true},
		{"no table", with(dwarfUnitOf(1<<20, "\x01")), errMalformed, true},
		{"an endless number", with(dwarfUnitOf(0, strings.Repeat("\x80", 100)+"\x01")), errMalformed, true},
		{"an endless table", tables("\x01\x2e\x00\x03", "\x01"), errMalformed, true},
		{"a block that wraps", tables("\x01\x11\x00\x03\x09\x00\x00\x00", "\x01"+strings.Repeat("\xff", 9)+"\x01"),
			errMalformed, true},
		{"a text without an end", tables("\x01\x11\x00\x03\x08\x00\x00\x00", "\x01text"), errMalformed, true},
		{"an unknown form", tables("\x01\x11\x00\x03\x7f\x00\x00\x00", "\x01"), errMalformed, true},
		{"an unknown long form", tables("\x01\x11\x00\x03\x81\x80\x04\x00\x00\x00", "\x01"), errMalformed, true},
		{"a constant of nothing", tables("\x01\x11\x00\x03\x16\x00\x00\x00", "\x01\x21"), errMalformed, true},
		{"abbreviations that bomb", tables(strings.Repeat("\x01\x11\x00\x00\x00", maxAbbreviations)+"\x00", "\x01"),
			ErrLimit,
			true},
		{"attributes that bomb", tables("\x01\x11\x00"+strings.Repeat("\x03\x19", maxAbbreviations)+"\x00\x00\x00",
			"\x01"),
			ErrLimit, true},
		{"units that bomb", with(strings.Repeat(dwarfUnitOf(0, ""), maxDWARFUnits)), ErrLimit, true},
		{"compressed", compressed(compressedDWARF(zlibKind, uint64(len(dwarfTables)), dwarfTables)), nil, true},
		{"less than it says", compressed(compressedDWARF(zlibKind, maxInflated, dwarfTables)), errMalformed, false},
		{"more than it says", compressed(compressedDWARF(zlibKind, 5, strings.Repeat(dwarfTables, 99))), errMalformed,
			false},
		{"more than is allowed", compressed(compressedDWARF(zlibKind, maxInflated+1, "")), ErrLimit, false},
		{"otherwise compressed", compressed(compressedDWARF(zstdKind, 1, "")), ErrLimit, false},
		{"hardly compressed", compressed("\x01"), errTruncated, false},
		{"badly compressed", compressed(uint64s(uint64(zlibKind), 8, 1, 0)), errMalformed, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			d, m := dwarfOf(test.sections)
			names, err := readDWARF(d)
			assert.Check(t, errors.Is(err, test.want) && (err == nil || IsContentError(err)), "%v, not %v", err,
				test.want)
			assert.Check(t, (names[0x1000] == "first") == test.found && len(names[0x2000]) == 0, "%q", names)
			size := int(m.r.(*bytes.Reader).Size())
			assert.Check(t, m.bytes <= 2*size+20*pageBytes && d.abbreviations <= maxAbbreviations,
				"read %d of %d, kept %d",
				m.bytes, size, d.abbreviations)
			used := maxDWARFSteps - d.steps
			assert.Check(t, used <= uint64(size) && int(maxDWARFBytes-d.bytes) <= m.bytes+maxInflated, "%d steps", used)
		})
	}
}

// What few bytes make much work of ends when the steps, or the bytes, are spent: entries of no size
// but in abbreviations, one origin of all, and tables that are read in turns. What is kept of
// tables stays bounded.
func TestDWARFWork(t *testing.T) {
	const units = 64
	bomb := "\x01\x2e\x00" + strings.Repeat("\x03\x19", maxAbbreviations/2) + "\x00\x00\x00"
	d, _ := dwarfOf(map[string]string{
		".debug_info": dwarfUnitOf(0, strings.Repeat("\x01", 1<<12)), ".debug_abbrev": bomb,
	})
	d.reset()
	assert.Check(t, d.steps == maxDWARFSteps && d.bytes == maxDWARFBytes && d.inflated == maxInflated)
	d.steps = 10 * maxAbbreviations
	err := d.functions(nil)
	assert.Check(t, errors.Is(err, ErrLimit) && d.steps == 0, "%v, %d steps are left", err, d.steps)

	var info string
	for i := range units {
		info += dwarfUnitOf(uint32(i%3*len(bomb)), "\x01")
	}
	d, m := dwarfOf(map[string]string{".debug_info": info, ".debug_abbrev": strings.Repeat(bomb, 3)})
	most := 0
	d.reset()
	d.steps = 10 * maxAbbreviations
	err = d.functions(func(Function) error { return nil })
	for _, table := range d.tables {
		most += len(table.attributes)
	}
	assert.Check(t, errors.Is(err, ErrLimit) && most <= maxAbbreviations && len(d.units) < units, "%v, %d, %d", err,
		most,
		len(d.units))
	assert.Check(t, m.bytes < 30*maxAbbreviations, "read %d bytes", m.bytes)

	// A name that is asked for again and again.
	long := "\x02" + strings.Repeat("x", 3*pageBytes) + "\x00" + uint64s(0x1000) + "\x20"
	d, m = dwarfOf(map[string]string{
		".debug_info": dwarfUnitOf(0, "\x01"+long), ".debug_abbrev": dwarfTables,
	})
	var at uint32
	assert.NilError(t, d.Functions(func(f Function) error {
		at = f.Name
		return nil
	}))
	d.bytes, m.bytes = 10*pageBytes, 0
	asked := 0
	for err = nil; err == nil && asked < 100; asked++ {
		_, err = d.Name(at, make([]byte, testNameBytes))
	}
	assert.Check(t, errors.Is(err, ErrLimit) && m.bytes <= 10*pageBytes && asked < 10, "%v, %d, %d", err, m.bytes,
		asked)
	_, err = d.Name(at, make([]byte, testNameBytes))
	assert.Check(t, errors.Is(err, ErrLimit), "the limit is not said again: %v", err)

	d, m = dwarfOf(nil)
	d.info.size = maxDWARFBytes + 1
	err = d.Functions(nil)
	assert.Check(t, errors.Is(err, ErrLimit) && m.calls == 0, "%v", err)
}

// An error of reading is none of the contents.
func TestDWARFReadErrors(t *testing.T) {
	d, _ := dwarfOf(map[string]string{".debug_info": dwarfUnitOf(0, "\x01"), ".debug_abbrev": dwarfTables})
	errRead := errors.New("no more")
	for _, s := range []*dwarfSection{&d.abbrev, &d.info} {
		s.r = failing{ReaderAt: bytes.NewReader(nil), from: -1, err: errRead}
		err := d.Functions(nil)
		assert.Check(t, errors.Is(err, errRead) && !IsContentError(err), "%v", err)
	}
}

// Whatever the sections are, there are names within the limits, or an error about the contents.
func FuzzDWARF(f *testing.F) {
	add := func(info, abbrev, str, addr string) {
		f.Add([]byte(info), []byte(abbrev), []byte(str), []byte(addr), false)
	}
	add(dwarfUnitOf(0, "\x01"+dwarfFirst+"\x03\x0b"+uint64s(0x2000)+"\x20"), dwarfTables, "", "")
	add(dwarfUnit5("\x01\x08\x00\x00\x00\x08\x00\x00\x00\x02\x01\x01\x20\x30\x00\x00\x00\x00"),
		"\x01\x11\x01\x72\x17\x73\x17\x00\x00\x02\x2e\x00\x03\x25\x11\x1b\x12\x0f\x47\x13\x00\x00\x00", "a\x00b\x00",
		uint64s(1, 0x1000))
	add("\xff\xff\xff\xff"+uint64s(12)+"\x05\x00\x02\x08"+uint64s(0), dwarfTables, "", "")
	f.Add([]byte(compressedDWARF(1, 40, dwarfUnitOf(0, "\x01"+dwarfFirst))), []byte(dwarfTables), []byte{}, []byte{},
		true)
	f.Fuzz(func(t *testing.T, info, abbrev, str, addr []byte, compressed bool) {
		name := ".debug_info"
		if compressed {
			name += " compressed"
		}
		d, m := dwarfOf(map[string]string{
			name: string(info), ".debug_abbrev": string(abbrev), ".debug_str": string(str),
			".debug_line_str": string(str),
			".debug_addr":     string(addr), ".debug_str_offsets": string(addr),
		})
		names := make([]uint32, 0)
		err := d.Functions(func(f Function) error {
			assert.Assert(t, f.Start < f.End && f.Sized, "%+v", f)
			names = append(names, f.Name)
			return nil
		})
		assert.Assert(t, err == nil || IsContentError(err), "%v", err)
		for _, at := range names[:min(len(names), 100)] {
			name, err := d.Name(at, make([]byte, testNameBytes))
			assert.Assert(t, len(name) <= testNameBytes && !slices.Contains(name, 0), "%q", name)
			assert.Assert(t, err == nil || IsContentError(err), "%v", err)
		}
		assert.Assert(t, d.abbreviations <= maxAbbreviations && m.bytes <= maxDWARFBytes+2*len(info), "%d bytes",
			m.bytes)
	})
}
