package report

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/host/kallsyms"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/names/symbols"
	"correlator/internal/out/record"
	"correlator/procscan"
	"correlator/profile"
)

// open opens a running process as a recorder does.
func openProcess(t *testing.T, pid int) *record.Process {
	t.Helper()
	stat := testenv.ReadFile(t, fmt.Sprintf("/proc/%d/stat", pid))
	var start uint64
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if _, err := fmt.Sscan(fields[22-3], &start); err != nil {
		t.Fatal(err)
	}
	p := &record.Process{PID: pid, StartTime: start}
	var err error
	p.Handle, err = procscan.OpenProcess("/proc", p.Identity())
	assert.NilError(t, err)
	t.Cleanup(func() { p.Handle.Close() })
	return p
}

// newNamer returns a frameNamer that is closed when the test ends.
func newNamer(t *testing.T) *frameNamer {
	t.Helper()
	n, err := newFrameNamer("/proc")
	assert.NilError(t, err)
	t.Cleanup(n.close)
	return n
}

// function is a frame in a function of a mapped file.
func function(t *testing.T, p *record.Process, file, name string) profile.Frame {
	t.Helper()
	mappings, err := p.Handle.ExecutableMappings()
	assert.NilError(t, err)
	i := slices.IndexFunc(mappings, func(m procscan.Mapping) bool {
		return strings.Contains(filepath.Base(m.Path),
			file)
	})
	assert.Assert(t, i >= 0, "no %s in %v", file, mappings)
	opened, err := p.Handle.OpenMapped(mappings[i])
	assert.NilError(t, err)
	defer opened.Close()
	id, err := elfsym.Identify(opened)
	assert.NilError(t, err)
	parsed, err := elfsym.ParseFile(opened, id.Size)
	assert.NilError(t, err)
	f, err := elf.NewFile(opened)
	assert.NilError(t, err)
	static, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, s := range append(static, dynamic...) {
		if s.Name == name && s.Section != elf.SHN_UNDEF {
			return profile.Frame{
				File:    &profile.File{ID: parsed.HTLHash, Kind: profile.NativeFrame, Path: mappings[i].Path},
				Address: s.Value,
			}
		}
	}
	t.Fatalf("no %s in %s", name, mappings[i].Path)
	return profile.Frame{}
}

// sampleOf is a sample with a stack.
func sampleOf(frames []profile.Frame) *profile.Sample {
	return &profile.Sample{Stack: &profile.Stack{Frames: frames}}
}

// recording is one of processes that were sampled once each.
func recording(stacks map[*record.Process][]profile.Frame) *record.Recording {
	r := &record.Recording{SamplesPerSecond: 97, Samples: make(map[record.Key]uint64),
		Stacks: make(map[profile.StackTraceID][]profile.Frame)}
	for p, frames := range stacks {
		id := profile.StackTraceID{byte(len(r.Stacks) + 1)}
		r.Stacks[id] = frames
		r.Samples[record.Key{Process: p, Stack: id}] = 1
		r.Processes = append(r.Processes, p)
	}
	return r
}

// seen is a process as it is sampled: with how it sees its files.
type seen struct {
	*procscan.Handle
	t *testing.T
}

func (p seen) Files(mappings []procscan.Mapping) (results []profile.FileResult) {
	place, err := p.Place()
	assert.NilError(p.t, err)
	rights, err := p.Credentials()
	assert.NilError(p.t, err)
	for _, m := range mappings {
		file, err := p.OpenMapped(m)
		assert.NilError(p.t, err)
		defer file.Close()
		key, err := elfsym.Identify(file)
		assert.NilError(p.t, err)
		parsed, err := elfsym.ParseFile(file, key.Size)
		assert.NilError(p.t, err)
		results = append(results, profile.FileResult{Key: key, File: parsed,
			View: profile.NewView(key, m.Path, place, rights)})
	}
	return results
}

// What a process had sampled that ended before its files were opened has names if another one sees the same files, in
// whichever order they are learned; without its address space it is not known what it saw.
func TestNamesOfAProcessThatEndedEarly(t *testing.T) {
	alive := openProcess(t, demo.Start(t, demo.Options{Manual: true}).PID)
	process := demo.Start(t, demo.Options{Manual: true})
	ended := openProcess(t, process.PID)
	ended.User = uint32(os.Getuid())
	files, err := profile.NewFiles("/proc", 256)
	assert.NilError(t, err)
	space := profile.NewAddressSpace(files, profile.Pace{Shortest: time.Hour, Longest: time.Hour})
	assert.NilError(t, space.Update(time.Now(), seen{ended.Handle, t}))
	frames := []profile.Frame{function(t, ended, "libc.so", "getenv")}
	process.Kill()
	r := recording(map[*record.Process][]profile.Frame{alive: frames, ended: frames})
	for _, order := range [][]*record.Process{{alive, ended}, {ended, alive}} {
		for want, space := range map[string]*profile.AddressSpace{"getenv": space, "": nil} {
			n := newNamer(t)
			for _, p := range order {
				sample := sampleOf(frames)
				if sample.Space = space; p == alive {
					sample.Space = nil
				}
				n.Learn(p, sample)
			}
			got := n.read(t.Context(), r).name(ended, frames[0])
			assert.Check(t, got == want, "%q, want %q", got, want)
		}
	}
}

// A process in a container's place: another user, /tmp and pid namespace of its own. It ends before
// anybody reads symbols, and can write its perf map last: its /tmp is a mount that nothing leads to
// afterwards.
func TestNamesOfAProcessThatEnded(t *testing.T) {
	testenv.NeedRoot(t)
	own := func(pid int) int { return pid }
	for _, test := range []struct {
		what  string
		place demo.Placement
		pid   func(pid int) int
		late  bool // the perf map is written at the end
	}{
		{"here", demo.Placement{}, own, false},
		{"in a pid namespace", demo.Placement{PIDNamespace: true}, func(int) int { return 1 }, true},
		{"as another user with its own /tmp", demo.Placement{PrivateTmp: true, UID: 12345, GID: 12346}, own, false},
		{"with its own /tmp, written late", demo.Placement{PrivateTmp: true}, own, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			process := demo.Start(t, demo.Options{Manual: true, Placement: test.place})
			p := openProcess(t, process.PID)
			path := process.HostPath(fmt.Sprintf("/tmp/perf-%d.map", test.pid(process.PID)))
			t.Cleanup(func() { os.Remove(path) })
			writeMap := func() {
				testenv.WriteFile(t, path, "1000000 20 void Demo.run()\n")
				assert.NilError(t, os.Chown(path, test.place.UID, -1))
			}
			if !test.late {
				writeMap()
			}
			frames := []profile.Frame{
				function(t, p, "demo", "price_basket"), function(t, p, "libc.so", "getenv"), {Address: 0x1000010},
				{Address: 0x2000000},
			}
			n := newNamer(t)
			n.Learn(p, sampleOf(frames))
			if test.late {
				writeMap()
			}
			process.Kill()
			names := n.read(t.Context(), recording(map[*record.Process][]profile.Frame{p: frames}))
			for i, want := range []string{"price_basket", "getenv", "void Demo.run()", ""} {
				got := names.name(p, frames[i])
				assert.Check(t, got == want, "%q, want %q", got, want)
			}
			if err, known := names.perfMaps[p]; err != nil || !known || len(names.late) > 0 {
				t.Errorf("perf map: %v, %v; late: %v", known, err, names.late)
			}
		})
	}
}

// What was learned of nothing is found at the end, in a process that lives.
func TestNamesAtTheEnd(t *testing.T) {
	testenv.NeedRoot(t)
	process := demo.Start(t, demo.Options{Manual: true, Placement: demo.Placement{UID: 12345, GID: 12346}})
	p := openProcess(t, process.PID)
	frames := []profile.Frame{
		function(t, p, "demo", "checkout"), {Address: 0x1000010},
		{File: &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: "/nonexistent"}, Address: 1},
	}
	r := recording(map[*record.Process][]profile.Frame{p: frames})
	path := fmt.Sprintf("/tmp/perf-%d.map", process.PID)
	t.Cleanup(func() { os.Remove(path) })
	for _, test := range []struct {
		owner int // negative: no file
		mode  os.FileMode
		want  error
		name  string
	}{
		{-1, 0, fs.ErrNotExist, ""},
		{54321, 0o644, symbols.ErrOwner, ""},
		{12345, 0o600, nil, "f"},
		{0, 0o644, nil, "f"},
		{0, 0o600, fs.ErrPermission, ""}, // for the process
	} {
		if test.owner >= 0 {
			os.Remove(path) // the kernel protects it from being written by us
			assert.NilError(t, errors.Join(os.WriteFile(path, []byte("1000000 20 f\n"), test.mode),
				os.Chown(path, test.owner, -1)))
		}
		names := newNamer(t).read(t.Context(), r)
		if names.name(p, frames[0]) != "checkout" || names.name(p, frames[1]) != test.name ||
			names.name(p, frames[2]) != "" {
			t.Errorf("owned by %d: %q, %q, %q", test.owner, names.name(p, frames[0]), names.name(p, frames[1]),
				names.name(p, frames[2]))
		}
		err := names.perfMaps[p]
		assert.Check(t, errors.Is(err, test.want), "owned by %d: %v, want %v", test.owner, err, test.want)
	}
}

// The kernel and the vDSO of this machine, by what package profile makes of their addresses.
func TestNamesOfTheKernel(t *testing.T) {
	testenv.NeedRoot(t)
	vmlinux := &profile.File{ID: profile.FileID{1}, Kind: profile.KernelFrame, Path: symbolizer.VMLinuxPath}
	frames := []profile.Frame{{File: vmlinux, Address: 0}}
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		testenv.Missing(t, "needs /proc/kallsyms")
	}
	defer file.Close()
	if _, _, err := kallsyms.Text(file); err != nil {
		testenv.Missing(t, "needs to be shown kernel addresses")
	}
	k, err := symbolizer.NewKernel("/proc", "/sys").Read(t.Context(), frames)
	assert.Check(t, err == nil && k.Name(frames[0]) != "", "the start of the kernel's text has no name: %v", err)
	k, err = symbolizer.NewKernel(t.TempDir(), "/sys").Read(t.Context(), frames)
	name := k.Name(frames[0])
	assert.Check(t, name == "" && !k.Located(frames[0]), "%q without kallsyms, %v", name, err)
}
