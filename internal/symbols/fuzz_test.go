package symbols

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"correlator/elfsym"
)

func checkNames(t *testing.T, q *Query) {
	for _, name := range q.names {
		if len(name) > maxNameBytes || bytes.IndexByte([]byte(name), 0) >= 0 {
			t.Fatalf("name of %d bytes: %.40q", len(name), name)
		}
	}
}

func someAddresses() *Query {
	return NewQuery([]uint64{0, 1, 0x1000, 0x1008, 0x401000, 0x7f0000001000, 1 << 63, ^uint64(0)})
}

func FuzzReadELF(f *testing.F) {
	libraries, err := filepath.Glob("../../testdata/lib/prebuilt/*.so")
	if err != nil || len(libraries) == 0 {
		f.Fatalf("no libraries: %v", err)
	}
	for _, path := range libraries {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	symbols := section{kind: elf.SHT_SYMTAB, off: entriesOff, size: 3 * symbolBytes, link: 2, entryBytes: symbolBytes}
	f.Add(image(symbols, section{kind: elf.SHT_STRTAB, off: entriesOff + 3*symbolBytes, size: 16}, entry(1, function, 3, 0x1000, 16),
		entry(1, function, 3, 0x1000, 0), entry(3, byte(elf.STB_GLOBAL)<<4, 3, 0x401000, 0), []byte("\x00name\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ReadELF(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if e != nil || !elfsym.IsContentError(err) {
				t.Fatalf("%+v, %v", e, err)
			}
			return
		}
		q := someAddresses()
		for _, table := range []*Table{e.Static, e.Dynamic} {
			if err := table.Name(q); err != nil && !elfsym.IsContentError(err) {
				t.Fatal(err)
			}
		}
		checkNames(t, q)
	})
}

func FuzzReadPerfMap(f *testing.F) {
	f.Add([]byte("1000 20 Demo.run()\n1000 20 void Demo$Worker.burn()\n0x401000 0x10 x\n"))
	f.Add([]byte("1000 ffffffffffffffff wraps\n1000 0 empty\n 1000 1 x\n1000 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := someAddresses()
		if err := q.ReadPerfMap(bytes.NewReader(b), int64(len(b))); err != nil {
			t.Fatal(err)
		}
		checkNames(t, q)
	})
}

func FuzzReadKallsyms(f *testing.F) {
	f.Add([]byte(kallsymsText))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := someAddresses()
		if err := q.ReadKallsyms(bytes.NewReader(b)); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			t.Fatal(err)
		}
		checkNames(t, q)
	})
}
