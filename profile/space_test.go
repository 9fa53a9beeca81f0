package profile

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/elfsym"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
)

func (c *mappingCounters) all() [6]uint64 {
	return [6]uint64{
		c.Resolved.Load(), c.NotOpened.Load(), c.NotRead.Load(), c.NotELF.Load(), c.NotLoaded.Load(), c.TooMany.Load(),
	}
}

func TestLibrary(t *testing.T) {
	// The executable segment of the second lies at another address than its offset in the file.
	for _, path := range []string{library, "../testdata/lib/prebuilt/x86_64-glibc-tlsdesc-lld.so"} {
		files := newFiles(t)
		m := libraryMapping(t, path, 0x7f1234567000)
		space := NewAddressSpace(files, pace)
		update(t, space, &fakeProcess{mappings: []procscan.Mapping{m}})

		parsed := parse(t, path)
		bias, ok := parsed.Bias(m.Start, m.Offset)
		assert.Assert(t, ok, "no bias")
		frames := space.AppendFrames(nil, []uint64{m.Start + 0x10, m.Start + 0x21})
		want := File{ID: parsed.HTLHash, Kind: NativeFrame, BuildID: hex.EncodeToString(parsed.BuildID), Path: m.Path}
		for i, frame := range frames {
			off := 0x10 * uint64(i+1)
			assert.Assert(t, frame.File.equal(&want) && frame.Address == m.Start-bias+off,
				"%s: frame %d %+v of %+v", path, i, frame, frame.File)
			code := frame.File.CodeAt(frame.Address) // tells where the address is in the file
			assert.Check(t, code.Limit != 0 && frame.Address-code.Start+code.Offset == m.Offset+off,
				"%s: %#x is in %+v, mapped from %#x on", path, frame.Address, code, m.Offset)
			if n := len(frame.File.Code); n != 1 || frame.File.CodeAt(code.Limit-1) != code ||
				frame.File.CodeAt(code.Limit) != (CodeRange{}) || frame.File.CodeAt(code.Start-1) != (CodeRange{}) {
				t.Errorf("%s: %d executable segments, %+v", path, n, frame.File.Code)
			}
		}
		assert.Check(t, len(want.BuildID) == 40, "build id %q", want.BuildID)
	}
}

// The mapping can start inside the segment: its protection was changed in places, say.
func TestInnerMapping(t *testing.T) {
	program := buildStackProgram(t)
	running := startStackProgram(t, program)
	whole := running.mapping(t, program)
	assert.Assert(t, whole.End-whole.Start >= 0x1000, "%+v", whole)
	libc := libcMapping(t, running.liveProcess)
	middle := libc.Start + 0x5000
	inner := libc
	inner.Start, inner.Offset = middle, libc.Offset+0x5000

	files := newFiles(t)
	frameIn := func(m procscan.Mapping) Frame {
		space := NewAddressSpace(files, pace)
		update(t, space, &fakeProcess{mappings: []procscan.Mapping{m}})
		return space.AppendFrames(nil, []uint64{middle + 0x123})[0]
	}
	a, b := frameIn(libc), frameIn(inner)
	assert.Check(t, a.File != nil && a == b, "%+v, %+v", a, b)
}

func TestMappingsWithoutFile(t *testing.T) {
	dir := t.TempDir()
	script, tooShort, data := filepath.Join(dir, "script"), filepath.Join(dir, "short"), filepath.Join(dir, "data")
	testenv.WriteFile(t, script, "#!/bin/sh\n")
	testenv.WriteFile(t, tooShort, elf.ELFMAG)
	contents := testenv.ReadFile(t, library)
	testenv.WriteFile(t, data, contents)

	missing := fileMapping(t, script, 0x10000, 0)
	missing.Path += " is not there"
	directory := fileMapping(t, dir, 0x20000, 0)
	behind := fileMapping(t, data, 0x50000, 0x100000) // behind the end of the file
	const start = 0x90000
	for _, tt := range []struct {
		name    string
		m       procscan.Mapping
		counted [6]uint64
	}{
		{"none", procscan.Mapping{Start: start, End: start + 0x1000}, [6]uint64{}},
		{"a name", procscan.Mapping{Start: start, End: start + 0x1000, Path: "[anon:code]"}, [6]uint64{}},
		{"vsyscall", procscan.Mapping{Start: 0xffffffffff600000, End: 0xffffffffff601000, Path: "[vsyscall]"},
			[6]uint64{}},
		{"a path without an inode", procscan.Mapping{Start: start, End: start + 0x1000, Path: data}, [6]uint64{}},
		{"missing file", missing, [6]uint64{1: 1}},
		{"directory", directory, [6]uint64{2: 1}},
		{"script", fileMapping(t, script, 0x30000, 0), [6]uint64{3: 1}},
		{"cut ELF file", fileMapping(t, tooShort, 0x40000, 0), [6]uint64{3: 1}},
		{"no segment there", behind, [6]uint64{4: 1}},
		{"vdso of another size", procscan.Mapping{Start: start, End: start + 64<<12, Path: "[vdso]"}, [6]uint64{2: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := newFiles(t)
			space := NewAddressSpace(files, pace)
			update(t, space, &fakeProcess{mappings: []procscan.Mapping{tt.m}})
			got := files.Mappings.all()
			assert.Check(t, got == tt.counted, "counted %v, want %v", got, tt.counted)
			// A result of the contents is cached; an error of reading is not.
			if got := uint64(files.images.Len()); got != tt.counted[3]+tt.counted[4] {
				t.Errorf("%d files remembered", got)
			}
			frames := space.AppendFrames(nil, []uint64{tt.m.Start + 0x10, tt.m.Start + 0x11})
			want := Frame{Address: tt.m.Start + 0x10}
			assert.Check(t, frames[0] == want && frames[1] == want, "frames %+v, want %+v", frames, want)
			// Memory that is known to be anonymous causes no update.
			if files.Frames.Anonymous.Load() != 2 || space.Stale(time.Now().Add(pace.Longest/2)) {
				t.Errorf("%d anonymous frames, stale %v", files.Frames.Anonymous.Load(),
					space.Stale(time.Now().Add(pace.Longest/2)))
			}
		})
	}
}

// A second update opens only what is new and what could not be opened.
func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	late := filepath.Join(dir, "late.so")
	first, moved := libraryMapping(t, library, 0x10000), libraryMapping(t, library, 0x30000)
	lateMapping := libraryMapping(t, library, 0x20000)
	lateMapping.Path, lateMapping.Ino = late, lateMapping.Ino+1

	files := newFiles(t)
	space := NewAddressSpace(files, pace)
	p := &fakeProcess{mappings: []procscan.Mapping{lateMapping, first}}
	update(t, space, p)
	want := []string{first.Path, late}
	assert.Assert(t, slices.Equal(p.opened, want), "opened %v", p.opened)
	contents := testenv.ReadFile(t, library)
	testenv.WriteFile(t, late, contents)
	p.mappings, p.opened = []procscan.Mapping{moved, first, lateMapping}, nil
	update(t, space, p)
	want = []string{late, moved.Path}
	assert.Assert(t, slices.Equal(p.opened, want), "opened %v", p.opened)
	p.opened = nil
	update(t, space, p)
	assert.Assert(t, len(p.opened) == 0, "opened %v", p.opened)
	got := files.Mappings.all()
	assert.Check(t, got == [6]uint64{3, 1}, "counted %v", got)
	frames := space.AppendFrames(nil, []uint64{first.Start + 5, lateMapping.Start + 6, moved.Start + 6})
	for _, f := range frames {
		assert.Check(t, f.File != nil && f.File.ID == frames[0].File.ID && f.Address == frames[0].Address,
			"%+v", frames)
	}
	// The same bytes under two names are two files to the cache and one id.
	assert.Check(t, frames[0].File == frames[2].File && frames[0].File != frames[1].File, "files %p", frames)

	// The file at the address is another one now.
	other := first
	other.Ino++
	other.Path = late
	p.mappings = []procscan.Mapping{other}
	update(t, space, p)
	if frames := space.AppendFrames(nil, []uint64{first.Start + 5, moved.Start + 6}); frames[0].File.Path != late ||
		frames[1].File != nil {
		t.Errorf("%+v", frames)
	}
}

// An unchanged version means unchanged frames.
func TestVersion(t *testing.T) {
	files := newFiles(t)
	space, other := NewAddressSpace(files, pace), NewAddressSpace(files, pace)
	first, second := libraryMapping(t, library, 0x10000), libraryMapping(t, library, 0x30000)
	code := procscan.Mapping{Start: 0x20000, End: 0x21000}
	seen := map[uint64]bool{space.Version(): true}
	p := &fakeProcess{}
	for i, tt := range []struct {
		mappings []procscan.Mapping
		err      error
		changed  bool
	}{
		{nil, errors.New("no mappings"), false},
		{nil, nil, false},
		{[]procscan.Mapping{first}, nil, true},
		{[]procscan.Mapping{first}, nil, false},
		{[]procscan.Mapping{first, code}, nil, false}, // no address in it had another frame before
		{[]procscan.Mapping{code}, errors.New("no mappings"), false},
		{[]procscan.Mapping{first, code, second}, nil, true},
		{[]procscan.Mapping{code, second}, nil, true},
		{[]procscan.Mapping{first, code, second}, nil, true},
	} {
		p.mappings, p.err = tt.mappings, tt.err
		before := space.Version()
		err := space.Update(time.Now(), p)
		assert.Assert(t, errors.Is(err, tt.err), err)
		if got := space.Version(); got != before && (!tt.changed || seen[got]) || got == before && tt.changed {
			t.Errorf("update %d: version %d, before %d", i, got, before)
		}
		seen[space.Version()] = true
		assert.Check(t, !seen[other.Version()], "update %d: version %d of two address spaces", i, other.Version())
	}
	update(t, other, p)
	assert.Check(t, !seen[other.Version()], "version %d of two address spaces", other.Version())
}

func TestFailedUpdate(t *testing.T) {
	now := time.Now()
	p := &fakeProcess{mappings: []procscan.Mapping{libraryMapping(t, library, 0x10000)}}
	space := NewAddressSpace(newFiles(t), pace)
	assert.Check(t, space.Stale(now), "not stale before the first update")
	update(t, space, p)
	p.err = errors.New("no mappings")
	space.Invalidate()
	err := space.Update(now, p)
	assert.Assert(t, errors.Is(err, p.err), err)
	assert.Check(t, !space.Stale(now.Add(pace.Shortest)) && space.Stale(now.Add(2*pace.Shortest)),
		"not tried again after a wait")
	assert.Check(t, space.AppendFrames(nil, []uint64{0x10010})[0].File != nil, "what was known is forgotten")
	p.err = nil
	update(t, space, p)
	soon := time.Now().Add(pace.Longest / 2)
	assert.Check(t, !space.Stale(soon), "stale after an update that did not fail")
	space.AppendFrames(nil, []uint64{0x50000})
	assert.Check(t, space.Stale(soon), "not stale with an unknown address")
}

// A file that could not be opened is tried again, also while changes are told.
func TestToldPartial(t *testing.T) {
	var told atomic.Bool
	told.Store(true)
	pace := Pace{Shortest: time.Second, Longest: time.Minute, Told: &told}
	space := NewAddressSpace(newFiles(t), pace)
	mapping := libraryMapping(t, library, 0x10000)
	lost := mapping
	lost.Path, lost.Start, lost.End = "/nonexistent", 0x80000, 0x81000
	now, p := time.Now(), &fakeProcess{mappings: []procscan.Mapping{mapping, lost}}
	assert.NilError(t, space.Update(now, p))
	assert.Check(t, space.Stale(now.Add(pace.Longest)), "a file is missing")
	p.mappings = p.mappings[:1]
	assert.NilError(t, space.Update(now, p))
	assert.Check(t, !space.Stale(now.Add(pace.Longest)) && space.Stale(now.Add(ToldAge)), "all is known")
	p.err = procscan.ErrTooMany
	assert.NilError(t, space.Update(now, p))
	assert.Check(t, space.Stale(now.Add(pace.Longest)), "mappings are missing")
	p.err = nil
	assert.NilError(t, space.Update(now, p))
	space.Invalidate()
	assert.Check(t, space.Stale(now), "it was told")
}

// An address at which there was no executable memory before and after a sample was taken was no code then. That is not
// said of what is not known: of later samples, where not all is, and where some memory has gone meanwhile.
func TestMayBeCode(t *testing.T) {
	const code, other = 0x1010, 0x3010
	read := time.Now()
	before, after := read.Add(-1), read.Add(1)
	p := &fakeProcess{mappings: []procscan.Mapping{{Start: 0x1000, End: 0x2000}}}
	space := NewAddressSpace(newFiles(t), pace)
	look := func(step string, first, later bool) {
		t.Helper()
		for at, want := range map[time.Time]bool{before: first, read: later, after: later} {
			got := space.MayBeCode(other, at)
			assert.Check(t, got == want && space.MayBeCode(code, at), "%s, sampled after %v: %v", step, at.Sub(read),
				got)
		}
	}
	look("nothing is known", true, true)
	assert.NilError(t, space.Update(read, p))
	look("read", false, true)
	p.err = errors.New("no mappings")
	assert.Check(t, space.Update(after, p) != nil)
	look("not read again", false, true)
	p.err = procscan.ErrTooMany
	assert.NilError(t, space.Update(after, p))
	look("the first of many", true, true)
	p.err = nil
	assert.NilError(t, space.Update(read, p))
	look("all again", false, true)
	const jit = 0x5000
	p.mappings = append(p.mappings, procscan.Mapping{Start: jit, End: jit + 0x800},
		procscan.Mapping{Start: jit + 0x800, End: jit + 0x1000})
	assert.NilError(t, space.Update(read, p))
	look("more", false, true)
	p.mappings = p.mappings[:2]
	assert.NilError(t, space.Update(after, p))
	assert.Check(t, space.MayBeCode(jit+0x900, before), "code that was unmapped since")
	look("less", true, true)
	assert.NilError(t, space.Update(read, p))
	look("the same", false, true)
	p.mappings = nil
	for i := range uint64(maxRegions) + 1 {
		p.mappings = append(p.mappings, procscan.Mapping{Start: 0x10000 * (i + 1), End: 0x10000*(i+1) + 0x1000})
	}
	p.mappings = append(p.mappings, procscan.Mapping{Start: 0x1000, End: 0x2000})
	assert.NilError(t, space.Update(after, p))
	look("more than are kept", true, true)
}

// A process at its end has lost its memory; its last stacks come later.
func TestNoMappings(t *testing.T) {
	space := NewAddressSpace(newFiles(t), pace)
	p := &fakeProcess{mappings: []procscan.Mapping{libraryMapping(t, library, 0x10000)}}
	update(t, space, p)
	version := space.Version()
	p.mappings = nil
	update(t, space, p)
	frames := space.AppendFrames(nil, []uint64{0x10010})
	assert.Check(t, frames[0].File != nil && space.Version() == version,
		"%+v, version %d, before %d", frames, space.Version(), version)
	assert.Check(t, space.Stale(time.Now().Add(2*pace.Shortest)), "not tried again after a wait")
}

// The time that a process makes an update wait counts.
func TestSlowProcess(t *testing.T) {
	pace := Pace{Shortest: time.Nanosecond, Longest: time.Hour}
	space := NewAddressSpace(newFiles(t), pace)
	const took = 10 * time.Millisecond
	p := &fakeProcess{
		mappings: []procscan.Mapping{{Start: 0x1000, End: 0x2000}},
		onRead:   func() { time.Sleep(took) },
	}
	for _, err := range []error{nil, errors.New("no mappings")} {
		p.err = err
		now := time.Now()
		got := space.Update(now, p)
		assert.Assert(t, errors.Is(got, err), got)
		space.AppendFrames(nil, []uint64{0x5000})
		assert.Check(t, !space.Stale(now.Add(updateShare*took-1)), "stale too soon")
	}
}

// An invalidation during an update can be of what was already read.
func TestInvalidateDuringUpdate(t *testing.T) {
	space := NewAddressSpace(newFiles(t), pace)
	p := &fakeProcess{mappings: []procscan.Mapping{{Start: 0x1000, End: 0x2000}}}
	update(t, space, p)
	assert.Assert(t, !space.Stale(time.Now()), "stale")
	p.onRead = space.Invalidate
	update(t, space, p)
	assert.Check(t, space.Stale(time.Now()), "not stale")
	p.onRead = nil
	update(t, space, p)
	assert.Check(t, !space.Stale(time.Now()), "stale")
}

// Stacks are resolved while an update replaces the layout.
func TestConcurrentUse(t *testing.T) {
	files := newFiles(t)
	space := NewAddressSpace(files, pace)
	m := libraryMapping(t, library, 0x10000)
	update(t, space, &fakeProcess{mappings: []procscan.Mapping{m}})
	var readers sync.WaitGroup
	const stacks = 1000
	for range 4 {
		readers.Go(func() {
			var frames []Frame
			for range stacks {
				frames = space.AppendFrames(frames[:0], []uint64{m.Start + 1, 0x5000})
				if frames[0].File == nil || frames[0].Address != frames[0].Address&0xfff|0x1000 {
					t.Errorf("%+v", frames)
					return
				}
				space.Stale(time.Now())
				space.Invalidate()
			}
		})
	}
	for i := range uint64(100) {
		update(t, space, &fakeProcess{mappings: []procscan.Mapping{m, {Start: 0x100000, End: 0x100001 + i}}})
	}
	readers.Wait()
	assert.Check(t, files.Frames.File.Load() == 4*stacks && files.Frames.Unknown.Load() == 4*stacks,
		"%d and %d frames counted", files.Frames.File.Load(), files.Frames.Unknown.Load())
}

// The hot path of a sample that comes again. Where no user code can be, the user half of a stack
// ends, and nothing that a process writes there is a frame that looks like one of the kernel.
func TestAppendFramesBeyondUserSpace(t *testing.T) {
	const last, vsyscall = 1<<56 - 1, 0xffffffffff600400
	kernelHalf := []Frame{at(nil, 0xffffffff81000010)}
	for _, tt := range []struct {
		dst   []Frame
		stack []uint64
		want  []Frame
	}{
		{nil, []uint64{0x5000, 0x6001, 0xffffffff81000000, 0x7001}, []Frame{at(nil, 0x5000), at(nil, 0x6000)}},
		{nil, []uint64{0x5000, 1 << 63, 0x7001}, []Frame{at(nil, 0x5000)}},
		{nil, []uint64{0x5000, 1 << 56, 0x7001}, []Frame{at(nil, 0x5000)}}, // the byte before it is no user code either
		{nil, []uint64{0x5000, last, 0x7001}, []Frame{at(nil, 0x5000), at(nil, last-1), at(nil, 0x7000)}},
		{nil, []uint64{vsyscall, 0x7001, 0xffffffffff601000}, []Frame{at(nil, vsyscall), at(nil, 0x7000)}},
		{nil, []uint64{0xffffffffff5fffff, 0x7001}, nil},
		{kernelHalf, []uint64{0xffffffff81000000, 0x7001}, kernelHalf},
		{kernelHalf, []uint64{0x5001, 0xffffffffffffffff, 0}, append(slices.Clone(kernelHalf), at(nil, 0x5000))},
	} {
		files := newFiles(t)
		space := NewAddressSpace(files, pace)
		got := space.AppendFrames(tt.dst, tt.stack)
		assert.Check(t, slices.Equal(got, tt.want), "%#x: %+v, want %+v", tt.stack, got, tt.want)
		n := files.Frames.Unknown.Load()
		assert.Check(t, n == uint64(len(tt.want)-len(tt.dst)), "%#x: %d frames counted", tt.stack, n)
	}
}

func TestAppendFramesAllocatesNothing(t *testing.T) {
	space := NewAddressSpace(newFiles(t), pace)
	m := libraryMapping(t, library, 0x10000)
	update(t, space, &fakeProcess{mappings: []procscan.Mapping{m}})
	stack := []uint64{m.Start, m.Start + 1, 0x1234, m.Start + 2}
	frames := make([]Frame, 0, len(stack))
	n := testing.AllocsPerRun(100, func() { frames = space.AppendFrames(frames[:0], stack) })
	assert.Check(t, n == 0, "%v allocations", n)
}

func TestNewFilesRefusesZero(t *testing.T) {
	_, err := NewFiles("/proc", 0)
	assert.Check(t, err != nil, "no error")
}

// A file has the build ids that were read of it.
func TestBuildIDs(t *testing.T) {
	file := newImage(&elfsym.File{BuildID: []byte{0xab, 1}, GoBuildID: "a/b"}, "/bin/x").file
	assert.Check(t, file.BuildID == "ab01" && file.GoBuildID == "a/b" && file.Path == "/bin/x", "%+v", file)
}
