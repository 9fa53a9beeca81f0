package naming

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/names/symbols"
	"correlator/profile"
)

// fill keeps names of a process until its owner has so many bytes, and returns how many names came. They
// are those of 16 bytes of code each, from first on.
func (e *emitted) fill(p *process, first uint64, bytes int, now time.Time) (names uint64) {
	f := e.file(p, profile.FileID{1})
	for ; p.owner.bytes < bytes; names++ {
		start := first + names*16
		before := e.failures(failedMemory)
		e.put(p, f, start, &symbolizer.LiveName{
			Range: symbols.Range{Start: start, End: start + 16}, Name: strings.Repeat("n", 900),
		}, now)
		if e.failures(failedMemory) > before { // there is no room
			return names
		}
	}
	return names
}

// counted checks that what is counted is there.
func (e *emitted) counted() {
	e.t.Helper()
	byOwner, counted := make(map[*owner]int), make(map[*names]int)
	sum := 0
	for _, p := range e.processes {
		of := processBytes + fileBytes*len(p.files) + wantedBytes*(len(p.wanted)+len(p.taken))
		for _, f := range p.files {
			_, here := p.owner.names[f.names]
			assert.Check(e.t, here, "its owner has not the names of a file")
			if counted[f.names]++; counted[f.names] == 1 {
				for i := range f.ranges {
					of += f.ranges[i].bytes()
				}
			}
		}
		byOwner[p.owner] += of
		sum += of
	}
	for these, uses := range counted {
		assert.Check(e.t, these.uses == uses, "%d uses are counted of %d", these.uses, uses)
	}
	for _, o := range e.owners {
		assert.Check(e.t, o.bytes == byOwner[o], "%d bytes are counted of %d", o.bytes, byOwner[o])
	}
	assert.Check(e.t, sum == e.memory.bytes, "%d bytes are counted of %d", e.memory.bytes, sum)
	if n := int64(sum + e.kernel.owner.bytes); n != e.counters.Bytes.Load() {
		e.t.Errorf("%d bytes are shown of %d", e.counters.Bytes.Load(), n)
	}
}

// Names that were not used for the longest time make room for others, more than for one. Names in
// use do not: what is wanted besides them is not asked for, so that nothing is read again and
// again.
func TestLeastRecentlyUsedAreForgotten(t *testing.T) {
	e := silent(t)
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	now := e.opened.Add(time.Hour)
	p := e.process(&profile.Resource{Owner: "shop"})
	e.fill(p, 0, maxBytes/2, now.Add(-2*unusedTime))
	recent := uint64(1 << 40)
	e.fill(p, recent, maxBytes, now) // until half of the old ones had to go
	assert.Check(t, e.memory.bytes <= maxBytes && e.memory.bytes >= maxBytes*3/4, "%d bytes", e.memory.bytes)
	assert.Check(t, e.counters.Evicted.Load() != 0, "nothing was forgotten")
	assert.Check(t, p.files[profile.FileID{1}].find(recent) != nil, "what was used last was forgotten first")
	e.counted()

	// Now all are in use.
	for i := range p.files[profile.FileID{1}].ranges {
		p.files[profile.FileID{1}].ranges[i].used = e.seconds(now)
	}
	now = now.Add(2 * evictInterval)
	e.fill(p, 1<<41, 2*maxBytes, now)
	before := e.counters.Evicted.Load()
	for i := range uint64(10) {
		reason, mayCome := e.want(p, sampleOf(p.resource, profile.Frame{Address: 1 + i}), now)
		assert.Check(t, !mayCome && reason == unnamedMemory, "%v, %v while there is no room", reason, mayCome)
		now = now.Add(2 * evictInterval)
	}
	if n := e.counters.Evicted.Load() - before; n > 0 || e.failures(failedMemory) == 0 || len(p.wanted) > 0 {
		t.Errorf("%d names in use were forgotten; %d had no room; %d are wanted", n, e.failures(failedMemory), len(p.wanted))
	}
	assert.Check(t, e.memory.bytes <= maxBytes, "%d bytes", e.memory.bytes)
	now = now.Add(2 * unusedTime) // they are no longer
	_, mayCome := e.want(p, sampleOf(p.resource, profile.Frame{Address: 1}), now)
	assert.Check(t, mayCome, "there is no room made by names that are no longer used")
	free := maxBytes - e.memory.bytes
	assert.Check(t, free >= maxBytes/8-roomBytes, "%d bytes were made free: soon there has to be more", free)
	e.counted()
}

// An owner who has little gets room from the one who has most, until they have as much; then they
// keep what they have.
func TestMemoryIsShared(t *testing.T) {
	e := silent(t)
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	now := e.opened.Add(time.Hour)
	for i := range 64 {
		e.fill(e.process(&profile.Resource{Owner: "mallory", PID: i}), 0, (i+1)*maxBytes/32, now)
	}
	victim := e.process(&profile.Resource{Owner: "shop"})
	for range 60 {
		now = now.Add(evictInterval)
		e.fill(victim, uint64(victim.owner.bytes)<<8, maxBytes/4, now)
		for _, p := range e.processes { // all are in use
			for _, f := range p.files {
				for i := range f.ranges {
					f.ranges[i].used = e.seconds(now)
				}
			}
		}
	}
	if victim.owner.bytes < maxBytes/4 || e.memory.bytes > maxBytes {
		t.Errorf("the victim has %d bytes; all %d", victim.owner.bytes, e.memory.bytes)
	}
	others := e.owners["mallory"].bytes
	assert.Check(t, others >= maxBytes/2-maxBytes/8, "%d bytes are left of who had most", others)
	before := e.counters.Evicted.Load()
	for range 10 {
		now = now.Add(evictInterval)
		e.fill(e.process(&profile.Resource{Owner: "mallory"}), 0, e.owners["mallory"].bytes+maxBytes/8, now)
	}
	most := e.owners["mallory"].bytes
	if victim.owner.bytes < maxBytes/4 || e.counters.Evicted.Load() > before && most > maxBytes*3/4 {
		t.Errorf("the victim has %d bytes after who had most wants them back", victim.owner.bytes)
	}
	e.counted()
}

// What is wanted counts, and goes first where it alone takes the room.
func TestWantedTakesMemory(t *testing.T) {
	e := silent(t)
	now := e.opened.Add(time.Hour)
	e.Namer.mu.Lock()
	for i := 0; e.memory.bytes < maxBytes-roomBytes; i++ {
		p := e.process(&profile.Resource{Owner: "mallory", PID: i})
		for addr := range uint64(maxWanted) {
			e.want(p, sampleOf(p.resource, profile.Frame{Address: addr + 1}), now)
		}
	}
	e.counted()
	now = now.Add(2 * evictInterval)
	p := e.process(&profile.Resource{Owner: "shop"})
	_, mayCome := e.want(p, sampleOf(p.resource, profile.Frame{Address: 1}), now)
	assert.Check(t, mayCome, "there is no room for an owner who has nothing")
	e.counted()
	for _, p := range e.processes {
		p.used = now.Add(-idleTime)
	}
	e.Namer.mu.Unlock()
	e.forget(now)
	assert.Check(t, len(e.processes)+len(e.owners)+e.memory.bytes <= 0,
		"%d processes, %d owners and %d bytes are left", len(e.processes), len(e.owners), e.memory.bytes)
}

// What files without names, and processes that have ended, take is given back before others have no
// room.
func TestLittleThingsTakeMemory(t *testing.T) {
	e := silent(t)
	now := e.opened.Add(time.Hour)
	e.Namer.mu.Lock()
	p := e.process(&profile.Resource{Owner: "mallory"})
	p.used = now
	for i := range 1000 { // which fail one after the other
		id := profile.FileID{byte(i), byte(i >> 8)}
		e.store(p, id, nil, nil, failedNotMapped, now)
	}
	e.Namer.mu.Unlock()
	e.forget(now)
	assert.Check(t, len(p.files) == 1000, "%d files are left: that they failed is forgotten", len(p.files))
	e.forget(now.Add(pauses.Min + 1))
	assert.Check(t, len(p.files) == 0, "%d files are left", len(p.files))
	e.Namer.mu.Lock()
	for i := 0; e.memory.bytes < maxBytes; i++ { // short-lived ones
		e.process(&profile.Resource{Owner: "mallory", PID: i}).used = now
	}
	e.store(p, profile.FileID{1}, nil, nil, failedNotMapped, now)
	p.used = now.Add(crowdedIdleTime)
	e.Namer.mu.Unlock()
	e.forget(now.Add(crowdedIdleTime))
	assert.Check(t, len(e.processes) == 1 && p.owner.bytes == processBytes,
		"%d processes are left, with %d bytes", len(e.processes), p.owner.bytes)
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	e.counted()
}

// The names of the kernel have room of their own: those of processes do not take it, nor the other
// way round.
func TestMemoryOfTheKernel(t *testing.T) {
	e := silent(t)
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	now := e.opened.Add(time.Hour)
	old := e.fill(e.kernel, 0, maxKernelBytes/2, now)
	p := e.process(&profile.Resource{Owner: "shop"})
	e.fill(p, 0, 2*maxBytes, now.Add(2*unusedTime))
	n := uint64(len(e.kernel.files[profile.FileID{1}].ranges))
	assert.Check(t, n == old, "%d names of the kernel are left of %d", n, old)
	before := len(p.files[profile.FileID{1}].ranges)
	e.fill(e.kernel, 1<<40, 2*maxKernelBytes, now.Add(2*unusedTime))
	if n := len(p.files[profile.FileID{1}].ranges); n != before {
		t.Errorf("%d names of a process are left of %d", n, before)
	}
	bytes := e.kernel.owner.memory.bytes
	assert.Check(t, bytes <= maxKernelBytes && bytes >= maxKernelBytes/2, "%d bytes of the kernel's names", bytes)
	e.counted()
}

// answer answers what a process is asked for.
func (e *emitted) answer(p *process, version int64, names ...symbolizer.LiveName) {
	e.begin(p, time.Now())
	e.take(p)
	answer := &symbolizer.LiveNames{PerfMap: symbolizer.PerfMap{Size: version}}
	answer.Code.Names = names
	e.answered(p, answer, true, time.Now())
	e.end(p, time.Now(), 0, 0)
}

func rangeOf(start, end uint64, name string) symbolizer.LiveName {
	return symbolizer.LiveName{Range: symbols.Range{Start: start, End: end}, Name: name}
}

// A frame of a mangled symbol gets both names, whose memory counts, and keeps its stack-trace-id.
func TestDemangled(t *testing.T) {
	e := silent(t)
	r := &profile.Resource{}
	frame := profile.Frame{Address: 0x1010}
	e.Sampled(sampleOf(r, frame))
	symbol := rangeOf(0x1000, 0x1020, "_ZN3foo3barIiEEvi")
	symbol.Demangled = "foo::bar<int>"
	e.answer(e.processes[r], 1, symbol)
	got := e.Name(r, frame)
	assert.Check(t, *got.Function == profile.Function{Name: symbol.Demangled, SystemName: symbol.Name},
		"%+v", got.Function)
	assert.Check(t, profile.TraceID([]profile.Frame{got}) == profile.TraceID([]profile.Frame{frame}),
		"the stack has another id")
	n := e.processes[r].files[codeID].ranges[0].bytes()
	assert.Check(t, n == namedBytes+len(symbol.Name)+len(symbol.Demangled), "%d bytes", n)
	e.counted()
}

// Names of a perf map that has changed are used until they have been read again.
func TestPerfMapNamesStay(t *testing.T) {
	e := silent(t)
	r := &profile.Resource{}
	frame := profile.Frame{Address: 0x1010}
	s := sampleOf(r, frame)
	sampled := func() (held bool) {
		t.Helper()
		before := len(e.samples)
		e.Sampled(s)
		return len(e.samples) == before
	}
	named := func(want string) {
		t.Helper()
		got := e.Name(r, frame).Name()
		assert.Check(t, got == want, "%q, want %q", got, want)
	}
	assert.Assert(t, sampled(), "the first sample does not wait")
	e.answer(e.processes[r], 1, rangeOf(0x1000, 0x1020, "one"))
	named("one")
	assert.Check(t, !sampled() && len(e.processes[r].wanted) == 0, "it is wanted again while nothing has changed")
	e.answer(e.processes[r], 2) // it was only looked at
	named("one")
	assert.Check(t, !sampled() && len(e.processes[r].wanted) == 1,
		"it is not wanted again, or waits, after the perf map has changed")
	e.answer(e.processes[r], 3, rangeOf(0x1000, 0x1020, "two"))
	named("two")
	e.answer(e.processes[r], 4)
	assert.Check(t, !sampled(), "it waits after the perf map has changed")
	e.answer(e.processes[r], 5, rangeOf(0, 0x2000, "")) // while it was being written
	named("two")
	e.answer(e.processes[r], 0) // it was removed
	named("two")
	assert.Check(t, !sampled() && len(e.processes[r].wanted) == 0, "it is wanted again after the perf map was removed")
}

// Names of code that the kernel has compiled are used until they have been read again.
func TestNamesOfKernelCodeStay(t *testing.T) {
	e := silent(t)
	r := &profile.Resource{}
	frame := profile.Frame{Address: symbolizer.KernelSpace + 0x1010}
	e.Namer.mu.Lock()
	f := e.file(e.kernel, codeID)
	name := rangeOf(symbolizer.KernelSpace+0x1000, symbolizer.KernelSpace+0x2000, "bpf_prog_1f_f")
	e.put(e.kernel, f, frame.Address, &name, time.Now())
	e.aged = time.Now().Add(-2 * kernelAge)
	e.Namer.mu.Unlock()
	e.forget(time.Now())
	e.Sampled(sampleOf(r, frame))
	if got := e.Name(r, frame).Name(); got != name.Name || len(e.samples) != 1 {
		t.Errorf("%q, and %d samples were emitted", got, len(e.samples))
	}
	assert.Check(t, len(e.kernel.wanted) == 1, "it is not read again")
}

// Code in no file has the same file id in all processes, and in all programs of one: its names are
// those of one program alone.
func TestCodeOfProcesses(t *testing.T) {
	e := silent(t)
	frame := profile.Frame{Address: 0x1010}
	first := &profile.Resource{PID: 1}
	others := []*profile.Resource{{PID: 1}, {PID: 2}} // after an exec; another process
	for _, r := range append(slices.Clone(others), first) {
		e.Sampled(sampleOf(r, frame))
	}
	e.answer(e.processes[first], 1, rangeOf(0x1000, 0x1020, "secret"))
	if got := e.Name(first, frame); got.Name() != "secret" || got.FileID() != frame.FileID() {
		t.Errorf("%q, file id %v", got.Name(), got.FileID())
	}
	for _, r := range others {
		got := e.Name(r, frame).Name()
		assert.Check(t, got == "", "another program has %q", got)
	}
}

// After an exec, what is there for the pid is not the earlier program's.
func TestExec(t *testing.T) {
	cmd, again := startExec(t)
	r := resourceOf(t, cmd, "shop")
	r.Image = imageOf(t, r)
	path := fmt.Sprintf("/tmp/perf-%d.map", r.PID)
	testenv.WriteFile(t, path, "1000 20 one\n")
	t.Cleanup(func() { removeFile(t, path) })
	e := open(t)
	frames := []profile.Frame{{Address: 0x1010}, {Address: 0x2010}}
	got := e.names(r, frames[0])
	assert.Assert(t, got[0] == "one", "%q", got)
	again()
	later := *r
	later.Image, later.Since = imageOf(t, r), time.Now().Add(time.Hour)
	got = e.names(&later, frames[0])
	assert.Check(t, got[0] == "" && e.failures(failedPerfMap) != 0, "the next program has %q", got)
	testenv.WriteFile(t, path, "1000 20 one\n2000 20 other\n")
	e.Sampled(sampleOf(r, frames[1]))
	testenv.Poll(t, deadline, "the program being known to have ended", func() bool {
		e.Namer.mu.Lock()
		defer e.Namer.mu.Unlock()
		return e.processes[r].gone
	})
	if got := e.Name(r, frames[1]).Name(); got != "" || e.failures(failedGone) != 1 {
		t.Errorf("%q of the next program, %d times gone", got, e.failures(failedGone))
	}
}

// What is of processes without samples is forgotten, each time that there were some; then the namer is idle.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t)
		frame := profile.NewJVMFrame(profile.NewFunction("Shop.sell", ""), 7)
		for range 3 {
			e.Sampled(sampleOf(&profile.Resource{Owner: "shop"}, frame))
			assert.Check(t, !e.isIdle())
			time.Sleep(2 * idleTime)
			synctest.Wait()
			assert.Check(t, e.isIdle(), "%d processes, %d owners", len(e.processes), len(e.owners))
		}
	})
}
