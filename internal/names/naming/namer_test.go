package naming

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
	"correlator/internal/names/symbolizer"
	"correlator/internal/names/symbols"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

func TestMain(m *testing.M) {
	fusefs.Main()
	worker.Main(symbolizer.LiveKind)
	os.Exit(testenv.Main(m))
}

// deadline is far more than anything here takes on a machine that is busy with other tests.
const deadline = 60 * time.Second

// emitted is a Namer, and what a Consumer of it emits.
type emitted struct {
	*Namer
	t        *testing.T
	consumer *Consumer

	mu      sync.Mutex
	samples []*profile.Sample
}

func open(t *testing.T) *emitted {
	t.Helper()
	e := &emitted{t: t}
	var err error
	e.Namer, err = Open("/proc")
	assert.NilError(t, err)
	t.Cleanup(e.Close)
	e.consumer = e.NewConsumer(func(s *profile.Sample) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.samples = append(e.samples, s)
	})
	return e
}

func (e *emitted) Sampled(s *profile.Sample) { e.consumer.Sampled(s) }

func sampleOf(r *profile.Resource, frames ...profile.Frame) *profile.Sample {
	return &profile.Sample{Resource: r, Stack: &profile.Stack{ID: profile.TraceID(frames), Frames: frames}, Count: 1}
}

// wait returns the last of n samples.
func (e *emitted) wait(n int) (s *profile.Sample) {
	e.t.Helper()
	testenv.Poll(e.t, deadline, fmt.Sprint(n, " samples"), func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.samples) >= n {
			s = e.samples[n-1]
		}
		return s != nil
	})
	return s
}

// names samples frames until all that can be known of them is, and returns their names. Their ids stay.
func (e *emitted) names(r *profile.Resource, frames ...profile.Frame) (names []string) {
	e.t.Helper()
	s := sampleOf(r, frames...)
	testenv.Poll(e.t, deadline, "names", func() bool {
		e.mu.Lock()
		n := len(e.samples)
		e.mu.Unlock()
		e.Sampled(s)
		e.wait(n + 1)
		e.Namer.mu.Lock()
		defer e.Namer.mu.Unlock()
		why, mayCome := e.want(e.processes[r], s, time.Now())
		return !mayCome && (why == numReasons || why == unnamedFailed)
	})
	named := slices.Clone(frames)
	for i, f := range frames {
		named[i] = e.Name(r, f)
		names = append(names, named[i].Name())
		if named[i].Kind() != f.Kind() {
			e.t.Errorf("a frame of kind %v becomes one of kind %v", f.Kind(), named[i].Kind())
		}
	}
	assert.Check(e.t, profile.TraceID(named) == s.Stack.ID, "the stack-trace-id is another one with names")
	return names
}

func (e *emitted) unnamed(why reason) uint64 { return e.consumer.unnamed[why].Load() }

func (e *emitted) failures(why failure) uint64 { return e.counters.failures[why].Load() }

// start starts a program, and returns it with a frame in one of its functions.
func start(t *testing.T, content []byte, function, owner string) (*profile.Resource, profile.Frame, *exec.Cmd) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	testenv.WriteProgram(t, path, content, 0o700)
	cmd := exec.Command(path)
	_, stdout := testenv.Start(t, cmd)
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // it is in place
		t.Fatal(err)
	}
	parsed, err := elfsym.ParseFile(bytes.NewReader(content), int64(len(content)))
	assert.NilError(t, err)
	file := &profile.File{ID: parsed.HTLHash, Kind: profile.NativeFrame, Path: path}
	return resourceOf(t, cmd, owner), profile.Frame{File: file, Address: testenv.Symbols(t, path)[function]}, cmd
}

func resourceOf(t *testing.T, cmd *exec.Cmd, owner string) *profile.Resource {
	t.Helper()
	stat := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	id := procscan.ProcessID{PID: cmd.Process.Pid}
	_, err := fmt.Sscan(fields[22-3], &id.StartTime)
	assert.NilError(t, err)
	return &profile.Resource{PID: id.PID, Process: id, Owner: owner}
}

// A copy of a program with other symbols has the same file id. Its names are used for its own process
// only, whoever comes first.
func TestNamesOfAForgery(t *testing.T) {
	content := testenv.CompileNamed(t)
	forged := bytes.Replace(content, []byte("\x00checkout\x00"), []byte("\x00launder_\x00"), 1)
	honest, one, _ := start(t, content, "checkout", "shop")
	forger, other, _ := start(t, forged, "launder_", "mallory")
	same, _, _ := start(t, forged, "launder_", "shop") // of the same owner
	assert.Assert(t, one.File.ID == other.File.ID && one.Address == other.Address, "%+v, %+v", one, other)
	for _, order := range [][]*profile.Resource{{honest, forger, same}, {forger, same, honest}} {
		e := open(t)
		for _, r := range order {
			want := "launder_"
			if r == honest {
				want = "checkout"
			}
			got := e.names(r, one)
			assert.Check(t, got[0] == want, "%q, want %q", got[0], want)
		}
	}
}

// Processes of one owner that map the very same file share its names, each after its first request: what one learns
// then is known to the other, and stays when the one has ended.
func TestNamesOfOneFile(t *testing.T) {
	first, checkout, cmd := start(t, testenv.CompileNamed(t), "checkout", "shop")
	again := exec.Command(cmd.Path)
	_, stdout := testenv.Start(t, again)
	_, err := stdout.Read(make([]byte, 1)) // it is in place
	assert.NilError(t, err)
	second, other := resourceOf(t, again, "shop"), resourceOf(t, again, "other")
	e := open(t)
	for _, r := range []*profile.Resource{first, second, other} {
		got := e.names(r, checkout)
		assert.Assert(t, got[0] == "checkout", "%q of %v", got, r.Owner)
	}
	id := checkout.File.ID
	of := func(r *profile.Resource) *names {
		e.Namer.mu.Lock()
		defer e.Namer.mu.Unlock()
		e.counted()
		return e.processes[r].files[id].names
	}
	shared, apart := of(first) == of(second), of(other) != of(first)
	assert.Check(t, shared && apart, "shared: %v, another owner has its own: %v", shared, apart)

	main := profile.Frame{File: checkout.File, Address: testenv.Symbols(t, cmd.Path)["main"]}
	got := e.names(first, main)
	assert.Check(t, got[0] == "main", got)
	before := e.counters.Requests.Load()
	e.Namer.mu.Lock()
	e.processes[first].used = time.Now().Add(-2 * idleTime)
	e.Namer.mu.Unlock()
	e.forget(time.Now())
	assert.Check(t, e.processes[first] == nil, "it is not forgotten")
	got = e.names(second, main)
	assert.Check(t, got[0] == "main" && e.counters.Requests.Load() == before, "%v, after %d requests more", got,
		e.counters.Requests.Load()-before)
}

// Names that come from another file, or with a failure, are not those of the processes that had the same before. What
// one learns, another one does not ask for when its turn comes.
func TestNamesOfOneView(t *testing.T) {
	e := silent(t)
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	now := time.Now()
	file := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame}
	want := func(p *process, addr uint64) {
		p.next, p.owner.turn.next = time.Time{}, time.Time{}
		e.want(p, sampleOf(p.resource, profile.Frame{File: file, Address: addr}), now)
	}
	answer := func(p *process, addr uint64, answer symbolizer.LiveFile) {
		want(p, addr)
		e.begin(p, now)
		e.take(p)
		answer.Names = append(answer.Names, rangeOf(addr, addr+1, fmt.Sprint(p.resource.PID)))
		e.answered(p, &symbolizer.LiveNames{Files: map[profile.FileID]symbolizer.LiveFile{file.ID: answer}}, false, now)
		e.end(p, now, 0, 0)
	}
	name := func(p *process, addr uint64) string {
		if found := p.files[file.ID].find(addr); found != nil {
			return found.function.Name
		}
		return ""
	}
	one, two := e.process(&profile.Resource{Owner: "shop", PID: 1}), e.process(&profile.Resource{Owner: "shop", PID: 2})
	view := profile.View{1}
	answer(one, 10, symbolizer.LiveFile{View: view})
	answer(two, 20, symbolizer.LiveFile{View: view})
	assert.Check(t, name(one, 20) == "2" && name(two, 10) == "1", "%q, %q", name(one, 20), name(two, 10))
	want(one, 30)
	answer(two, 30, symbolizer.LiveFile{View: view})
	before := e.counters.Requests.Load()
	e.Namer.mu.Unlock()
	_, satisfied := e.schedule(now)
	e.Namer.mu.Lock()
	_, waits := one.owner.waiting[one]
	assert.Check(t, satisfied && !waits && e.counters.Requests.Load() == before, "%v, waiting: %v", satisfied, waits)

	answer(two, 40, symbolizer.LiveFile{Failure: symbolizer.Unreadable})
	assert.Check(t, name(two, 40) == "2" && name(one, 40) == "" && name(one, 20) == "2", "%q, %q, %q", name(two, 40),
		name(one, 40), name(one, 20))
	answer(one, 50, symbolizer.LiveFile{View: profile.View{2}})
	assert.Check(t, name(one, 50) == "1" && name(two, 50) == "" && name(one, 10) == "", "%q, %q, %q", name(one, 50),
		name(two, 50), name(one, 10))
	e.counted()
}

// mapped is a process that has mapped one file, which it sees so.
type mapped struct{ view profile.View }

func (mapped) ExecutableMappings() ([]procscan.Mapping, error) {
	return []procscan.Mapping{{Start: 0x101000, End: 0x102000, Offset: 0x1000, Ino: 1, Path: "/program"}}, nil
}

func (m mapped) Files([]procscan.Mapping) []profile.FileResult {
	file := &elfsym.File{Segments: []elfsym.Segment{{Vaddr: 0x1000, Off: 0x1000, Filesz: 0x1000}}, HTLHash: [16]byte{1}}
	return []profile.FileResult{{File: file, View: m.view}}
}

// A process of which it is known how it sees a file has the names that others of its owner have read who see it so, and
// no others.
func TestNamesOfKnownView(t *testing.T) {
	e := silent(t)
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	now, read := time.Now(), profile.View{1}
	sampled := func(pid int, owner string, view profile.View) (p *process, isWanted bool) {
		files, err := profile.NewFiles("/proc", 1)
		assert.NilError(t, err)
		space := profile.NewAddressSpace(files, profile.Pace{})
		assert.NilError(t, space.Update(now, mapped{view}))
		p = e.process(&profile.Resource{PID: pid, Owner: owner})
		p.space = space
		_, isWanted = e.want(p, sampleOf(p.resource, space.AppendFrames(nil, []uint64{0x101010})...), now)
		assert.Check(t, len(p.wanted) == 1 == isWanted, "%v", p.wanted)
		return p, isWanted
	}
	first, _ := sampled(1, "shop", read)
	e.begin(first, now)
	e.take(first)
	found := symbolizer.LiveFile{View: read, Names: []symbolizer.LiveName{rangeOf(0x1000, 0x1100, "checkout")}}
	e.answered(first, &symbolizer.LiveNames{Files: map[profile.FileID]symbolizer.LiveFile{{1}: found}}, false, now)
	for pid, c := range []struct {
		owner string
		view  profile.View
		known bool
	}{{"shop", read, true}, {"shop", profile.View{2}, false}, {"shop", profile.View{}, false}, {"other", read, false}} {
		if _, isWanted := sampled(2+pid, c.owner, c.view); isWanted == c.known {
			t.Errorf("%+v: wanted: %v", c, isWanted)
		}
	}
	e.counted()
}

// A word of a stack that was no code when the sample was taken is not asked for, nor is a perf map looked at for it.
func TestWordsThatAreNoCode(t *testing.T) {
	e := silent(t)
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	read := time.Now()
	files, err := profile.NewFiles("/proc", 1)
	assert.NilError(t, err)
	space := profile.NewAddressSpace(files, profile.Pace{})
	assert.NilError(t, space.Update(read, mapped{}))
	for after, want := range map[time.Duration]int{-1: 1, 0: 2} { // the code, and what may have been mapped since
		p := e.process(&profile.Resource{PID: want, Owner: "shop"})
		p.space = space
		p.perfMapRead = read.Add(-time.Hour)
		s := sampleOf(p.resource, space.AppendFrames(nil, []uint64{0x101010, 0x2ad43d})...)
		s.Last = read.Add(after)
		reason, mayCome := e.want(p, s, read)
		assert.Check(t, reason == numReasons && mayCome && len(p.wanted) == want && p.look == (want == 2),
			"%v: %v, %v, perf map: %v", after, p.wanted, reason, p.look)
		e.dropWanted(p)
	}
	e.counted()
}

// Frames of all kinds have names, or none for good, or could not be read: a sample is not held for
// those again.
func TestKinds(t *testing.T) {
	testenv.NeedRoot(t) // who is shown symbols of the kernel
	r, checkout, _ := start(t, testenv.CompileNamed(t), "checkout", "shop")
	e := open(t)
	vmlinux := &profile.File{ID: profile.FileID{1}, Kind: profile.KernelFrame, Path: symbolizer.VMLinuxPath}
	none := &profile.File{ID: profile.FileID{2}, Kind: profile.NativeFrame, Path: "/none"}
	frames := []profile.Frame{
		{File: vmlinux, Address: 64}, checkout, {Address: 0x10}, {File: none, Address: 5},
		profile.NewJVMFrame(profile.NewFunction("a.B.c", "B.java"), 7), {Address: math.MaxUint64 - 1},
		profile.NewCutFrame(), {Address: 0xffffffffff600123}, // of the vsyscall page
	}
	got := e.names(r, frames...)
	kernel := got[0]
	want := []string{kernel, "checkout", "", "", "a.B.c", "", profile.CutName, ""}
	assert.Check(t, slices.Equal(got, want) && kernel != "", "%q, want %q with a name of the kernel", got, want)
	e.mu.Lock()
	before := len(e.samples)
	e.mu.Unlock()
	requests := e.counters.Requests.Load()
	for range 10 {
		e.Sampled(sampleOf(r, frames...))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.samples) != before+10 || e.counters.Requests.Load() != requests {
		t.Errorf("%d samples of 10 were emitted at once, and %d requests made", len(e.samples)-before,
			e.counters.Requests.Load()-requests)
	}
	// The file that the process does not map.
	n, times := e.unnamed(unnamedFailed), e.failures(failedNotMapped)
	assert.Check(t, n >= 10 && times != 0, "%d samples because of %d failures", n, times)
}

// The perf map is read again when it has changed, and only then.
func TestPerfMapChanges(t *testing.T) {
	r, _, _ := start(t, testenv.CompileNamed(t), "checkout", "shop")
	e := open(t)
	path := fmt.Sprintf("/tmp/perf-%d.map", r.PID)
	t.Cleanup(func() { os.Remove(path) })
	frames := []profile.Frame{{Address: 0x1010}, {Address: 0x2010}}
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{"", ""}},
		{"1000 20 one\n", []string{"one", ""}},
		{"1000 20 one\n2000 20 two\n1000 20 again\n", []string{"again", "two"}},
	} {
		if c.text != "" {
			testenv.WriteFile(t, path, c.text)
		}
		testenv.Poll(t, deadline, fmt.Sprintf("names %q", c.want), func() bool {
			e.Namer.mu.Lock()
			if p := e.processes[r]; p != nil {
				p.perfMapRead = time.Now().Add(-noMapInterval - 1) // it is time to look at it
			}
			e.Namer.mu.Unlock()
			return slices.Equal(e.names(r, frames...), c.want)
		})
	}
	// It is the same now, and nothing is forgotten.
	e.Namer.mu.Lock()
	e.processes[r].perfMapRead = time.Now().Add(-noMapInterval - 1)
	e.Namer.mu.Unlock()
	before := e.counters.Requests.Load()
	e.Sampled(sampleOf(r, frames...))
	testenv.Poll(t, deadline, "the perf map being looked at", func() bool {
		return e.counters.Requests.Load() > before
	})
	got := e.names(r, frames...)
	assert.Check(t, got[1] == "two", "%q", got)
}

// A process whose files hang has no names, and its samples are emitted all the same; those of others
// have theirs. It is not asked again soon.
func TestHanging(t *testing.T) {
	fs := fusefs.Mount(t, fusefs.UserNamespace)
	fs.Overlay("/tmp", fs.Empty())
	hanging := startBy(t, fs.By)
	fs.Hang(fusefs.Lookup, fmt.Sprintf("/perf-%d.map", hanging.PID))
	honest, checkout, _ := start(t, testenv.CompileNamed(t), "checkout", "shop")
	e := open(t)
	e.Sampled(sampleOf(hanging, profile.Frame{Address: 0x1010}))
	got := e.names(honest, checkout)
	assert.Check(t, got[0] == "checkout", "%q", got)
	testenv.Poll(t, deadline, "the sample of the process that hangs", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.ContainsFunc(e.samples, func(s *profile.Sample) bool { return s.Resource == hanging })
	})
	testenv.Poll(t, deadline, "a killed worker", func() bool {
		return e.counters.Workers.TimedOut.Load() > 0 && e.failures(failedTimeout) > 0
	})
	testenv.Poll(t, deadline, "the process being left out", func() bool {
		e.Namer.mu.Lock()
		defer e.Namer.mu.Unlock()
		return e.processes[hanging].next.After(time.Now())
	})
	before, requests := e.unnamed(unnamedTimeout), e.counters.Requests.Load()
	e.Sampled(sampleOf(hanging, profile.Frame{Address: 0x2010}))
	if e.unnamed(unnamedTimeout) != before+1 || e.counters.Requests.Load() != requests {
		t.Errorf("%d samples of a process that is left out, and %d requests", e.unnamed(unnamedTimeout)-before,
			e.counters.Requests.Load()-requests)
	}
}

// startBy starts a program by a command.
func startBy(t *testing.T, by []string) *profile.Resource {
	t.Helper()
	cmd := exec.Command(by[0], append(slices.Clone(by[1:]), "sh", "-c", "echo x; read line")...)
	_, stdout := testenv.Start(t, cmd)
	_, err := stdout.Read(make([]byte, 1))
	assert.NilError(t, err)
	return resourceOf(t, cmd, "mallory")
}

// A process that has ended has no names.
func TestGone(t *testing.T) {
	r, checkout, cmd := start(t, testenv.CompileNamed(t), "checkout", "shop")
	assert.NilError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	e := open(t)
	e.Sampled(sampleOf(r, checkout))
	testenv.Poll(t, deadline, "the process being known to have ended", func() bool {
		e.Namer.mu.Lock()
		defer e.Namer.mu.Unlock()
		return e.processes[r].gone
	})
	e.wait(1)
	before := e.unnamed(unnamedGone)
	e.Sampled(sampleOf(r, checkout))
	if n := e.unnamed(unnamedGone) - before; n != 1 || len(e.samples) != 2 {
		t.Errorf("%d samples of a process that has ended, %d in all", n, len(e.samples))
	}
}

// silent returns a Namer that asks for nothing.
func silent(t *testing.T) *emitted {
	t.Helper()
	e := open(t)
	e.stop()
	e.running.Wait()
	return e
}

// So many samples are held and no more; with the end they are emitted, as are those that come later.
func TestHeld(t *testing.T) {
	e := silent(t)
	taken := uint64(0)
	for i := range maxHeld/maxHeldOfOwner + 1 {
		r := &profile.Resource{Owner: fmt.Sprint(i)}
		for range maxHeldOfOwner + 1 {
			taken++
			e.Sampled(sampleOf(r, profile.Frame{Address: taken}))
		}
		assert.Check(t, e.owners[r.Owner].held <= maxHeldOfOwner,
			"%d samples are held of an owner", e.owners[r.Owner].held)
	}
	if n := e.unnamed(unnamedFull); n != taken-maxHeld || e.held != maxHeld {
		t.Errorf("%d samples were not held, %d are", n, e.held)
	}
	e.consumer.Close(testenv.Ended())
	e.Sampled(sampleOf(&profile.Resource{}, profile.Frame{Address: 1}))
	if uint64(len(e.samples)) != taken+1 || e.unnamed(unnamedShutdown) != maxHeld+1 {
		t.Errorf("%d samples of %d, %d at the end", len(e.samples), taken+1, e.unnamed(unnamedShutdown))
	}
}

// A Namer that ends emits what it still holds, and from then on holds nothing.
func TestNamerEnds(t *testing.T) {
	e := silent(t)
	s := sampleOf(&profile.Resource{}, profile.Frame{Address: 1})
	s.Count = 3 // it stands for so many
	e.Sampled(s)
	assert.Check(t, len(e.samples) == 0 && e.held == 1 && e.consumer.held == 1)
	e.Close()
	e.Sampled(s)
	assert.Check(t, len(e.samples) == 2 && e.held == 0 && e.consumer.held == 0 && e.unnamed(unnamedShutdown) == 6,
		"%d samples of 2, %d at the end, %d are held", len(e.samples), e.unnamed(unnamedShutdown), e.held)
}

// A sample waits for names so long, and no longer.
func TestLate(t *testing.T) {
	e := silent(t)
	r := &profile.Resource{}
	began := time.Now()
	e.Sampled(sampleOf(r, profile.Frame{Address: 1}))
	e.Namer.mu.Lock()
	defer e.Namer.mu.Unlock()
	p := e.processes[r]
	until := p.held[0].until
	assert.Check(t, !until.Before(began.Add(maxHold)) && !until.After(time.Now().Add(maxHold)))
	e.settle(p, until.Add(-1))
	assert.Check(t, len(p.held) == 1 && e.held == 1, "it does not wait so long")
	settled := e.settle(p, until)
	assert.Check(t, len(settled[unnamedLate]) == 1 && len(p.held) == 0 && e.held == 0,
		"%v, %d are held", settled, e.held)
}

// Each consumer gets its own samples, each once, whichever of them ends first; what is read for one is known
// to all.
func TestConsumers(t *testing.T) {
	e := silent(t)
	r, frame := &profile.Resource{}, profile.Frame{Address: 0x1010}
	var emitted [3]int
	var consumers [3]*Consumer
	for i := range consumers {
		consumers[i] = e.NewConsumer(func(*profile.Sample) { emitted[i]++ })
		consumers[i].Sampled(sampleOf(r, frame))
	}
	consumers[2].Close(testenv.Ended())
	if emitted != [3]int{0, 0, 1} || consumers[2].unnamed[unnamedShutdown].Load() != 1 || e.held != 2 {
		t.Errorf("%v when one ends, %d are held", emitted, e.held)
	}
	closed := make(chan struct{})
	go func() {
		consumers[1].Close(t.Context()) // waits for the names of what it has been given
		close(closed)
	}()
	testenv.Poll(t, deadline, "a consumer that ends", func() bool {
		e.Namer.mu.Lock()
		defer e.Namer.mu.Unlock()
		return consumers[1].closed
	})
	e.Namer.mu.Lock()
	e.answer(e.processes[r], 1, rangeOf(0x1000, 0x1020, "run"))
	e.Namer.mu.Unlock()
	e.settleAll(func(*process) bool { return true })
	<-closed
	assert.Check(t, consumers[1].unnamed[unnamedShutdown].Load() == 0, "a sample was emitted before its names came")
	for _, c := range consumers[:2] {
		c.Sampled(sampleOf(r, frame))
		c.Close(t.Context()) // holds nothing that it could wait for
	}
	if emitted != [3]int{2, 2, 1} || e.held != 0 || e.owners[""].held != 0 {
		t.Errorf("%v with names, %d are held", emitted, e.held)
	}
}

// So many addresses of a process, and of the kernel, are asked for and no more.
func TestWanted(t *testing.T) {
	e := silent(t)
	r := &profile.Resource{}
	for _, test := range []struct {
		first uint64
		most  int
	}{{1, maxWanted}, {symbolizer.KernelSpace, maxKernelWanted}} {
		for i := range uint64(test.most) {
			e.Sampled(sampleOf(r, profile.Frame{Address: test.first + i}))
		}
		of := e.of(e.processes[r], profile.Frame{Address: test.first})
		assert.Check(t, len(of.wanted) == test.most, "%d addresses are wanted", len(of.wanted))
		e.held, e.processes[r].owner.held = 0, 0 // for others
		before := e.unnamed(unnamedFull)
		e.Sampled(sampleOf(r, profile.Frame{Address: test.first + uint64(test.most)}))
		e.Sampled(sampleOf(r, profile.Frame{Address: test.first})) // is wanted already
		n := e.unnamed(unnamedFull) - before
		assert.Check(t, n == 1, "%d samples with too many addresses", n)
	}
}

// What was added first stays, whatever ranges are said to be; nothing overlaps.
func TestRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var r ranges
		want := make(map[uint64]string)
		for i := range 30 {
			addr := random.Uint64N(200)
			around := symbols.Range{Start: random.Uint64N(200), End: random.Uint64N(200)}
			name := fmt.Sprint(i)
			_, known := want[addr]
			bytes := r.put(addr, named{Range: around, function: profile.NewFunction(name, "")})
			fits := !known && around.Start <= addr && addr < around.End
			assert.Assert(t, fits == (bytes > 0), "%d bytes for %d in %v, known: %v", bytes, addr, around, known)
			if !fits {
				continue
			}
			from, to := addr, addr
			for ; from > around.Start && want[from-1] == ""; from-- {
				continue
			}
			for ; to < around.End && want[to] == ""; to++ {
				continue
			}
			for a := from; a < to; a++ {
				want[a] = name
			}
		}
		for addr := range uint64(220) {
			known := r.find(addr)
			if name, ok := want[addr]; ok != (known != nil) || ok && known.function.Name != name {
				t.Fatalf("%d is %v, want %q", addr, known, name)
			}
		}
	}
}

// Names of a later version replace those of an earlier one, but none replaces a name.
func TestRangesOfVersions(t *testing.T) {
	var r ranges
	text := func() (text string) {
		for _, n := range r {
			text += fmt.Sprintf("%d-%d:", n.Start, n.End)
			if n.function != nil {
				text += n.function.Name
			}
			text += fmt.Sprint("/", n.version, " ")
		}
		return text
	}
	bytes := func() (sum int) {
		for i := range r {
			sum += r[i].bytes()
		}
		return sum
	}
	for _, step := range []struct {
		start, end uint64
		name       string
		version    uint32
		want       string
	}{
		{0, 100, "", 1, "0-100:/1 "},
		{10, 20, "a", 2, "10-20:a/2 "}, // what has no name is unknown now, where that was read
		{20, 30, "b", 2, "10-20:a/2 20-30:b/2 "},
		{40, 50, "c", 2, "10-20:a/2 20-30:b/2 40-50:c/2 "},
		{25, 100, "", 3, "10-20:a/2 20-30:b/3 40-50:c/2 "}, // it was there before, and is not now
		{60, 100, "", 3, "10-20:a/2 20-30:b/3 40-50:c/2 60-100:/3 "},
		{30, 100, "", 3, "10-20:a/2 20-30:b/3 30-40:/3 40-50:c/2 60-100:/3 "},
		{45, 70, "d", 4, "10-20:a/2 20-30:b/3 30-40:/3 45-70:d/4 "},
		{5, 15, "e", 4, "5-15:e/4 20-30:b/3 30-40:/3 45-70:d/4 "},
		{12, 40, "f", 4, "5-15:e/4 20-30:b/3 30-40:/3 45-70:d/4 "}, // is known
	} {
		before := bytes()
		var n named
		n.Range, n.version = symbols.Range{Start: step.start, End: step.end}, step.version
		if step.name != "" {
			n.function = profile.NewFunction(step.name, "")
		}
		if grown := r.put(step.start, n); grown != bytes()-before {
			t.Errorf("%+v: grows by %d, is said to by %d", step, bytes()-before, grown)
		}
		if text() != step.want {
			t.Fatalf("%+v: %q", step, text())
		}
	}
}
