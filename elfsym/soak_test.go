//go:build soak

package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// measured compares what parsing allocates with a bound.
func measured(t *testing.T, most uint64, parse func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parse()
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes allocated, of at most %d", used, most)
	assert.Check(t, used <= most)
}

// Parsing files that claim to be enormous takes little memory.
func TestSoakEnormousFiles(t *testing.T) {
	testEnormousFiles(t, measured)
	testEnormousThreadContexts(t, measured)
}

// NewCache documents at most 4 KiB for each entry.
func TestSoakCacheMemory(t *testing.T) {
	const entries, most = 500, 4096
	contents := largestLibrary(t)
	lib, err := parseLibrary(contents)
	assert.NilError(t, err)
	assert.Assert(t, len(lib.Segments) == maxSegments && len(lib.BuildID) == maxBuildIDBytes,
		"%d segments, build id of %d bytes", len(lib.Segments), len(lib.BuildID))
	path := writeFile(t, contents)
	f := open(t, path)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers and pools held
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	c := newCache(t, entries)
	for i := range entries {
		assert.NilError(t, os.Chtimes(path, time.Unix(int64(i), 0), time.Unix(int64(i), 0)))
		_, err := c.Library(f)
		assert.NilError(t, err)
	}
	used := heap() - before
	expectCounts(t, c, 0, entries)
	t.Logf("%d bytes per entry, of at most %d", used/entries, most)
	assert.Check(t, used <= entries*most)
	runtime.KeepAlive(c)
}

// largestLibrary is a library that makes the cache keep as much as any can.
func largestLibrary(t testing.TB) []byte {
	e := newEdit(t, gnuFixture)
	id := note(3, "GNU\x00", string(make([]byte, maxBuildIDBytes)), 4)
	header := e.program(elf.PT_NOTE, 0)
	e.put64(header+pOffset, uint64(len(e.b)))
	e.put64(header+pFilesz, uint64(len(id)))
	e.b = append(e.b, id...)

	headers := bytes.Clone(e.b[e.get64(ePhoff):][:programHeaderBytes*len(e.f.Progs)])
	load := make([]byte, programHeaderBytes)
	binary.LittleEndian.PutUint32(load, uint32(elf.PT_LOAD))
	headers = append(bytes.Repeat(load, maxSegments-4), headers...)
	e.put64(ePhoff, uint64(len(e.b)))
	e.put16(ePhnum, uint16(len(headers)/programHeaderBytes))
	e.b = append(e.b, headers...)
	return e.b
}
