package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func newThreadContextEdit(t testing.TB, name string) *edit {
	t.Helper()
	b := testenv.ReadFile(t, filepath.Join(otelPrebuilt, name))
	f, err := elf.NewFile(bytes.NewReader(bytes.Clone(b)))
	assert.NilError(t, err)
	return &edit{t: t, b: b, f: f}
}

// staticSymbol returns where the variable is in .symtab.
func (e *edit) staticSymbol() uint64 {
	e.t.Helper()
	symbols, err := e.f.Symbols()
	assert.NilError(e.t, err)
	for i, s := range symbols {
		if s.Name == threadContextName {
			return e.section(".symtab") + symbolBytes*uint64(i+1)
		}
	}
	e.t.Fatal("no symbol")
	return 0
}

// sectionHeader returns where the header of a section is.
func (e *edit) sectionHeader(name string) uint64 {
	e.t.Helper()
	const eShoff = 40
	for i, s := range e.f.Sections {
		if s.Name == name {
			return e.get64(eShoff) + sectionHeaderBytes*uint64(i)
		}
	}
	e.t.Fatalf("no section %s", name)
	return 0
}

const (
	shOffset, shSize, shLink, shEntsize = 24, 32, 40, 56 // Elf64_Shdr

	relaPLT, relaDyn = ".rela.plt", ".rela.dyn"
)

// appendRelocations puts relocations behind those of a section, in a copy of it.
func (e *edit) appendRelocations(section string, relocations ...uint64) {
	e.t.Helper()
	tag, size := elf.DT_RELA, elf.DT_RELASZ
	if section == relaPLT {
		tag, size = elf.DT_JMPREL, elf.DT_PLTRELSZ
	}
	s := e.f.Section(section)
	all := slices.Concat(e.b[s.Offset:][:s.Size], dynamicEntries(relocations...))
	e.load(farAddr, all)
	e.put64(e.dynamic(tag)+8, farAddr)
	e.put64(e.dynamic(size)+8, uint64(len(all)))
}

// Files with one thing changed, and what comes of it.
func TestHostileThreadContexts(t *testing.T) {
	const tlsdesc, hidden, ld, static = "x86_64-tlsdesc.so", "x86_64-tlsdesc-hidden.so", "x86_64-ld.so", "x86_64-static"
	const typeTLSDESC, typeDTPMOD64, typeTPOFF64 = 36, 16, 18
	none := TLSRelocation{}
	named := func(e *edit, kind uint64) uint64 { return uint64(e.symbolIndex(threadContextName))<<32 | kind }
	ofSymbol := func(field, value uint64) func(*edit) {
		return func(e *edit) { e.put64(e.symbol(threadContextName)+field, value) }
	}
	ofStaticSymbol := func(field, value uint64) func(*edit) {
		return func(e *edit) { e.put64(e.staticSymbol()+field, value) }
	}
	ofTLS := func(field, value uint64) func(*edit) {
		return func(e *edit) { e.put64(e.program(elf.PT_TLS, 0)+field, value) }
	}
	for _, test := range []struct {
		name, fixture string
		edit          func(*edit)
		want          TLSRelocation
		err           error
	}{
		{"no PT_TLS", tlsdesc, func(e *edit) { e.put32(e.program(elf.PT_TLS, 0), 0) }, none, ErrNoSymbols},
		{"another machine", tlsdesc, func(e *edit) { e.put16(18, uint16(elf.EM_RISCV)) }, none, ErrNoSymbols},
		{"32 bits", tlsdesc, func(e *edit) { e.b[elf.EI_CLASS] = 1 }, none, ErrNoSymbols},
		{"no ELF file", tlsdesc, func(e *edit) { e.b[1] = 'X' }, none, ErrNoSymbols},
		{"too many program headers", tlsdesc, func(e *edit) { e.put16(56, maxProgramHeaders+1) }, none, ErrLimit},
		{"block larger than any", tlsdesc, ofTLS(pMemsz, maxTLSBlock+1), none, errMalformed},
		{"PT_DYNAMIC in no segment", tlsdesc, func(e *edit) {
			e.put64(e.program(elf.PT_DYNAMIC, 0)+pVaddr, farAddr)
		}, none, errMalformed},

		{"symbol undefined", tlsdesc, func(e *edit) {
			e.put16(e.symbol(threadContextName)+stShndx, 0)
		}, none, ErrNoSymbols},
		{"symbol of 4 bytes", tlsdesc, ofSymbol(stSize, 4), none, errSymbol},
		{"symbol not thread-local", tlsdesc, func(e *edit) {
			e.b[e.symbol(threadContextName)+stInfo] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT)
		}, none, errSymbol},
		{"symbol behind its block", tlsdesc, ofSymbol(stValue, 0x19), none, errMalformed},
		{"symbol around 2^64", tlsdesc, ofSymbol(stValue, ^uint64(0)-3), none, errMalformed},
		{"block of 2^64-1 bytes", tlsdesc, ofTLS(pMemsz, ^uint64(0)), none, errMalformed},

		{"relocation names another symbol", tlsdesc, func(e *edit) {
			e.put32(e.section(relaPLT)+relaBytes+rInfo+4, 7)
		}, TLSRelocation{TLSDESC, 0x3000, 0x18}, nil},
		{"relocations are of another machine", tlsdesc, func(e *edit) {
			e.put32(e.section(relaPLT)+rInfo, 1031)
			e.put32(e.section(relaPLT)+relaBytes+rInfo, 1031)
		}, none, errNoRelocation},
		{"relocation of a part of the variable", tlsdesc, func(e *edit) {
			e.put64(e.section(relaPLT)+relaBytes+rAddend, 4)
		}, TLSRelocation{TLSDESC, 0x3000, 0x18}, nil},
		{"relocation of memory in no segment", tlsdesc, func(e *edit) {
			e.put64(e.section(relaPLT)+relaBytes+rOffset, farAddr)
		}, none, errMalformed},
		{"relocations in no segment", tlsdesc, dynamicValue(elf.DT_JMPREL, farAddr), none, errMalformed},
		{"relocations beyond their segment", tlsdesc, dynamicValue(elf.DT_PLTRELSZ, 1<<40), none, errMalformed},

		// Rank: by name before without, TPOFF64 before TLSDESC before DTPMOD64.
		{"TPOFF64 beside TLSDESC", tlsdesc, func(e *edit) {
			e.appendRelocations(relaPLT, 0x3018, named(e, typeTPOFF64), 0)
		}, TLSRelocation{TPOFF64, 0x3018, 0}, nil},
		{"DTPMOD64 beside TLSDESC", tlsdesc, func(e *edit) {
			e.appendRelocations(relaPLT, 0x3000, named(e, typeDTPMOD64), 0)
		}, TLSRelocation{TLSDESC, 0x3010, 0}, nil},
		{"TPOFF64 without the symbol beside TLSDESC with it", tlsdesc, func(e *edit) {
			e.appendRelocations(relaPLT, 0x3018, typeTPOFF64, 0x18)
		}, TLSRelocation{TLSDESC, 0x3010, 0}, nil},
		{"TPOFF64 beside TLSDESC, both without the symbol", hidden, func(e *edit) {
			e.appendRelocations(relaPLT, 0x3018, typeTPOFF64, 0x18)
		}, TLSRelocation{TPOFF64, 0x3018, 0}, nil},
		{"TPOFF64 of another variable", hidden, func(e *edit) {
			e.appendRelocations(relaPLT, 0x3018, typeTPOFF64, 0x10)
		}, TLSRelocation{TLSDESC, 0x3010, 0}, nil},
		{"TLSDESC nearer", "x86_64-tlsdesc-ld.so", func(e *edit) {
			e.appendRelocations(relaPLT, 0x2ff0, typeTLSDESC, 0x10, 0x3000, typeTLSDESC, 0x8)
		}, TLSRelocation{TLSDESC, 0x2ff0, 8}, nil},
		{"TLSDESC of what comes behind", "x86_64-tlsdesc-ld.so", func(e *edit) {
			e.put64(e.section(relaPLT)+rAddend, 0x19)
		}, none, errNoRelocation},
		{"TLSDESC with a negative addend", "x86_64-tlsdesc-ld.so", func(e *edit) {
			e.put64(e.section(relaPLT)+rAddend, ^uint64(0))
		}, none, errNoRelocation},
		{"DTPMOD64 of what comes behind", ld, sectionWord(".got", 8, 0x20), none, errNoRelocation},
		{"DTPMOD64 of another variable", ld, sectionWord(".got", 8, 0x10), TLSRelocation{DTPMOD64, 0x2fd8, 8}, nil},

		// .symtab
		{"no section headers", hidden, func(e *edit) { e.put64(40, 0) }, none, ErrNoSymbols},
		{"section headers behind the file", hidden, func(e *edit) { e.put64(40, 1<<40) }, none, ErrNoSymbols},
		{"section headers of another size", hidden, func(e *edit) { e.put16(58, 63) }, none, ErrNoSymbols},
		{"static symbol of 16 bytes", hidden, ofStaticSymbol(stSize, 16), none, ErrNoSymbols},
		{"static symbol undefined", hidden, func(e *edit) { e.put16(e.staticSymbol()+stShndx, 0) }, none, ErrNoSymbols},
		{"static symbol absolute", hidden, func(e *edit) {
			e.put16(e.staticSymbol()+stShndx, uint16(elf.SHN_ABS))
		}, none, errSymbol},
		{"static symbol behind its block", hidden, ofStaticSymbol(stValue, 0x20), none, errMalformed},
		{"static symbols behind the file", hidden, func(e *edit) {
			e.put64(e.sectionHeader(".symtab")+shOffset, 1<<40)
		}, none, errTruncated},
		{"too many static symbols", hidden, func(e *edit) {
			e.put64(e.sectionHeader(".symtab")+shSize, (maxStaticSymbols+1)*symbolBytes)
		}, none, ErrLimit},
		{"two of the name", hidden, func(e *edit) {
			other := e.staticSymbol() - symbolBytes
			copy(e.b[other:][:symbolBytes], e.b[other+symbolBytes:][:symbolBytes])
			e.put64(other+stValue, 8)
		}, none, errSymbol},
		{"the same twice", hidden, func(e *edit) {
			other := e.staticSymbol() - symbolBytes
			copy(e.b[other:][:symbolBytes], e.b[other+symbolBytes:][:symbolBytes])
		}, TLSRelocation{TLSDESC, 0x3010, 0}, nil},

		// Executables
		{"PIE without its flag is a library", "x86_64-pie", func(e *edit) {
			e.put64(e.dynamic(elf.DT_FLAGS_1)+8, uint64(elf.DF_1_NOW))
		}, none, errNoRelocation},
		{"static executable", static, func(*edit) {}, TLSRelocation{LocalExec, 0, -8}, nil},
		{"block of 2^32 bytes", static, ofTLS(pMemsz, 1<<32), none, errMalformed},
		{"alignment of 3", static, ofTLS(pAlign, 3), none, errMalformed},
		{"alignment of 2^32", static, ofTLS(pAlign, 1<<32), none, errMalformed},
		{"alignment of 0", static, ofTLS(pAlign, 0), TLSRelocation{LocalExec, 0, -8}, nil},
		// As elf/dl-tls.c of glibc: the block ends 0xc bytes before the thread pointer, so that it
		// begins at 4 modulo 16, as p_vaddr does.
		{"block at an odd place", static, func(e *edit) {
			ofTLS(pAlign, 16)(e)
			ofTLS(pVaddr, 0x402fe4)(e)
		}, TLSRelocation{LocalExec, 0, 0x18 - 0x2c}, nil},
		{"block at an odd place, aarch64", "aarch64-static", func(e *edit) {
			ofTLS(pAlign, 64)(e)
			ofTLS(pVaddr, 0x401fd4)(e)
		}, TLSRelocation{LocalExec, 0, 0x18 + 0x14}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newThreadContextEdit(t, test.fixture)
			test.edit(e)
			got, err := parseThreadContext(e.b)
			assert.Assert(t, errors.Is(err, test.err) && (got == nil) == (err != nil),
				"%+v, %v, want %v", got, err, test.err)
			if err == nil && got.Relocation != test.want {
				t.Errorf("%+v, want %+v", got.Relocation, test.want)
			}
			assert.Check(t, err == nil || IsContentError(err), "%v is not of the contents", err)
		})
	}
}

// Files that claim to be enormous, and satisfy every read, cost bounded reads and little memory.
func TestEnormousThreadContexts(t *testing.T) { testEnormousThreadContexts(t, unmeasured) }

func testEnormousThreadContexts(t *testing.T, measured func(t *testing.T, most uint64, parse func())) {
	const size, zeros = 1 << 62, 1 << 60
	for _, test := range []struct {
		name, fixture string
		edit          func(*edit)
		err           error
		most          int // bytes
	}{
		{"relocations", "x86_64-tlsdesc.so", func(e *edit) {
			e.loadZeros()
			e.put64(e.dynamic(elf.DT_JMPREL)+8, zeros)
			e.put64(e.dynamic(elf.DT_PLTRELSZ)+8, zeros)
		}, ErrLimit, 64 << 10},
		{"as many relocations as are read", "x86_64-tlsdesc.so", func(e *edit) {
			e.loadZeros()
			e.put64(e.dynamic(elf.DT_JMPREL)+8, zeros)
			e.put64(e.dynamic(elf.DT_PLTRELSZ)+8, maxRelocations*relaBytes)
		}, errNoRelocation, maxRelocations*relaBytes + 64<<10},
		{"a few too many, in two tables", "x86_64-ie.so", func(e *edit) {
			e.loadZeros()
			e.put64(e.dynamic(elf.DT_JMPREL)+8, zeros)
			e.put64(e.dynamic(elf.DT_PLTRELSZ)+8, maxRelocations*relaBytes)
		}, ErrLimit, maxRelocations*relaBytes + 64<<10},
		{"as many static symbols as are read", "x86_64-tlsdesc-hidden.so", func(e *edit) {
			e.put64(e.sectionHeader(".symtab")+shOffset, zeros)
			e.put64(e.sectionHeader(".symtab")+shSize, maxStaticSymbols*symbolBytes)
		}, ErrNoSymbols, maxStaticSymbols*symbolBytes + 64<<10},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newThreadContextEdit(t, test.fixture)
			test.edit(e)
			m := &meter{r: sparse(e.b)}
			var err error
			measured(t, maxParseAlloc+3*streamBytes, func() { _, err = ParseThreadContext(m, size) })
			assert.Check(t, errors.Is(err, test.err), "%v, want %v", err, test.err)
			assert.Check(t, m.bytes <= test.most && m.most <= streamBytes, "%d bytes read, %d at once", m.bytes, m.most)
		})
	}
}

// Names of thread-local pointers are read one by one, so their number is bounded.
func TestManyThreadLocalPointers(t *testing.T) {
	for _, test := range []struct {
		count int
		err   error
	}{{maxStaticNames, ErrNoSymbols}, {maxStaticNames + 1, ErrLimit}} {
		e := newThreadContextEdit(t, "x86_64-tlsdesc-hidden.so")
		at := e.staticSymbol()
		binary.LittleEndian.PutUint32(e.b[at+stName:], 1) // another name
		symbols := bytes.Repeat(e.b[at:][:symbolBytes], test.count)
		header := e.sectionHeader(".symtab")
		e.put64(header+shOffset, uint64(len(e.b)))
		e.put64(header+shSize, uint64(len(symbols)))
		e.b = append(e.b, symbols...)
		v, err := parseThreadContext(e.b)
		assert.Check(t, errors.Is(err, test.err), "%d: %+v, %v, want %v", test.count, v, err, test.err)
	}
}
