package memread

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// eachWay runs a test with each way of reading.
func eachWay(t *testing.T, test func(t *testing.T, open func(*puppet) *Process)) {
	t.Run("process_vm_readv", func(t *testing.T) {
		test(t, (*puppet).open)
	})
	t.Run("alone", func(t *testing.T) {
		test(t, func(p *puppet) *Process { return OpenAlone("/proc", p.pid()) })
	})
	t.Run("mem", func(t *testing.T) {
		test(t, func(p *puppet) *Process {
			process := p.open()
			assert.NilError(p.t, process.openMem())
			return process
		})
	})
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(b)
	return b
}

func TestReadTellsHowMuchWasRead(t *testing.T) {
	const page = smallestPage
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		base := child.mapPages(5) // 0, 1, a hole, 3, 4
		content := randomBytes(5 * page)
		child.write(0, 0, content)
		child.must("unmap 0 %d %d", 2*page, page)

		for _, c := range []struct {
			name   string
			addr   uint64
			length int
			want   int
		}{
			{"inside a page", base + 7, 37, 37},
			{"nothing", base, 0, 0},
			{"nothing, of nowhere", 0, 0, 0},
			{"across two pages", base + page - 5, 37, 37},
			{"up to the last byte", base + page, page, page},
			{"one byte into the hole", base + page, page + 1, page},
			{"last byte and the hole", base + 2*page - 1, 37, 1},
			{"two pages, less five bytes, and the hole", base + 5, 3 * page, 2*page - 5},
			{"over the hole", base, 5 * page, 2 * page},
			{"begins in the hole", base + 3*page - 1, 37, 0},
			{"begins after the hole", base + 3*page, 2 * page, 2 * page},
			{"begins before the map", base - 1, 37, 0},
			{"runs out of the map", base + 5*page - 36, 37, 36},
			{"null", 0, 8, 0},
			{"first page", 36, 37, 0},
			{"end of user memory", 1<<47 - page, 37, 0},
			{"not canonical", 1 << 47, 37, 0},
			{"below 2^63", math.MaxInt64, 37, 0},
			{"2^63", 1 << 63, 37, 0},
			{"kernel text", 0xffffffff81000000, 37, 0},
			{"last bytes", math.MaxUint64 - 36, 37, 0},
			{"wraps to 0", math.MaxUint64 - 35, 37, 0},
			{"last byte wraps", math.MaxUint64, 37, 0},
			{"wraps over many pages", math.MaxUint64 - page, 20 * page, 0},
		} {
			process := open(child)
			buf := make([]byte, c.length)
			n, err := process.Read(c.addr, buf)
			if n != c.want {
				t.Errorf("%s: read %d bytes of %d, want %d", c.name, n, c.length, c.want)
				continue
			}
			if wantErr := n < c.length; wantErr != errors.Is(err, ErrUnmapped) || wantErr != (err != nil) {
				t.Errorf("%s: %d bytes of %d, error %v", c.name, n, c.length, err)
			}
			assert.Check(t, n <= 0 || bytes.Equal(buf[:n], content[c.addr-base:][:n]), "%s: wrong bytes", c.name)
		}
	})
}

// Only process_vm_readv respects the protection; /proc/PID/mem overrides it (FOLL_FORCE).
func TestReadUnreadablePage(t *testing.T) {
	child := newPuppet(t)
	base := child.mapPages(2)
	child.must("protect 0 %d %d %d", smallestPage, smallestPage, unix.PROT_NONE)
	buf := make([]byte, 20)
	n, err := child.open().Read(base+smallestPage-8, buf)
	assert.Check(t, n == 8 && errors.Is(err, ErrUnmapped), "read %d bytes, %v", n, err)
}

func TestReadBatch(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		base := child.mapPages(2)
		content := randomBytes(2 * smallestPage)
		child.write(0, 0, content)
		end := base + uint64(len(content))

		kinds := []struct {
			addr   uint64
			length int
			want   int
		}{
			{base, 8, 8},
			{end, 8, 0},
			{base + 8, 37, 37},
			{end - 3, 8, 3},
			{base + smallestPage - 3, 8, 8},
			{math.MaxUint64 - 3, 8, 0},
			{end, 0, 0},
			{0, 8, 0},
			{base + 1, 1, 1},
		}
		for _, count := range []int{0, 1, len(kinds), maxElements - 1, maxElements, maxElements + 1,
			2*maxElements + 100} {
			process := open(child)
			reqs := make([]Request, count)
			for i := range reqs {
				kind := kinds[i%len(kinds)]
				reqs[i] = Request{Addr: kind.addr, Buf: make([]byte, kind.length), N: -1, Err: errShort}
			}
			assert.NilError(t, process.ReadBatch(reqs), "%d requests", count)
			for i, req := range reqs {
				kind := kinds[i%len(kinds)]
				assert.Assert(t, req.N == kind.want && (req.Err == ErrUnmapped) == (req.N < kind.length) &&
					(req.Err == nil) == (req.N == kind.length),
					"%d requests: request %d of %d bytes at %#x read %d bytes, %v", count, i, kind.length, req.Addr,
					req.N, req.Err)
				assert.Assert(t, req.N <= 0 || bytes.Equal(req.Buf[:req.N], content[req.Addr-base:][:req.N]),
					"%d requests: request %d: wrong bytes", count, i)
			}
			for _, element := range process.local {
				assert.Assert(t, element.Base == nil, "scratch space still points to a caller's buffer")
			}
		}
	})
}

// Every request copies into the same bytes, so what is left there is that of the last one.
func TestReadBatchKeepsTheOrder(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		base := child.mapPages(1)
		content := randomBytes(smallestPage)
		child.write(0, 0, content)
		process := open(child)
		var buf [1]byte
		for last := range 100 {
			reqs := make([]Request, last+1)
			for i := range reqs {
				reqs[i] = Request{Addr: base + uint64(i), Buf: buf[:]}
			}
			assert.NilError(t, process.ReadBatch(reqs))
			assert.Assert(t, buf[0] == content[last],
				"after %d requests: byte %#x, want %#x", len(reqs), buf[0], content[last])
		}
	})
}

// readAll calls everything that reads, and returns each error.
func readAll(process *Process, addr uint64) map[string]error {
	errs := map[string]error{}
	_, errs["Read"] = process.Read(addr, make([]byte, 8))
	reqs := []Request{{Addr: addr, Buf: make([]byte, 8)}, {Addr: addr, Buf: make([]byte, 8)}}
	errs["ReadBatch"] = process.ReadBatch(reqs)
	errs["first request"], errs["second request"] = reqs[0].Err, reqs[1].Err
	var results [2]SlotResult
	errs["ReadSlots"] = process.ReadSlots([]uint64{addr, addr}, results[:])
	errs["first slot"], errs["second slot"] = results[0].Err, results[1].Err
	_, _, errs["ReadProcessStorage"] = process.ReadProcessStorage(addr)
	return errs
}

func expectAll(t *testing.T, errs map[string]error, want error) {
	t.Helper()
	for name, err := range errs {
		assert.Check(t, errors.Is(err, want), "%s: %v, want %v", name, err, want)
	}
}

func TestProcessGone(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		base := child.mapPages(1)
		early := open(child)
		_, err := early.Read(base, make([]byte, 8))
		assert.NilError(t, err)
		child.killUnreaped()
		t.Run("zombie", func(t *testing.T) {
			expectAll(t, readAll(early, base), ErrGone)
			expectAll(t, readAll(child.open(), base), ErrGone)
		})
		child.kill()
		t.Run("reaped", func(t *testing.T) {
			expectAll(t, readAll(early, base), ErrGone)
			expectAll(t, readAll(child.open(), base), ErrGone)
		})
	})
}

func TestKernelThread(t *testing.T) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	assert.NilError(t, err)
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		const flagsField, kernelThread = 9, 0x00200000 // proc_pid_stat(5), PF_KTHREAD
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if flags, _ := strconv.ParseUint(fields[flagsField-3], 10, 64); flags&kernelThread == 0 {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		assert.NilError(t, err)
		expectAll(t, readAll(Open("/proc", pid), 0x1000), ErrGone)
		return
	}
	testenv.Missing(t, "needs to see a kernel thread in /proc")
}

// The process is killed while it is read, at no particular step.
func TestKilledWhileReading(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		for range 20 {
			child := newPuppet(t)
			base := child.mapDemo(1)
			process := open(child)

			go child.cmd.Process.Kill()
			slots, results := []uint64{base, base}, make([]SlotResult, 2)
			var err error
			for err == nil {
				if err = process.ReadSlots(slots, results); err != nil {
					break
				}
				for _, result := range results {
					assert.Assert(t, result.Err == nil && result.Slot == demoSlotDecoded, "before the end: %+v", result)
				}
				_, _, err = process.ReadProcessStorage(base + pointerBytes)
			}
			assert.Assert(t, errors.Is(err, ErrGone), err)
		}
	})
}

// After an exec the process is read as it is now, also through /proc/PID/mem, where an open file
// belongs to the memory before.
func TestExec(t *testing.T) {
	eachWay(t, func(t *testing.T, open func(*puppet) *Process) {
		child := newPuppet(t)
		before := child.mapPages(1)
		child.write(0, 0, []byte("before"))
		process := open(child)
		buf := make([]byte, 6)
		_, err := process.Read(before, buf)
		assert.Assert(t, err == nil && string(buf) == "before", "%q, %v", buf, err)
		child.must("exec")
		after := child.mapPages(1)
		child.write(0, 0, []byte("after!"))
		_, err = process.Read(after, buf)
		assert.Assert(t, err == nil && string(buf) == "after!", "%q, %v", buf, err)
	})
}

func TestProcessIsSmall(t *testing.T) {
	child := newPuppet(t)
	base := child.mapDemo(1)
	process := child.open()

	size := unsafe.Sizeof(*process)
	assert.Check(t, size <= 192, "a Process has %d bytes", size)
	scratch := func() uintptr {
		return uintptr(cap(process.local))*unsafe.Sizeof(unix.Iovec{}) +
			uintptr(cap(process.far))*unsafe.Sizeof(unix.RemoteIovec{}) +
			uintptr(cap(process.slots))*unsafe.Sizeof(slotReads{})
	}
	if _, err := process.Read(base, make([]byte, smallestPage)); err != nil || scratch() != 0 {
		t.Errorf("after a read: %d bytes of scratch space, %v", scratch(), err)
	}
	if err := process.ReadSlots([]uint64{base}, make([]SlotResult, 1)); err != nil || scratch() > 330 {
		t.Errorf("after one slot: %d bytes of scratch space, %v", scratch(), err)
	}
	for count := 1; count < 3000; count += 97 {
		varAddrs, reqs := make([]uint64, count), make([]Request, count)
		for i := range count {
			varAddrs[i], reqs[i] = base, Request{Addr: base, Buf: make([]byte, 8)}
		}
		assert.NilError(t, errors.Join(process.ReadSlots(varAddrs, make([]SlotResult, count)),
			process.ReadBatch(reqs)))
		assert.Assert(t, scratch()+unsafe.Sizeof(splitReads{}) <= 44<<10,
			"after %d threads: %d bytes of scratch space", count, scratch())
	}
}

func TestNothingIsAllocated(t *testing.T) {
	child := newPuppet(t)
	base := child.mapDemo(2)
	// A variable whose slot lies across the pages.
	child.write(0, 0x300, pointer(base+smallestPage-20))
	child.write(0, smallestPage-20, demoSlot)
	process := child.open()

	varAddrs := make([]uint64, 3*slotChunk)
	for i := range varAddrs {
		varAddrs[i] = base
	}
	varAddrs[slotChunk] = base + 0x300
	results := make([]SlotResult, len(varAddrs))
	reqs := []Request{{Addr: base, Buf: make([]byte, 37)}, {Addr: base, Buf: make([]byte, 8)}}
	buf := make([]byte, 37)
	for name, read := range map[string]func() error{
		"Read":      func() error { _, err := process.Read(base, buf); return err },
		"ReadBatch": func() error { return process.ReadBatch(reqs) },
		"ReadSlots": func() error { return process.ReadSlots(varAddrs, results) },
		"ReadProcessStorage of a candidate": func() error {
			_, _, err := process.ReadProcessStorage(base + 0x400)
			if err == ErrNotPublished {
				return nil
			}
			return err
		},
	} {
		var err error
		allocs := testing.AllocsPerRun(10, func() { err = errors.Join(err, read()) })
		assert.Check(t, err == nil && allocs == 0, "%s: %v allocations, %v", name, allocs, err)
	}
	for i, result := range results {
		assert.Assert(t, result.Err == nil && result.Slot == demoSlotDecoded, "thread %d: %+v", i, result)
	}
}
