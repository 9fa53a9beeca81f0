package memread

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

var (
	demoStorage = unhex(`0100
		06000000 6f7264657273
		04000000 70726f64
		0d000000 2f746d702f61706d2e736f636b`)
	demoStorageDecoded = ProcessStorage{MinorVersion: 1, ServiceName: "orders", ServiceEnvironment: "prod",
		SocketPath: "/tmp/apm.sock"}
)

var storageTests = []struct {
	name string
	hex  string
	want ProcessStorage
	n    int
	err  error
}{
	{"all fields", "0100 06000000 6f7264657273 04000000 70726f64 0d000000 2f746d702f61706d2e736f636b",
		demoStorageDecoded, 37, nil},
	{"newer, longer layout", "0502 00000000 00000000 02000000 2f73 deadbeef",
		ProcessStorage{MinorVersion: 0x205, SocketPath: "/s"}, 16, nil},
	{"names of several bytes a letter", "0100 02000000 c3a9 03000000 e282ac 02000000 2f73",
		ProcessStorage{MinorVersion: 1, ServiceName: "é", ServiceEnvironment: "€", SocketPath: "/s"}, 21, nil},
	{"NUL in a name", "0100 01000000 00 00000000 02000000 2f73",
		ProcessStorage{MinorVersion: 1, ServiceName: "\x00", SocketPath: "/s"}, 17, nil},
	{"nothing", "", ProcessStorage{}, 14, errShort},
	{"one byte", "01", ProcessStorage{}, 14, errShort},
	{"first length cut", "0100 060000", ProcessStorage{}, 14, errShort},
	{"first string cut", "0100 06000000 6f72646572 04000000", ProcessStorage{}, 20, errShort},
	{"second string cut", "0100 06000000 6f7264657273 04000000 70726f", ProcessStorage{}, 20, errShort},
	{"third length to come", "0100 06000000 6f7264657273 04000000 70726f64", ProcessStorage{}, 24, errShort},
	{"last byte to come", "0100 06000000 6f7264657273 04000000 70726f64 0d000000 2f746d702f61706d2e736f63",
		ProcessStorage{}, 37, errShort},
	{"longest string to come", "0100 00200000 00000000 00000000", ProcessStorage{}, 14 + 8192, errShort},
	{"string one too long", "0100 01200000 00000000 00000000", ProcessStorage{}, 6, ErrStringTooLong},
	{"string of 4 GiB", "0100 ffffffff 00000000 00000000", ProcessStorage{}, 6, ErrStringTooLong},
	{"last string of 4 GiB", "0100 00000000 00000000 ffffffff", ProcessStorage{}, 14, ErrStringTooLong},
	{"last string of 2 GiB", "0100 00000000 00000000 00000080", ProcessStorage{}, 14, ErrStringTooLong},
	{"version 0", "0000 00000000 00000000 02000000 2f73", ProcessStorage{}, 2, ErrVersion},
	{"name is Latin-1", "0100 01000000 e9 00000000 02000000 2f73", ProcessStorage{}, 17, ErrInvalidUTF8},
	{"environment is a surrogate", "0100 00000000 03000000 eda080 02000000 2f73", ProcessStorage{}, 19, ErrInvalidUTF8},
	{"path is cut UTF-8", "0100 00000000 00000000 03000000 2fe282", ProcessStorage{}, 17, ErrInvalidUTF8},
	{"no path", "0100 00000000 00000000 00000000", ProcessStorage{}, 14, ErrSocketPath},
	{"NUL in the path", "0100 00000000 00000000 03000000 2f0073", ProcessStorage{}, 17, ErrSocketPath},
	{"abstract socket", "0100 00000000 00000000 02000000 0073", ProcessStorage{}, 16, ErrSocketPath},
}

func TestDecodeProcessStorage(t *testing.T) {
	for _, c := range storageTests {
		got, n, err := decodeProcessStorage(unhex(c.hex))
		assert.Check(t, got == c.want && n == c.n && errors.Is(err, c.err),
			"%s: %+v, %d, %v; want %+v, %d, %v", c.name, got, n, err, c.want, c.n, c.err)
	}
}

// encodeStorage is the other direction, as the specification has it.
func encodeStorage(s ProcessStorage) []byte {
	b := binary.NativeEndian.AppendUint16(nil, s.MinorVersion)
	for _, text := range []string{s.ServiceName, s.ServiceEnvironment, s.SocketPath} {
		b = binary.NativeEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	return b
}

func FuzzDecodeProcessStorage(f *testing.F) {
	for _, c := range storageTests {
		f.Add(unhex(c.hex))
	}
	const longest = 2 + 3*(storageLengthBytes+maxStringBytes)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, n, err := decodeProcessStorage(b)
		switch {
		case err == errShort:
			assert.Assert(t, n > len(b) && n <= longest, "of %d bytes: needs %d", len(b), n)
		case err != nil:
			clear(b[n:]) // what it does not rest on
			again, m, errAgain := decodeProcessStorage(b)
			assert.Assert(t, s == again && m == n && errAgain.Error() == err.Error() && s == ProcessStorage{},
				"%+v, %d, %v; then %+v, %d, %v", s, n, err, again, m, errAgain)
		default:
			got := encodeStorage(s)
			assert.Assert(t, bytes.Equal(got, b[:n]), "%+v encodes to\n%x, not\n%x", s, got, b[:n])
			// Given piecemeal, it asks for what is there and for nothing behind it.
			for have, rounds := 0, 0; have < n; rounds++ {
				_, need, err := decodeProcessStorage(b[:have])
				assert.Assert(t, err == errShort && need > have && need <= n && rounds <= 4,
					"given %d of %d bytes in round %d: %d, %v", have, n, rounds, need, err)
				have = need
			}
		}
	})
}

func TestReadProcessStorage(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", maxStringBytes/16)
	tests := map[string]ProcessStorage{
		"usual":             demoStorageDecoded,
		"shortest":          {MinorVersion: 1, SocketPath: "s"},
		"path of 4096":      {MinorVersion: 1, ServiceName: "n", SocketPath: long[:4096]},
		"all longest":       {MinorVersion: 65535, ServiceName: long, ServiceEnvironment: long, SocketPath: long},
		"a page, less one":  {MinorVersion: 1, SocketPath: long[:smallestPage-14-1]},
		"exactly one page":  {MinorVersion: 1, SocketPath: long[:smallestPage-14]},
		"a page and a byte": {MinorVersion: 1, SocketPath: long[:smallestPage-14+1]},
		"two, one missing":  {MinorVersion: 1, ServiceName: long[:smallestPage], SocketPath: long[:smallestPage-15]},
	}
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		const pages = 8
		child := newPuppet(t)
		base := child.mapPages(pages)
		process := open(child)
		for name, want := range tests {
			// The last byte is the last before a page that is not mapped.
			storage := encodeStorage(want)
			off := pages*smallestPage - len(storage)
			child.write(0, off, storage)
			child.write(0, 0, pointer(base+uint64(off)))
			addr, got, err := process.ReadProcessStorage(base)
			assert.Check(t, err == nil && addr == base+uint64(off) && got == want,
				"%s: %#x, %.99v, %v; want %#x, %.99v", name, addr, got, err, base+uint64(off), want)
		}
	})
}

func TestReadProcessStorageErrors(t *testing.T) {
	child := newPuppet(t)
	base := child.mapPages(2)
	end := base + 2*smallestPage
	process := child.open()
	const published = 0x100
	for _, c := range []struct {
		name    string
		pointer uint64
		off     int
		hex     string
		err     error
	}{
		{"null pointer", 0, published, "", ErrNotPublished},
		{"pointer to nowhere", end, published, "", ErrUnmapped},
		{"pointer near 2^64", math.MaxUint64, published, "", ErrUnmapped},
		{"pointer into the kernel", 0xffffffff81000000, published, "", ErrUnmapped},
		{"last byte of the map", end - 1, 2*smallestPage - 1, "01", ErrUnmapped},
		{"string runs out of the map", end - 14, 2*smallestPage - 14, "0100 01000000 00000000 00000000", ErrUnmapped},
		{"version 0", base + published, published, "0000 00000000 00000000 02000000 2f73", ErrVersion},
	} {
		child.write(0, 0, pointer(c.pointer))
		child.write(0, c.off, unhex(c.hex))
		addr, s, err := process.ReadProcessStorage(base)
		assert.Check(t, errors.Is(err, c.err) && addr == c.pointer && s == ProcessStorage{},
			"%s: %#x, %+v, %v; want %v", c.name, addr, s, err, c.err)
	}
	_, _, err := process.ReadProcessStorage(end - 7)
	assert.Check(t, errors.Is(err, ErrUnmapped), "pointer across the end of the map: %v", err)
}

// Lengths that cannot be lead to no read, and so to no buffer, of that length.
func TestHostileLengths(t *testing.T) {
	for _, text := range []string{
		"0100 ffffffff", "0100 01200000", "0100 00000000 ffffffff", "0100 00000000 00000000 ffffffff",
	} {
		m := &fakeMemory{base: 0x10000, bytes: make([]byte, 16<<10)}
		copy(m.bytes, pointer(m.base+8))
		copy(m.bytes[8:], unhex(text))
		_, _, err := OpenRemote("/proc", 1, m.read).ReadProcessStorage(m.base)
		assert.Check(t, errors.Is(err, ErrStringTooLong) && m.largest <= firstStorageBytes,
			"%s: %v, %d bytes read at once", text, err, m.largest)
	}
}

// fakeMemory is memory that changes before certain reads of it, by their number.
type fakeMemory struct {
	base    uint64
	bytes   []byte
	reads   int
	largest int // of them, bytes
	before  map[int]func(*fakeMemory) error
}

func (m *fakeMemory) read(reqs []Request) error {
	m.reads++
	if change := m.before[m.reads]; change != nil {
		if err := change(m); err != nil {
			return err
		}
	}
	for i := range reqs {
		off := reqs[i].Addr - m.base
		m.largest = max(m.largest, len(reqs[i].Buf))
		if reqs[i].N, reqs[i].Err = 0, ErrUnmapped; off+uint64(len(reqs[i].Buf)) <= uint64(len(m.bytes)) {
			reqs[i].N, reqs[i].Err = copy(reqs[i].Buf, m.bytes[off:]), nil
		}
	}
	return nil
}

// A storage that changes between the two reads of it, or before, is that of neither.
func TestProcessStorageChangesWhileItIsRead(t *testing.T) {
	const base, off, other = 0x10000, 0x100, 0x200
	write := func(off int, data []byte) func(*fakeMemory) error {
		return func(m *fakeMemory) error { copy(m.bytes[off:], data); return nil }
	}
	rewritten := ProcessStorage{MinorVersion: 1, ServiceName: "orders", ServiceEnvironment: "prod",
		SocketPath: "/tmp/apm.sick"}
	const pointerRead, firstRead, secondRead = 1, 2, 3
	for _, c := range []struct {
		name   string
		read   int
		change func(*fakeMemory) error
		want   ProcessStorage
		err    error
	}{
		{"nothing", secondRead, write(0x300, []byte{1}), demoStorageDecoded, nil},
		{"rewritten before it is read", firstRead, write(off, encodeStorage(rewritten)), rewritten, nil},
		{"first byte", secondRead, write(off, []byte{2}), ProcessStorage{}, ErrChanged},
		{"last byte", secondRead, write(off+len(demoStorage)-1, []byte{'x'}), ProcessStorage{}, ErrChanged},
		{"behind its end", secondRead, write(off+len(demoStorage), []byte{'x'}), demoStorageDecoded, nil},
		{"invalidated", secondRead, write(off, []byte{0, 0}), ProcessStorage{}, ErrChanged},
		{"replaced by one that is the same", secondRead, write(0, pointer(base+other)), ProcessStorage{}, ErrChanged},
		{"replaced before it is read", firstRead, write(0, pointer(base+other)), ProcessStorage{}, ErrChanged},
		{"withdrawn", secondRead, write(0, pointer(0)), ProcessStorage{}, ErrChanged},
		{"unmapped", secondRead, func(m *fakeMemory) error { m.bytes = m.bytes[:off]; return nil },
			ProcessStorage{}, ErrChanged},
		{"unmapped with its pointer", secondRead, func(m *fakeMemory) error { m.bytes = nil; return nil },
			ProcessStorage{}, ErrUnmapped},
		{"the process ends", secondRead, func(*fakeMemory) error { return ErrGone }, ProcessStorage{}, ErrGone},
		{"not readable at any time", firstRead, func(m *fakeMemory) error { m.bytes = m.bytes[:off]; return nil },
			ProcessStorage{}, ErrUnmapped},
		{"not published", pointerRead, write(0, pointer(0)), ProcessStorage{}, ErrNotPublished},
	} {
		m := &fakeMemory{base: base, bytes: make([]byte, 0x400)}
		m.before = map[int]func(*fakeMemory) error{c.read: c.change}
		copy(m.bytes, pointer(base+off))
		copy(m.bytes[off:], demoStorage)
		copy(m.bytes[other:], demoStorage)
		_, got, err := OpenRemote("/proc", 1, m.read).ReadProcessStorage(base)
		assert.Check(t, got == c.want && errors.Is(err, c.err), "%s: %+v, %v", c.name, got, err)
	}
	// What made no sense at first may be a storage that was being written.
	m := &fakeMemory{base: base, bytes: make([]byte, 0x400)}
	copy(m.bytes, pointer(base+off))
	m.before = map[int]func(*fakeMemory) error{secondRead: write(off, demoStorage)}
	_, _, err := OpenRemote("/proc", 1, m.read).ReadProcessStorage(base)
	assert.Check(t, errors.Is(err, ErrChanged), err)
}

// The process publishes two storages in turn, withdraws them in between, and overwrites the one
// that is not published.
func TestProcessStorageReplacedWithoutPause(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		base := child.mapPages(rewritePages)
		process := open(child)
		child.must("rewrite 0 0 storage")
		seen := map[error]int{}
		read := func() bool {
			addr, s, err := process.ReadProcessStorage(base + rewriteVariable)
			switch {
			case err == nil:
				turn := int(addr-base) / rewriteOther
				assert.Assert(t, s == rewriteStorage(turn), "at %#x: %+v", addr-base, s)
			case errors.Is(err, ErrVersion):
				// Both reads met the overwritten storage, published again in between. That cannot
				// be distinguished from garbage.
				err = ErrVersion
			case err != ErrNotPublished && err != ErrChanged:
				t.Fatal(err)
			}
			seen[err]++
			return seen[nil] > 0 && seen[ErrNotPublished] > 0 && seen[ErrChanged] > 0
		}
		testenv.Poll(t, time.Minute, "every outcome", read)
		for range 10_000 {
			read()
		}
		t.Log(seen)
	})
}
