package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

const (
	gnuFixture  = "x86_64-glibc-tlsdesc"
	sysvFixture = "x86_64-glibc-tlsdesc-sysvhash"
	modFixture  = "x86_64-glibc-dtpmod-local"

	// Where tests put contents of their own: behind everything in the fixtures.
	farAddr = 0x100000
)

// gnuHashOf has a library have a hash table of these bytes.
func gnuHashOf(table []byte) func(e *edit) {
	return func(e *edit) {
		e.load(farAddr, table)
		e.put64(e.dynamic(elf.DT_GNU_HASH)+8, farAddr)
	}
}

// Libraries with one thing changed, and the error. nil: the same result as before.
var hostile = []struct {
	name    string
	fixture string
	edit    func(e *edit)
	want    error
}{
	// PT_DYNAMIC
	{"no PT_DYNAMIC", gnuFixture, func(e *edit) { e.put32(e.program(elf.PT_DYNAMIC, 0), 0) }, ErrNoSymbols},
	{"PT_DYNAMIC in no segment", gnuFixture, func(e *edit) {
		e.put64(e.program(elf.PT_DYNAMIC, 0)+pVaddr, farAddr)
	}, errMalformed},
	{"PT_DYNAMIC where only memory is", gnuFixture, func(e *edit) {
		e.put64(e.program(elf.PT_DYNAMIC, 0)+pVaddr, 0x3020)
	}, errMalformed},
	{"PT_DYNAMIC with another offset and size", gnuFixture, func(e *edit) { // loaders use the address
		header := e.program(elf.PT_DYNAMIC, 0)
		e.put64(header+pOffset, 0)
		e.put64(header+pFilesz, 1)
	}, nil},
	{"PT_DYNAMIC runs out of its segment", gnuFixture, func(e *edit) {
		e.load(farAddr, dynamicEntries(1, 5, 1, 5))
		e.put64(e.program(elf.PT_DYNAMIC, 0)+pVaddr, farAddr)
	}, errMalformed},
	{"PT_DYNAMIC of 1023 entries and an end", gnuFixture, func(e *edit) { e.longDynamic(1023) }, nil},
	{"PT_DYNAMIC of 1024 entries and an end", gnuFixture, func(e *edit) { e.longDynamic(1024) }, ErrLimit},
	{"DT_SYMTAB missing", gnuFixture, withoutDynamic(elf.DT_SYMTAB), ErrNoSymbols},
	{"DT_STRTAB missing", gnuFixture, withoutDynamic(elf.DT_STRTAB), ErrNoSymbols},
	{"DT_GNU_HASH missing", gnuFixture, withoutDynamic(elf.DT_GNU_HASH), ErrNoSymbols},
	{"DT_SYMTAB in no segment", gnuFixture, dynamicValue(elf.DT_SYMTAB, farAddr), errMalformed},
	{"DT_STRTAB in no segment", gnuFixture, dynamicValue(elf.DT_STRTAB, farAddr), errMalformed},
	{"DT_GNU_HASH in no segment", gnuFixture, dynamicValue(elf.DT_GNU_HASH, ^uint64(0)), errMalformed},
	{"DT_JMPREL in no segment", gnuFixture, dynamicValue(elf.DT_JMPREL, farAddr), errMalformed},
	{"DT_RELA in no segment, but empty", gnuFixture, func(e *edit) {
		e.put64(e.dynamic(elf.DT_RELA)+8, farAddr)
		e.put64(e.dynamic(elf.DT_RELASZ)+8, 0)
		e.put64(e.dynamic(elf.DT_PLTRELSZ)+8, 24)
	}, errNoRelocation},
	{"DT_RELA in no segment", modFixture, dynamicValue(elf.DT_RELA, ^uint64(0)-8), errMalformed},
	{"DT_SYMENT of another size", gnuFixture, dynamicValue(elf.DT_SYMENT, 16), errMalformed},
	{"DT_RELAENT of another size", gnuFixture, dynamicValue(elf.DT_RELAENT, 0), errMalformed},
	{"DT_PLTREL without addends", gnuFixture, dynamicValue(elf.DT_PLTREL, uint64(elf.DT_REL)), errMalformed},
	{"DT_PLTRELSZ of nearly 2^64", gnuFixture, dynamicValue(elf.DT_PLTRELSZ, ^uint64(0)), errMalformed},
	{"DT_PLTRELSZ beyond its segment", gnuFixture, dynamicValue(elf.DT_PLTRELSZ, 72), errMalformed},
	{"DT_PLTRELSZ without our relocation", gnuFixture, dynamicValue(elf.DT_PLTRELSZ, 47), errNoRelocation},
	{"DT_RELASZ of nearly 2^64", modFixture, dynamicValue(elf.DT_RELASZ, ^uint64(0)), errMalformed},
	{"DT_STRSZ of nearly 2^64", gnuFixture, dynamicValue(elf.DT_STRSZ, ^uint64(0)), errMalformed},
	{"DT_STRSZ of 1", gnuFixture, dynamicValue(elf.DT_STRSZ, 1), errMalformed},

	// DT_GNU_HASH: 3 buckets from 0x278 on, of symbols 1 and 2, 3 to 7, 8; their hashes from 0x284
	// on.
	{"0 buckets", gnuFixture, hashWord(hashBuckets, 0), ErrNoSymbols},
	{"2^32-1 buckets", gnuFixture, hashWord(hashBuckets, ^uint32(0)), errMalformed},
	{"filter of 2^32-1 words", gnuFixture, hashWord(hashFilter, ^uint32(0)), errMalformed},
	{"filter that lets nothing pass", gnuFixture, func(e *edit) { e.put64(e.gnuHash()+hashContents, 0) }, nil},
	{"table begins with symbol 2", gnuFixture, hashWord(hashFirst, 2), errMalformed},
	{"table begins with symbol 2^32-1", gnuFixture, hashWord(hashFirst, ^uint32(0)), errMalformed},
	{"buckets empty", gnuFixture, func(e *edit) { clear(e.b[e.gnuHash()+24:][:12]) }, ErrNoSymbols},
	{"bucket of the storage symbol empty", gnuFixture, hashWord(28, 0), errIncomplete},
	{"bucket begins with symbol 2^32-1", gnuFixture, hashWord(28, ^uint32(0)), errMalformed},
	// Zeros, which are no hash of the name.
	{"no bucket has an end", gnuFixture, gnuHashOf(append(gnuTable(1), make([]byte, 8192)...)), ErrLimit},
	{"no bucket has an end before the segment's", gnuFixture,
		gnuHashOf(append(gnuTable(1), make([]byte, 1000)...)), errMalformed},
	{"symbol index wraps at 2^32", gnuFixture,
		gnuHashOf(append(gnuTable(^uint32(0)), make([]byte, 8192)...)), ErrLimit},
	{"symbol 2^32-1 has the right hash", gnuFixture,
		gnuHashOf(binary.LittleEndian.AppendUint32(gnuTable(^uint32(0)), gnuHash(storageName))), errMalformed},

	// DT_HASH: buckets of 5 (4, 3, 2), 7 (6) and 8 (1), as readelf -x .hash shows.
	{"DT_HASH beside DT_GNU_HASH is not used", gnuFixture, func(e *edit) {
		needed := e.dynamic(elf.DT_NEEDED)
		e.put64(needed, uint64(elf.DT_HASH))
		e.put64(needed+8, ^uint64(0))
	}, nil},
	{"DT_HASH with 0 buckets", sysvFixture, func(e *edit) { e.put32(e.section(".hash"), 0) }, ErrNoSymbols},
	{"DT_HASH with 2^32-1 buckets", sysvFixture, func(e *edit) {
		e.put32(e.section(".hash"), ^uint32(0))
	}, errMalformed},
	{"DT_HASH with no symbols", sysvFixture, func(e *edit) { e.put32(e.section(".hash")+4, 0) }, nil},
	{"DT_HASH bucket of symbol 2^32-1", sysvFixture, func(e *edit) {
		for i := range uint64(3) {
			e.put32(e.section(".hash")+8+4*i, ^uint32(0))
		}
	}, errMalformed},
	{"DT_HASH chains run in circles", sysvFixture, func(e *edit) {
		e.put32(e.symbol(storageName)+stName, 0)
		e.put32(e.symbol(tlsName)+stName, 0)
		for i := uint64(1); i < 9; i++ { // every symbol is the next one of itself
			e.put32(e.section(".hash")+8+4*(3+i), uint32(i))
		}
	}, ErrLimit},

	// Symbols
	{"storage symbol undefined", gnuFixture, func(e *edit) {
		e.put16(e.symbol(storageName)+stShndx, 0)
	}, errIncomplete},
	{"TLS symbol undefined", sysvFixture, func(e *edit) { e.put16(e.symbol(tlsName)+stShndx, 0) }, errIncomplete},
	{"both symbols undefined", gnuFixture, func(e *edit) {
		e.put16(e.symbol(storageName)+stShndx, 0)
		e.put16(e.symbol(tlsName)+stShndx, 0)
	}, ErrNoSymbols},
	{"storage symbol local", gnuFixture, func(e *edit) {
		e.b[e.symbol(storageName)+stInfo] = elf.ST_INFO(elf.STB_LOCAL, elf.STT_OBJECT)
	}, errIncomplete},
	{"both symbols weak", gnuFixture, func(e *edit) {
		e.b[e.symbol(storageName)+stInfo] = elf.ST_INFO(elf.STB_WEAK, elf.STT_OBJECT)
		e.b[e.symbol(tlsName)+stInfo] = elf.ST_INFO(elf.STB_WEAK, elf.STT_TLS)
	}, nil},
	{"storage symbol a function", gnuFixture, func(e *edit) {
		e.b[e.symbol(storageName)+stInfo] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
	}, errSymbol},
	{"storage symbol thread-local", gnuFixture, func(e *edit) {
		e.b[e.symbol(storageName)+stInfo] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_TLS)
	}, errSymbol},
	{"TLS symbol not thread-local", gnuFixture, func(e *edit) {
		e.b[e.symbol(tlsName)+stInfo] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT)
	}, errSymbol},
	{"storage symbol of 0 bytes", gnuFixture, symbolField(storageName, stSize, 0), errSymbol},
	{"TLS symbol of 37 bytes", gnuFixture, symbolField(tlsName, stSize, 37), errSymbol},
	{"storage symbol absolute", gnuFixture, func(e *edit) {
		e.put16(e.symbol(storageName)+stShndx, uint16(elf.SHN_ABS))
	}, errSymbol},
	{"storage in no segment", gnuFixture, symbolField(storageName, stValue, farAddr), errMalformed},
	{"storage half in a segment", gnuFixture, symbolField(storageName, stValue, 0x3021), errMalformed},
	{"storage around 2^64", gnuFixture, symbolField(storageName, stValue, ^uint64(0)-3), errMalformed},
	{"TLS symbol behind its block", gnuFixture, symbolField(tlsName, stValue, 0x19), errMalformed},
	{"TLS symbol around 2^64", gnuFixture, symbolField(tlsName, stValue, ^uint64(0)-3), errMalformed},
	{"no PT_TLS", gnuFixture, func(e *edit) { e.put32(e.program(elf.PT_TLS, 0), 0) }, errMalformed},
	{"name behind the string table", gnuFixture, nameAtOff(storageName, 259), errMalformed},
	{"name far behind the string table", sysvFixture, nameAtOff(tlsName, ^uint32(0)), errMalformed},
	{"name at the end of the string table", gnuFixture, nameAtOff(storageName, 258), errIncomplete},
	{"string table ends with the name", gnuFixture, func(e *edit) { e.cutStrings(0) }, nil},
	{"string table ends within the name", gnuFixture, func(e *edit) { e.cutStrings(1) }, errIncomplete},
	{"name continues", gnuFixture, func(e *edit) { // ..._v1 becomes ..._v1x
		name := e.section(".dynstr") + uint64(e.get32(e.symbol(storageName)+stName))
		e.b[name+uint64(len(storageName))] = 'x'
	}, errIncomplete},
	{"name of the next version", gnuFixture, func(e *edit) {
		name := e.section(".dynstr") + uint64(e.get32(e.symbol(tlsName)+stName))
		e.b[name+uint64(len(tlsName))-1] = '2'
	}, errIncomplete},

	// Relocations: .rela.plt has one of another variable first, then ours.
	{"relocation of another symbol", gnuFixture, relocation32(rInfo+4, 2), errNoRelocation},
	{"relocation of another type", gnuFixture, relocation32(rInfo, 18), errNoRelocation},
	{"TLSDESC of another machine", gnuFixture, relocation32(rInfo, 1031), errNoRelocation},
	{"relocation of a part of the variable", gnuFixture, relocation64(rAddend, 4), errNoRelocation},
	{"bound locally", gnuFixture, func(e *edit) {
		e.put32(e.ourTLSDESC()+rInfo+4, 0)
		e.put64(e.ourTLSDESC()+rAddend, 0x18)
	}, nil},
	{"bound locally to another variable", gnuFixture, func(e *edit) {
		e.put32(e.ourTLSDESC()+rInfo+4, 0)
		e.put64(e.ourTLSDESC()+rAddend, 0x10)
	}, errNoRelocation},
	{"relocation of memory in no segment", gnuFixture, relocation64(rOffset, farAddr), errMalformed},
	{"relocation of memory half in a segment", gnuFixture, relocation64(rOffset, 0x3019), errMalformed},
	{"relocation of memory around 2^64", gnuFixture, relocation64(rOffset, ^uint64(0)-7), errMalformed},
	{"stored offset of another variable", modFixture, sectionWord(".got", 0x20, 0x10), errNoRelocation},
	{"stored offset not in the file", modFixture, sectionWord(".rela.dyn", rOffset, 0x3000), errMalformed},
	{"pair of words around 2^64", modFixture, sectionWord(".rela.dyn", rOffset, ^uint64(0)-3), errMalformed},
}

// Edits of one field.

func hashWord(off uint64, value uint32) func(*edit) {
	return func(e *edit) { e.put32(e.gnuHash()+off, value) }
}

func sectionWord(name string, off, value uint64) func(*edit) {
	return func(e *edit) { e.put64(e.section(name)+off, value) }
}

func nameAtOff(symbol string, off uint32) func(*edit) {
	return func(e *edit) { e.put32(e.symbol(symbol)+stName, off) }
}

func symbolField(name string, field, value uint64) func(*edit) {
	return func(e *edit) { e.put64(e.symbol(name)+field, value) }
}

func relocation32(field uint64, value uint32) func(*edit) {
	return func(e *edit) { e.put32(e.ourTLSDESC()+field, value) }
}

func relocation64(field, value uint64) func(*edit) {
	return func(e *edit) { e.put64(e.ourTLSDESC()+field, value) }
}

func dynamicValue(tag elf.DynTag, value uint64) func(*edit) {
	return func(e *edit) { e.put64(e.dynamic(tag)+8, value) }
}

// withoutDynamic turns an entry into one that nobody knows.
func withoutDynamic(tag elf.DynTag) func(*edit) {
	return func(e *edit) { e.put64(e.dynamic(tag), 0x6fff0001) }
}

// dynamicEntries is PT_DYNAMIC: tag, value, tag, value...
func dynamicEntries(words ...uint64) []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// gnuTable is DT_GNU_HASH with one bucket that begins with a symbol, up to the hashes.
func gnuTable(symbol uint32) []byte {
	var b []byte
	for _, w := range []uint32{1, symbol, 1, 6, 0, 0, symbol} {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// longDynamic puts entries before those that the library has, count in all.
func (e *edit) longDynamic(count int) {
	e.t.Helper()
	s := e.f.Section(".dynamic")
	own := e.b[s.Offset:][:s.Size]
	for len(own) > dynamicBytes && bytes.Equal(own[len(own)-dynamicBytes:], make([]byte, dynamicBytes)) {
		own = own[:len(own)-dynamicBytes]
	}
	filler := bytes.Repeat(dynamicEntries(uint64(elf.DT_NEEDED), 1), count-len(own)/dynamicBytes)
	e.load(farAddr, slices.Concat(filler, own, make([]byte, dynamicBytes)))
	e.put64(e.program(elf.PT_DYNAMIC, 0)+pVaddr, farAddr)
}

// cutStrings has the string table end less bytes before the end of the later one of the two names.
func (e *edit) cutStrings(less uint64) {
	var size uint64
	for _, name := range []string{storageName, tlsName} {
		size = max(size, uint64(e.get32(e.symbol(name)+stName))+uint64(len(name))+1)
	}
	e.put64(e.dynamic(elf.DT_STRSZ)+8, size-less)
}

func (e *edit) gnuHash() uint64 { return e.section(".gnu.hash") }

// ourTLSDESC returns where the relocation of the variable is: the second one.
func (e *edit) ourTLSDESC() uint64 { return e.section(".rela.plt") + relaBytes }

func TestHostileLibraries(t *testing.T) {
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			e := newEdit(t, tt.fixture)
			before, err := parseLibrary(e.b)
			assert.NilError(t, err)
			tt.edit(e)
			got, err := parseLibrary(e.b)
			assert.Assert(t, errors.Is(err, tt.want) && (got == nil) == (err != nil),
				"%+v, %v, want %v", got, err, tt.want)
			if err == nil {
				compareVariables(t, got, before)
			}
		})
	}
}

// Where segments overlap, the loader maps the later one over the earlier one.
func TestOverlappingSegments(t *testing.T) {
	e := newEdit(t, gnuFixture)
	moved := bytes.Clone(e.b[:0x4d0])
	binary.LittleEndian.PutUint64(moved[e.symbol(storageName)+stValue:], 0x3010)
	e.load(0, moved)
	lib, err := parseLibrary(e.b)
	assert.NilError(t, err)
	assert.Check(t, lib.StorageAddr == 0x3010, "storage %#x", lib.StorageAddr)
}

// Of a library with relocations of both dialects, TLSDESC is used.
func TestBothDialects(t *testing.T) {
	e := newEdit(t, "x86_64-glibc-tlsdesc")
	// The library's .rela.dyn has one relocation, of the storage symbol.
	e.put64(e.section(".rela.dyn")+rInfo, uint64(e.symbolIndex(tlsName))<<32|uint64(elf.R_X86_64_DTPMOD64))
	lib, err := parseLibrary(e.b)
	assert.NilError(t, err)
	want := TLSRelocation{Kind: TLSDESC, Addr: 0x3010}
	assert.Check(t, lib.Relocation == want, "%+v, want %+v", lib.Relocation, want)
	// It is also preferred when it is found after the other one.
	plt := e.dynamic(elf.DT_JMPREL) + 8
	dyn := e.dynamic(elf.DT_RELA) + 8
	pltSize, dynSize := e.dynamic(elf.DT_PLTRELSZ)+8, e.dynamic(elf.DT_RELASZ)+8
	for _, pair := range [][2]uint64{{plt, dyn}, {pltSize, dynSize}} {
		a, b := e.get64(pair[0]), e.get64(pair[1])
		e.put64(pair[0], b)
		e.put64(pair[1], a)
	}
	lib, err = parseLibrary(e.b)
	assert.NilError(t, err)
	want = TLSRelocation{Kind: TLSDESC, Addr: 0x3010}
	assert.Check(t, lib.Relocation == want, "exchanged: %+v, want %+v", lib.Relocation, want)
}

// loadZeros has 2^60 bytes of zeros loaded at 2^60 (see sparse).
func (e *edit) loadZeros() {
	e.t.Helper()
	e.load(1<<60, nil)
	header := e.program(elf.PT_GNU_STACK, 0)
	e.put64(header+pOffset, 1<<60)
	e.put64(header+pFilesz, 1<<60)
	e.put64(header+pMemsz, 1<<60)
}

// manyRelocations makes the zeros the relocations.
func (e *edit) manyRelocations() {
	e.put64(e.dynamic(elf.DT_JMPREL)+8, 1<<60)
	e.put64(e.dynamic(elf.DT_PLTRELSZ)+8, 1<<60)
}

// Files that claim to be enormous, and satisfy every read, cost a bounded number of bounded reads.
func TestEnormousFilesAreReadInPart(t *testing.T) { testEnormousFiles(t, unmeasured) }

// unmeasured is measured of soak_test.go for ordinary tests: other tests and the runtime allocate beside.
func unmeasured(_ *testing.T, _ uint64, parse func()) { parse() }

func testEnormousFiles(t *testing.T, measured func(t *testing.T, most uint64, parse func())) {
	const size = 1 << 62
	enormous := func(edit func(e *edit)) []byte {
		e := newEdit(t, gnuFixture)
		e.loadZeros()
		edit(e)
		return e.b
	}
	for _, tt := range []struct {
		name string
		edit func(e *edit)
		want error
	}{
		{"2^60 bytes of relocations", (*edit).manyRelocations, ErrLimit},
		{"2^32 buckets and filter words", func(e *edit) {
			table := e.gnuHash()
			e.put64(e.dynamic(elf.DT_GNU_HASH)+8, 1<<60-0x1000)
			e.put64(e.program(elf.PT_GNU_STACK, 0)+pVaddr, 1<<60-0x1000)
			e.put64(e.program(elf.PT_GNU_STACK, 0)+pOffset, table)
			e.put32(table+hashBuckets, ^uint32(0))
			e.put32(table+hashFilter, ^uint32(0))
		}, ErrNoSymbols},
		{"2^60 bytes of names", func(e *edit) {
			e.put64(e.dynamic(elf.DT_STRTAB)+8, 1<<60)
			e.put64(e.dynamic(elf.DT_STRSZ)+8, 1<<60)
		}, ErrNoSymbols},
		{"notes of 2^60 bytes", func(e *edit) {
			e.put64(e.program(elf.PT_NOTE, 0)+pOffset, 1<<60)
			e.put64(e.program(elf.PT_NOTE, 0)+pFilesz, 1<<60)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &meter{r: sparse(enormous(tt.edit))}
			var err error
			measured(t, maxParseAlloc, func() { _, err = ParseLibrary(m, size) })
			assert.Check(t, errors.Is(err, tt.want), "%v, want %v", err, tt.want)
			checkReads(t, m)
		})
	}
}

// maxParseAlloc is above what any file can make a parse allocate: the cached pages, a piece to
// hash, and segments in a slice that has grown by doubling.
const maxParseAlloc = (cachedPages+1)*pageBytes + 2*maxSegments*40 + 8192

func TestRelocationKindString(t *testing.T) {
	got := fmt.Sprint(TLSDESC, DTPMOD64, TPOFF64, LocalExec, RelocationKind(9))
	assert.Check(t, got == "TLSDESC DTPMOD64 TPOFF64 local-exec unknown", got)
}
