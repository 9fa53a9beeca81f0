package tlsdesc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/memread"
	"correlator/procscan"
)

// target is a real process that has loaded an agent library.
type target struct {
	*memread.Process
	lib      *elfsym.Variable
	bias     uint64
	mappings []procscan.Mapping
}

// inspect opens a process whose library is at the path, as we see it, and was loaded at bias.
func inspect(t testing.TB, pid int, library string, bias uint64) *target {
	t.Helper()
	testenv.NeedRoot(t)
	f, err := os.Open(library)
	assert.NilError(t, err)
	defer f.Close()
	info, err := f.Stat()
	assert.NilError(t, err)
	lib, err := elfsym.ParseLibrary(f, info.Size())
	assert.NilError(t, err)
	mem := memread.Open("/proc", pid)
	t.Cleanup(func() { mem.Close() })
	return &target{mem, &lib.Variable, bias, readMappings(t, pid)}
}

// readMappings returns the file mappings of a process, executable or not: an emulator maps the code
// of its program as data.
func readMappings(t testing.TB, pid int) (mappings []procscan.Mapping) {
	t.Helper()
	maps := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/maps", pid))
	for line := range strings.Lines(string(maps)) {
		var m procscan.Mapping
		var skip string
		if _, err := fmt.Sscanf(line, "%x-%x %s %s %s %s %s", &m.Start, &m.End, &skip, &skip, &skip, &skip,
			&m.Path); err == nil {
			mappings = append(mappings, m)
		}
	}
	return mappings
}

func (p *target) resolve(t testing.TB) Rule {
	t.Helper()
	rule, err := Resolve(p.lib, p.bias, p, p.mappings)
	assert.NilError(t, err)
	return rule
}

func (p *target) word(t *testing.T, addr uint64) uint64 {
	t.Helper()
	var b [8]byte
	_, err := p.Read(addr, b[:])
	assert.NilError(t, err)
	return binary.LittleEndian.Uint64(b[:])
}

// truth is what a thread reports about itself.
type truth struct {
	name          string
	threadPointer uint64
	variable      uint64 // 0 when it never touched it
	contents      uint64
}

// variables returns the addresses of the threads' variables by the rule.
func (p *target) variables(t *testing.T, rule Rule, threads []truth) (addrs []uint64, errs []error) {
	t.Helper()
	threadPointers := make([]uint64, len(threads))
	for i := range threads {
		threadPointers[i] = threads[i].threadPointer
	}
	addrs, errs = make([]uint64, len(threads)), make([]error, len(threads))
	assert.NilError(t, rule.VariableAddrs(p, threadPointers, addrs, errs))
	return addrs, errs
}

// check compares what the rule finds with what the threads report. Where a thread did not touch the
// variable, C libraries differ: either it has none, or one that is null.
func (p *target) check(t *testing.T, rule Rule, threads []truth) {
	t.Helper()
	onTouch := rule.Libc == Glibc && rule.Kind != Static
	for i, addr := range p.compare(t, rule, threads) {
		thread := threads[i]
		assert.Check(t, thread.variable != 0 || (addr == 0) == onTouch, "%s, never touched: %#x", thread.name, addr)
	}
}

// compare is check without what threads have that did not touch the variable. It returns where they have it.
func (p *target) compare(t *testing.T, rule Rule, threads []truth) []uint64 {
	t.Helper()
	out, errs := p.variables(t, rule, threads)
	for i, thread := range threads {
		switch {
		case errs[i] != nil:
			t.Errorf("%s: %v", thread.name, errs[i])
		case thread.variable != 0 && out[i] != thread.variable:
			t.Errorf("%s: %#x, not %#x", thread.name, out[i], thread.variable)
		case out[i] != 0 && p.word(t, out[i]) != thread.contents:
			t.Errorf("%s: holds %#x, not %#x", thread.name, p.word(t, out[i]), thread.contents)
		}
	}
	return out
}

// truths is what the threads of a demo process report.
func truths(threads []demo.Thread) (out []truth) {
	for _, thread := range threads {
		out = append(out, truth{thread.Name, thread.ThreadPointer, thread.Variable, thread.Slot})
	}
	return out
}

func inspectDemo(t testing.TB, p *demo.Process, loaded demo.Loaded) *target {
	t.Helper()
	return inspect(t, p.PID, p.HostPath(p.Library), loaded.Base)
}

// Every way in which a C library places the variable, in threads older and younger than the
// library, in such as have touched it and such as have not.
func TestFlavors(t *testing.T) {
	for flavor, want := range map[demo.Flavor]Rule{
		demo.Glibc:         {Kind: Static, Libc: Glibc},
		demo.GlibcDynamic:  {Kind: Dynamic, Libc: Glibc},
		demo.GlibcDTPMod:   {Kind: DTPMod, Libc: Glibc},
		demo.Musl:          {Kind: Dynamic, Libc: Musl},
		demo.MuslPreloaded: {Kind: Static, Libc: Musl},
	} {
		t.Run(flavor.String(), func(t *testing.T) {
			p := demo.Start(t, demo.Options{Flavor: flavor, Hold: true, Idle: 1, Untouched: 1, Manual: true})
			loaded := p.Load()
			p.StartThreads(1, "untouched")
			p.StartThreads(2, "idle")

			target := inspectDemo(t, p, loaded)
			rule := target.resolve(t)
			assert.Check(t, rule.Kind == want.Kind && rule.Libc == want.Libc,
				"%+v, not %v of %v", rule, want.Kind, want.Libc)
			target.check(t, rule, truths(p.Threads()))
			p.Begin(0) // touches it in the main thread
			target.check(t, rule, truths(p.Threads()))
			again := target.resolve(t)
			assert.Check(t, again == rule, "%+v, and then %+v", rule, again)
		})
	}
}

// What other linkers make of the library leads to the same place.
func TestLinkers(t *testing.T) {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, test := range []struct {
		form   string
		flavor demo.Flavor // what it is, with this library
		want   Kind
	}{
		{"tlsdesc-local", demo.Glibc, Static},
		{"tlsdesc-local", demo.GlibcDynamic, Dynamic},
		{"tlsdesc-lld", demo.Glibc, Static},
		{"tlsdesc-lld", demo.GlibcDynamic, Dynamic},
		{"tlsdesc-lld-local", demo.Glibc, Static},
		{"tlsdesc-lld-local", demo.GlibcDynamic, Dynamic},
		{"tlsdesc-nosections", demo.GlibcDynamic, Dynamic},
		{"dtpmod-local", demo.GlibcDTPMod, DTPMod},
		{"dtpmod-nosections", demo.GlibcDTPMod, DTPMod},
	} {
		t.Run(test.form+"/"+test.flavor.String(), func(t *testing.T) {
			p := demo.Start(t, demo.Options{
				Flavor: test.flavor, Library: demo.Fixture(t, machine+"-glibc-"+test.form), Idle: 2, Untouched: 1,
				Manual: true,
			})
			target := inspectDemo(t, p, p.Loaded())
			rule := target.resolve(t)
			assert.Check(t, rule.Kind == test.want, "%+v, not %v", rule, test.want)
			target.check(t, rule, truths(p.Threads()))
		})
	}
}

// A library that is loaded again gets the module id it had, and a thread that has not noticed still
// has the block of before. The generation shows it.
func TestLoadedAgain(t *testing.T) {
	p := demo.Start(t, demo.Options{Flavor: demo.GlibcDynamic, Manual: true})
	main := p.Begin(0).Thread
	before := inspectDemo(t, p, p.Loaded()).resolve(t)
	assert.Assert(t, !p.Unload(), "the library was not unloaded")
	var loaded demo.Loaded
	assert.NilError(t, p.Command(&loaded, "load", p.Library))

	target := inspectDemo(t, p, loaded)
	rule := target.resolve(t)
	assert.Assert(t, rule.Module == before.Module && rule.Generation > before.Generation,
		"%+v, and now %+v: no difference", before, rule)
	addr, err := before.VariableAddr(target, main.ThreadPointer)
	assert.Assert(t, addr == main.Variable && err == nil, "the old block is gone: %#x, %v", addr, err)
	target.check(t, rule, truths(p.Threads()))
	p.Begin(0)
	target.check(t, rule, truths(p.Threads()))
}

// Wrong thread pointers and threads that have ended do not affect the others.
func TestWrongThreadPointers(t *testing.T) {
	for _, flavor := range []demo.Flavor{demo.GlibcDynamic, demo.Musl} {
		t.Run(flavor.String(), func(t *testing.T) {
			p := demo.Start(t, demo.Options{Flavor: flavor, Idle: 1, Manual: true})
			target := inspectDemo(t, p, p.Loaded())
			rule := target.resolve(t)
			p.Begin(0)
			threads := p.Threads()
			p.StopThreads()

			threadPointers := []uint64{1, 1 << 32, 1 << 62, 1 << 63, ^uint64(0), ^uint64(7), 0,
				threads[1].ThreadPointer, threads[0].ThreadPointer}
			out, errs := make([]uint64, len(threadPointers)), make([]error, len(threadPointers))
			assert.NilError(t, rule.VariableAddrs(target, threadPointers, out, errs))
			for i, err := range errs[:6] {
				assert.Check(t, errors.Is(err, memread.ErrUnmapped) || errors.Is(err, ErrMalformed),
					"thread pointer %#x: %#x, %v", threadPointers[i], out[i], err)
			}
			assert.Check(t, out[8] == threads[0].Variable && errs[8] == nil,
				"main thread: %#x, not %#x, %v", out[8], threads[0].Variable, errs[8])
		})
	}
}

func TestProcessGone(t *testing.T) {
	p := demo.Start(t, demo.Options{Flavor: demo.GlibcDynamic})
	target := inspectDemo(t, p, p.Loaded())
	rule, threads := target.resolve(t), p.Threads()
	p.Kill()
	_, err := Resolve(target.lib, target.bias, target, target.mappings)
	assert.Check(t, errors.Is(err, memread.ErrGone), "resolving: %v", err)
	_, err = rule.VariableAddr(target, threads[0].ThreadPointer)
	assert.Check(t, errors.Is(err, memread.ErrGone), "looking up: %v", err)
}
