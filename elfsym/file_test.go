package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Files of the machine of every sort that a process maps, against readelf: the test binary itself
// (Go), the C library and its loader, a static PIE (ldconfig), an ordinary executable, and
// libjvm.so where there is a JDK.
func TestFilesOfThisMachine(t *testing.T) {
	readelf := testenv.NeedTool(t, "readelf")
	self, err := os.Executable()
	assert.NilError(t, err)
	paths := []string{self, testenv.NeedTool(t, "cat")}
	for _, pattern := range []string{
		"/lib/*-linux-gnu/libc.so.6", "/lib*/ld-linux-*64.so.*", "/sbin/ldconfig",
		"/usr/lib/jvm/*/lib/server/libjvm.so", "/usr/lib/jvm/*/bin/java",
	} {
		matches, err := filepath.Glob(pattern)
		assert.NilError(t, err)
		paths = append(paths, matches...)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			f, m := parsePath(t, path)
			compareWithReadelf(t, readelf, path, f)
			// Both ends, and a page with the notes where these are not in the first.
			assert.Check(t, m.calls <= 3 && m.bytes <= 3*pageBytes, "read %d bytes in %d calls", m.bytes, m.calls)
		})
	}
}

func parsePath(t *testing.T, path string) (*File, *meter) {
	t.Helper()
	file, err := os.Open(path)
	assert.NilError(t, err)
	defer file.Close()
	info, err := file.Stat()
	assert.NilError(t, err)
	m := &meter{r: file}
	f, err := ParseFile(m, info.Size())
	assert.NilError(t, err)
	return f, m
}

var (
	loadLine    = regexp.MustCompile(`(?m)^ *LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) (...) `)
	buildIDLine = regexp.MustCompile(`Build ID: ([0-9a-f]+)`)
)

func compareWithReadelf(t *testing.T, readelf, path string, f *File) {
	t.Helper()
	var want []Segment
	for _, m := range loadLine.FindAllStringSubmatch(run(t, readelf, "-l", "-W", path), -1) {
		s := Segment{
			Off: parseHex(t, m), Vaddr: parseHex(t, m[1:]), Filesz: parseHex(t, m[2:]), Memsz: parseHex(t, m[3:]),
		}
		for i, flag := range []elf.ProgFlag{elf.PF_R, elf.PF_W, elf.PF_X} {
			if m[5][i] != ' ' {
				s.Flags |= flag
			}
		}
		want = append(want, s)
	}
	assert.Check(t, len(want) != 0 && fmt.Sprint(f.Segments) == fmt.Sprint(want),
		"segments %v, want %v", f.Segments, want)
	// With section headers readelf finds notes that no program header covers, such as the GNU build
	// id of Go's own linker. The kernel finds none there either.
	var id string
	if m := buildIDLine.FindStringSubmatch(run(t, readelf, "-n", withoutSections(t, path))); m != nil {
		id = m[1]
	}
	got := hex.EncodeToString(f.BuildID)
	assert.Check(t, got == id, "build id %s, want %s", got, id)
}

// withoutSections returns a copy of a file whose header knows of no sections.
func withoutSections(t *testing.T, path string) string {
	t.Helper()
	b := testenv.ReadFile(t, path)
	const eShoff, eShnum = 40, 60 // and e_shstrndx
	clear(b[eShoff:][:8])
	clear(b[eShnum:][:4])
	stripped := filepath.Join(t.TempDir(), "stripped")
	testenv.WriteFile(t, stripped, b)
	return stripped
}

// The auxiliary vector has the addresses of the executable and of its loader. The mappings of both
// must give the same.
func TestBiasOfARunningProcess(t *testing.T) {
	cat := exec.Command(testenv.NeedTool(t, "cat"))
	stdin, stdout := testenv.Start(t, cat)

	// Start can return before the new program is in place. Once it responds, it is.
	_, err := stdin.Write([]byte{'\n'})
	assert.NilError(t, err)
	_, err = io.ReadFull(stdout, make([]byte, 1))
	assert.NilError(t, err)
	// The types are those of getauxval(3).
	const atPhdr, atBase = 3, 7
	auxv := make(map[uint64]uint64)
	raw := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/auxv", cat.Process.Pid))
	for ; len(raw) >= 16; raw = raw[16:] {
		auxv[binary.NativeEndian.Uint64(raw)] = binary.NativeEndian.Uint64(raw[8:])
	}
	program, err := elf.Open(fmt.Sprintf("/proc/%d/exe", cat.Process.Pid))
	assert.NilError(t, err)
	defer program.Close()
	want := map[string]uint64{"interpreter": auxv[atBase]}
	for _, p := range program.Progs {
		if p.Type == elf.PT_PHDR {
			want["program"] = auxv[atPhdr] - p.Vaddr
		}
	}
	assert.Assert(t, want["program"] != 0 && want["interpreter"] != 0,
		"no position-independent executable with a loader: %v", auxv)

	got := make(map[string]uint64)
	maps := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/maps", cat.Process.Pid))
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "r-xp" || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		start, _, _ := strings.Cut(fields[0], "-")
		mapStart, err1 := strconv.ParseUint(start, 16, 64)
		mapOff, err2 := strconv.ParseUint(fields[2], 16, 64)
		assert.NilError(t, errors.Join(err1, err2))
		f, _ := parsePath(t, fields[5])
		bias, ok := f.Bias(mapStart, mapOff)
		assert.Check(t, ok, "no bias for %s", line)
		switch name := filepath.Base(fields[5]); {
		case strings.HasPrefix(name, "ld"):
			got["interpreter"] = bias
		case !strings.Contains(name, ".so"):
			got["program"] = bias
		}
	}
	assert.Check(t, fmt.Sprint(got) == fmt.Sprint(want), "biases %v, want %v", got, want)
}

func TestBias(t *testing.T) {
	const r, rx, rw = elf.PF_R, elf.PF_R | elf.PF_X, elf.PF_R | elf.PF_W
	const base = 0x7f5a4c200000
	// As GNU ld lays out a library with -z separate-code, and without.
	separate := []Segment{
		{Vaddr: 0, Off: 0, Filesz: 0x578, Memsz: 0x578, Flags: r},
		{Vaddr: 0x1000, Off: 0x1000, Filesz: 0x209c, Memsz: 0x209c, Flags: rx},
		{Vaddr: 0x4e38, Off: 0x3e38, Filesz: 0x1d0, Memsz: 0x1d8, Flags: rw},
	}
	together := []Segment{
		{Vaddr: 0, Off: 0, Filesz: 0x780, Memsz: 0x780, Flags: rx},
		{Vaddr: 0x1e30, Off: 0xe30, Filesz: 0x1d8, Memsz: 0x1e0, Flags: rw},
	}
	// As lld does: code begins within a page of the file that read-only data and writable data are
	// in as well.
	lld := []Segment{
		{Vaddr: 0, Off: 0, Filesz: 0x4f0, Memsz: 0x4f0, Flags: r},
		{Vaddr: 0x14f0, Off: 0x4f0, Filesz: 0x7f, Memsz: 0x7f, Flags: rx},
		{Vaddr: 0x2570, Off: 0x570, Filesz: 0xe8, Memsz: 0xe8, Flags: rw},
		{Vaddr: 0x3658, Off: 0x658, Filesz: 0x18, Memsz: 0x20, Flags: rw},
	}
	big := []Segment{ // for pages of up to 64 KiB
		{Vaddr: 0, Off: 0, Filesz: 0x6e4, Memsz: 0x6e4, Flags: r},
		{Vaddr: 0x1fe68, Off: 0xfe68, Filesz: 0x21b8, Memsz: 0x21b8, Flags: rx},
	}
	fixed := []Segment{{Vaddr: 0x400000, Off: 0, Filesz: 0x9000, Memsz: 0x9000, Flags: rx}}
	prelinked := []Segment{{Vaddr: 0x3000000000, Off: 0, Filesz: 0x9000, Memsz: 0x9000, Flags: rx}}
	unaligned := []Segment{{Vaddr: 0x1010, Off: 0x20, Filesz: 0x9000, Memsz: 0x9000, Flags: rx}}
	zeros := []Segment{{Vaddr: 0x1000, Off: 0x1000, Filesz: 0, Memsz: 0x9000, Flags: rx}}
	twoCodes := []Segment{ // the second begins in the first one's last page
		{Vaddr: 0, Off: 0, Filesz: 0x2100, Memsz: 0x2100, Flags: rx},
		{Vaddr: 0x12100, Off: 0x2100, Filesz: 0x1000, Memsz: 0x1000, Flags: rx},
	}
	negative := func(n uint64) uint64 { return -n }

	for _, tt := range []struct {
		name             string
		segments         []Segment
		mapStart, mapOff uint64
		page             uint64
		bias             uint64
		ok               bool
	}{
		{"code with pages of its own", separate, base + 0x1000, 0x1000, 4096, base, true},
		{"second page of code alone", separate, base + 0x2000, 0x2000, 4096, base, true},
		{"last page of code, which data shares", separate, base + 0x3000, 0x3000, 4096, base, true},
		{"code at the start, data in the same page", together, base, 0, 4096, base, true},
		{"code within a page", lld, base + 0x1000, 0, 4096, base, true},
		{"pages of 64 KiB", big, base + 0x10000, 0, 65536, base, true},
		{"pages of 16 KiB, aligned for 64", big, base + 0x1c000, 0xc000, 16384, base, true},
		{"pages of 4 KiB, aligned for 64", big, base + 0x1f000, 0xf000, 4096, base, true},
		{"fixed address", fixed, 0x400000, 0, 4096, 0, true},
		{"fixed address, inner part", fixed, 0x403000, 0x3000, 4096, 0, true},
		{"loaded below its own address", prelinked, 0x2000000000, 0, 4096, negative(0x1000000000), true},
		{"begins where the second code does", twoCodes, base + 0x12000, 0x2000, 4096, base, true},
		{"two that fit alike", []Segment{fixed[0], prelinked[0]}, 0x400000, 0, 4096, 0, true},
		{"behind every segment", separate, base, 0x5000, 4096, 0, false},
		{"at the end of a segment", fixed, base, 0x9000, 4096, 0, false},
		{"before the segment", separate[1:], base, 0, 4096, 0, false},
		{"address and offset differ within the page", unaligned, base, 0, 4096, 0, false},
		{"nothing of the file", zeros, base, 0x1000, 4096, 0, false},
		{"no segments", nil, base, 0, 4096, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := File{Segments: tt.segments}
			bias, ok := f.bias(tt.mapStart, tt.mapOff, tt.page)
			assert.Check(t, bias == tt.bias && ok == tt.ok, "%#x, %v, want %#x, %v", bias, ok, tt.bias, tt.ok)
		})
	}
}

func TestHeaders(t *testing.T) {
	loads := func(e *edit, count int) { // count PT_LOAD headers at the end of the file
		e.put64(ePhoff, uint64(len(e.b)))
		e.put16(ePhnum, uint16(count))
		header := make([]byte, programHeaderBytes)
		header[pType] = byte(elf.PT_LOAD)
		e.b = append(e.b, bytes.Repeat(header, count)...)
	}
	load := func(nth int, field, value uint64) func(e *edit) { // sets a field of a PT_LOAD header
		return func(e *edit) { e.put64(e.program(elf.PT_LOAD, nth)+field, value) }
	}
	for _, tt := range []struct {
		name string
		edit func(e *edit)
		want error // nil: parsed
	}{
		{"magic number", func(e *edit) { e.b[1] = 'e' }, errNotELF},
		{"a script", func(e *edit) { e.b = []byte("#!/bin/sh\nexec true\n") }, errNotELF},
		{"empty", func(e *edit) { e.b = nil }, errNotELF},
		{"magic number alone", func(e *edit) { e.b = e.b[:4] }, errTruncated},
		{"header alone", func(e *edit) { e.put16(ePhnum, 0); e.b = e.b[:64] }, nil},
		{"header cut", func(e *edit) { e.put16(ePhnum, 0); e.b = e.b[:63] }, errTruncated},
		{"32-bit", func(e *edit) { e.b[elf.EI_CLASS] = byte(elf.ELFCLASS32) }, ErrClass},
		{"no class", func(e *edit) { e.b[elf.EI_CLASS] = 0 }, ErrClass},
		{"big-endian", func(e *edit) { e.b[elf.EI_DATA] = byte(elf.ELFDATA2MSB) }, ErrClass},
		{"RISC-V", func(e *edit) { e.put16(18, uint16(elf.EM_RISCV)) }, ErrMachine},
		{"i386", func(e *edit) { e.put16(18, uint16(elf.EM_386)) }, ErrMachine},
		{"small program headers", func(e *edit) { e.put16(ePhentsize, 32) }, errMalformed},
		{"no program headers", func(e *edit) { e.put16(ePhentsize, 0); e.put16(ePhnum, 0) }, nil},
		{"65535 program headers", func(e *edit) { e.put16(ePhnum, 0xffff) }, ErrLimit},
		{"1171 program headers", func(e *edit) { e.put16(ePhnum, 1171) }, ErrLimit},
		{"program headers behind the end", func(e *edit) { e.put64(ePhoff, uint64(len(e.b))-8) }, errTruncated},
		{"program headers far behind the end", func(e *edit) { e.put64(ePhoff, 1<<63) }, errTruncated},
		{"program headers around 2^64", func(e *edit) { e.put64(ePhoff, ^uint64(0)-100) }, errMalformed},
		{"64 segments", func(e *edit) { loads(e, 64) }, nil},
		{"65 segments", func(e *edit) { loads(e, 65) }, ErrLimit},
		{"more in the file than in memory", load(0, pMemsz, 1), errMalformed},
		{"segment around 2^64 in the file", load(1, pOffset, ^uint64(0)-8), errMalformed},
		{"segment around 2^64 in memory", load(1, pVaddr, ^uint64(0)-8), errMalformed},
		{"segment larger than all memory", load(3, pMemsz, ^uint64(0)), errMalformed},
		{"segment behind the end of the file", load(1, pOffset, 1<<40), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEdit(t, "x86_64-glibc-tlsdesc")
			tt.edit(e)
			f, err := parseFile(e.b)
			assert.Check(t, errors.Is(err, tt.want) && (f == nil) == (err != nil), "%v, %v, want %v", f, err, tt.want)
		})
	}
}

// As many program headers as the kernel accepts are read, and the last counts.
func TestManyProgramHeaders(t *testing.T) {
	e := newEdit(t, "x86_64-glibc-tlsdesc")
	headers := e.b[e.get64(ePhoff):][:programHeaderBytes*len(e.f.Progs)]
	filler := make([]byte, programHeaderBytes*(1170-len(e.f.Progs))) // PT_NULL
	e.put64(ePhoff, uint64(len(e.b)))
	e.put16(ePhnum, 1170)
	e.b = append(append(e.b, filler...), headers...)
	lib, err := parseLibrary(e.b)
	assert.NilError(t, err)
	assert.Check(t, lib.StorageAddr == 0x3020 && len(lib.Segments) == 4, "%+v", lib)
}

// failing returns an error for every read behind some offset.
type failing struct {
	io.ReaderAt
	from int64
	err  error
}

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > f.from {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(b, off)
}

// An error of reading is none of the contents, unless the file ends before the given size.
func TestReadErrors(t *testing.T) {
	b := readFixture(t, "x86_64-glibc-tlsdesc")
	for from := int64(0); from < int64(len(b)); from += 1000 {
		_, err := ParseLibrary(failing{bytes.NewReader(b), from, syscall.EIO}, int64(len(b)))
		assert.Check(t, errors.Is(err, syscall.EIO) && !IsContentError(err), "EIO from %d: %v", from, err)
		_, err = ParseFile(bytes.NewReader(b[:from]), int64(len(b)))
		assert.Check(t, errors.Is(err, errTruncated), "%d of %d bytes: %v", from, len(b), err)
	}
	_, err := ParseFile(bytes.NewReader(b), -1)
	assert.Check(t, IsContentError(err), "negative size: %v", err)
}
