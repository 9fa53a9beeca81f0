package profiles

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

var (
	library = &profile.File{
		ID:   profile.FileID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		Kind: profile.NativeFrame, BuildID: "0a0b0c", Path: "/usr/lib/libjvm.so",
	}
	shop = &profile.Resource{
		Service: profile.Service{Name: "shop", Environment: "prod"}, ContainerID: "c0ffee", PodUID: "p0d", PID: 42,
		ExecutableName: "java", ExecutablePath: "/usr/bin/java",
	}
)

// The ids of the specification, and some that were computed by it apart from this code.
func TestCheckValues(t *testing.T) {
	pay := profile.NewJVMFrame(profile.NewFunction("shop.Checkout.pay", "Checkout.java"), 42)
	for id, frames := range map[string][]profile.Frame{
		"kh0iF1-J_9HtoXA3aFx9-g": {{File: library, Address: 4096}},
		"-bVu47G-45ZO3dmDETrxDw": {{File: library, Address: 4096}, {File: library, Address: 8191}},
		"uAcSmr9bEscyj3hP1tsAew": {{Address: 140000000000000}, {File: library, Address: 1}},
		"-ItGe1bGL09tE9R4oTo8Cw": {pay},
		"FjEu00FlGVXw6yaElocMyA": {profile.NewJVMFrame(profile.NewFunction("shop.Über$Ångström.läuft", ""), 0)},
		"5Pz2euADjAg5CmyWp3Lsgg": {pay, profile.NewCutFrame()},
		"rUoEjwfvi5iYtBqkxsgMrQ": {{File: library, Address: 4096}, profile.NewCutFrame()},
	} {
		d := one(t, testOptions(&counter{}), sampleOf(shop, frames...)).Dictionary
		got := stackTraceID(t, d, d.StackTable[1])
		if base64.RawURLEncoding.EncodeToString(got[:]) != id || profile.TraceID(frames) != got {
			t.Errorf("%x, want %s", got, id)
		}
	}
}

func TestFrames(t *testing.T) {
	const buildID = "0123456789abcdef0123456789abcdef01234567"
	hash := fnv.New128a()
	hash.Write([]byte(buildID))
	kernel := &profile.File{ID: profile.FileID(hash.Sum(nil)), Kind: profile.KernelFrame, BuildID: buildID,
		Path: "vmlinux"}
	stripped := &profile.File{ID: profile.FileID{9}, Kind: profile.NativeFrame, GoBuildID: "a/b",
		Path: "/bin/stripped"}
	frames := []profile.Frame{
		{File: kernel, Address: 5}, {Address: 0xffffffffc0001234}, {File: library, Address: 7},
		{Address: 0x7f0012345678},
		{File: library, Address: 7}, {File: stripped, Address: 7},
	}
	d := one(t, testOptions(&counter{}), sampleOf(shop, frames...)).Dictionary
	type exported struct{ kind, htlhash, gnu, golang, name string }
	want := []exported{
		{"kernel", kernel.ID.String(), buildID, "", "vmlinux"}, {kind: "kernel"},
		{"native", library.ID.String(), "0a0b0c", "", "/usr/lib/libjvm.so"}, {kind: "native"},
		{"native", library.ID.String(), "0a0b0c", "", "/usr/lib/libjvm.so"},
		{"native", stripped.ID.String(), "", "a/b", "/bin/stripped"},
	}
	stack := d.StackTable[1].LocationIndices
	assert.Assert(t, len(stack) == len(frames) && len(d.LocationTable) == len(frames) && len(d.MappingTable) == 4,
		"stack of %d, %d locations, %d mappings", len(stack), len(d.LocationTable), len(d.MappingTable))
	for i, l := range stack {
		location := d.LocationTable[l]
		m := d.MappingTable[location.MappingIndex]
		a := attributes(d, m.AttributeIndices)
		got := exported{
			attributes(d, location.AttributeIndices)["profile.frame.type"].GetStringValue(),
			a["process.executable.build_id.htlhash"].GetStringValue(),
			a["process.executable.build_id.gnu"].GetStringValue(),
			a["process.executable.build_id.go"].GetStringValue(),
			d.StringTable[m.FilenameStrindex],
		}
		if got != want[i] || location.Address != frames[i].Address {
			t.Errorf("frame %d is %+v at %#x, want %+v at %#x", i, got, location.Address, want[i], frames[i].Address)
		}
	}
	got := stackTraceID(t, d, d.StackTable[1])
	assert.Check(t, got == profile.TraceID(frames), "stack-trace-id %x", got)
}

// What is known of a frame besides its address: where it is in its file, and its function.
func TestLines(t *testing.T) {
	hotspot := &profile.File{ID: profile.FileID{8}, Kind: profile.NativeFrame, Path: "/usr/lib/libjvm.so",
		Code: []profile.CodeRange{{Start: 0x2000, Limit: 0x4000, Offset: 0x1000}, {Start: 0x8000, Limit: 0x9000}}}
	vmlinux := &profile.File{ID: profile.FileID{7}, Kind: profile.KernelFrame, Path: "vmlinux"}
	frames := []profile.Frame{
		{File: vmlinux, Address: 0x10, Function: profile.NewFunction("do_syscall_64", "")},
		{File: hotspot, Address: 0x2010, Function: profile.NewFunction("JVM_Sleep", "jvm.cpp"), Line: 3000},
		{File: hotspot, Address: 0x8010}, {File: hotspot, Address: 0x3fff}, {File: hotspot, Address: 0x4000},
		{Address: 0x7f0012345678, Function: profile.NewFunction("compiled", "")},
		profile.NewJVMFrame(profile.NewFunction("shop.Checkout.pay", "Checkout.java"), 42),
		profile.NewJVMFrame(profile.NewFunction("shop.Checkout.pay", "Checkout.java"), 43),
		profile.NewJVMFrame(profile.NewFunction("shop.Checkout.pay", "Other.java"), 42),
		profile.NewJVMFrame(profile.NewFunction("java.lang.Thread.run", ""), 0),
		profile.NewRuntimeFrame(profile.PythonFrame, profile.NewFunction("Work.run", "/srv/work.py"), 7),
		profile.NewRuntimeFrame(profile.V8Frame, profile.NewFunction("run", "/srv/work.js"), 8),
		profile.NewCutFrame(),
	}
	d := one(t, testOptions(&counter{}), sampleOf(shop, frames...)).Dictionary
	type exported struct {
		kind                   string
		start, limit, offset   uint64
		name, sourceFile, file string
		line                   int64
	}
	const jvm = "/usr/lib/libjvm.so"
	want := []exported{
		{"kernel", 0, 0, 0, "do_syscall_64", "", "vmlinux", 0},
		{"native", 0x2000, 0x4000, 0x1000, "JVM_Sleep", "jvm.cpp", jvm, 3000},
		{"native", 0x8000, 0x9000, 0, "", "", jvm, 0}, {"native", 0x2000, 0x4000, 0x1000, "", "", jvm, 0},
		{"native", 0, 0, 0, "", "", jvm, 0},
		{"native", 0, 0, 0, "compiled", "", "", 0},
		{"jvm", 0, 0, 0, "shop.Checkout.pay", "Checkout.java", "", 42},
		{"jvm", 0, 0, 0, "shop.Checkout.pay", "Checkout.java", "", 43},
		{"jvm", 0, 0, 0, "shop.Checkout.pay", "Other.java", "", 42},
		{"jvm", 0, 0, 0, "java.lang.Thread.run", "", "", 0},
		{"cpython", 0, 0, 0, "Work.run", "/srv/work.py", "", 7},
		{"v8js", 0, 0, 0, "run", "/srv/work.js", "", 8},
		{"abort-marker", 0, 0, 0, "[stack truncated]", "", "", 0},
	}
	stack := d.StackTable[1].LocationIndices
	assert.Assert(t, len(stack) == len(frames) && len(d.MappingTable) == 5 && len(d.FunctionTable) == 10,
		"stack of %d, %d mappings, %d functions", len(stack), len(d.MappingTable), len(d.FunctionTable))
	for i, l := range stack {
		location := d.LocationTable[l]
		m := d.MappingTable[location.MappingIndex]
		got := exported{
			kind:  attributes(d, location.AttributeIndices)["profile.frame.type"].GetStringValue(),
			start: m.MemoryStart, limit: m.MemoryLimit, offset: m.FileOffset, file: d.StringTable[m.FilenameStrindex],
		}
		for _, line := range location.Lines {
			f := d.FunctionTable[line.FunctionIndex]
			got.name, got.sourceFile = d.StringTable[f.NameStrindex], d.StringTable[f.FilenameStrindex]
			got.line = line.Line
		}
		if got != want[i] || location.Address != frames[i].Address {
			t.Errorf("frame %d is %+v at %#x, want %+v at %#x", i, got, location.Address, want[i], frames[i].Address)
		}
	}
	got := stackTraceID(t, d, d.StackTable[1])
	assert.Check(t, got == profile.TraceID(frames), "stack-trace-id %x", got)
}

// Frames have the names of their process. Two processes share a stack where these are the same, and do
// not where they differ: then both stacks have the one id. A sample is of the same stack again.
func TestNames(t *testing.T) {
	frames := []profile.Frame{{File: library, Address: 0x10}, {Address: 0x7f0012345678},
		{Address: math.MaxUint64}, {File: library, Address: 0x20}}
	forger, other := &profile.Resource{PID: 43}, &profile.Resource{PID: 44}
	options := testOptions(&counter{})
	options.Name = func(r *profile.Resource, f profile.Frame) profile.Frame {
		switch {
		case f.Address == 0x20:
			return f
		case r == forger:
			return f.WithName(profile.NewFunction("launder", ""))
		}
		return f.WithName(profile.NewFunction("checkout", ""))
	}
	request := one(t, options, sampleOf(shop, frames...), sampleOf(forger, frames...), sampleOf(other, frames...),
		sampleOf(forger, frames...))
	d := request.Dictionary
	assert.Assert(t, len(d.StackTable) == 3 && len(request.ResourceProfiles) == 3,
		"%d stacks of %d processes", len(d.StackTable), len(request.ResourceProfiles))
	for i, want := range []string{"checkout", "launder", "checkout"} {
		samples := request.ResourceProfiles[i].ScopeProfiles[0].Profiles[0].Samples
		stack := d.StackTable[samples[0].StackIndex]
		if got := stackTraceID(t, d, stack); len(samples) != 1 || got != profile.TraceID(frames) {
			t.Errorf("%d samples with stack-trace-id %x", len(samples), got)
		}
		for n, l := range stack.LocationIndices {
			location := d.LocationTable[l]
			kind := attributes(d, location.AttributeIndices)["profile.frame.type"].GetStringValue()
			assert.Check(t, kind == []string{"native", "native", "kernel", "native"}[n],
				"frame %d is of type %q", n, kind)
			if frames[n].Address == 0x20 {
				assert.Check(t, len(location.Lines) == 0, "a frame without a name has one")
				continue
			}
			assert.Check(t, len(location.Lines) == 1 &&
				d.StringTable[d.FunctionTable[location.Lines[0].FunctionIndex].NameStrindex] == want,
				"process %d: frame %d is not in %s", i, n, want)
		}
	}
}

func TestProfile(t *testing.T) {
	other := &profile.Resource{PID: 43}
	frame := profile.Frame{File: library, Address: 1}
	first, late := sampleOf(shop, frame), sampleOf(shop, frame)
	late.Start, late.End, late.Count = late.End, late.End.Add(time.Second), 3
	again := first
	again.Count = 4
	request := one(t, testOptions(&counter{}), first, late, again, sampleOf(other, frame))
	r := request.ResourceProfiles
	assert.Assert(t, len(r) == 2, "%d resources", len(r))
	got, want := resourceOf(r[0]), map[string]string{
		"service.name": "shop", "deployment.environment.name": "prod", "container.id": "c0ffee", "k8s.pod.uid": "p0d",
		"process.pid":             "42",
		"process.executable.name": "java", "process.executable.path": "/usr/bin/java", "host.id": "host",
	}
	assert.Check(t, maps.Equal(got, want), "resource %v, want %v", got, want)
	got, want = resourceOf(r[1]), map[string]string{"process.pid": "43", "host.id": "host"}
	assert.Check(t, maps.Equal(got,
		want), "resource %v, want %v", got, want)
	scope := r[0].ScopeProfiles[0].Scope
	assert.Check(t, scope.Name == "correlator" && scope.Version == "v1.2.3", "scope %v", scope)
	p := r[0].ScopeProfiles[0].Profiles[0]
	assert.Check(t, p.TimeUnixNano == uint64(moment.UnixNano()) && p.DurationNano == 2e9 && p.Period == 50_000_000,
		"%d + %d, period %d", p.TimeUnixNano, p.DurationNano, p.Period)
	assert.Check(t, bytes.Equal(p.ProfileId, bytes.Repeat([]byte{1}, 16)) &&
		bytes.Equal(r[1].ScopeProfiles[0].Profiles[0].ProfileId, bytes.Repeat([]byte{2}, 16)),
		"profile id %x", p.ProfileId)
	assert.Assert(t, len(p.Samples) == 1, p.Samples)
	s, middle := p.Samples[0], uint64(moment.UnixNano())+5e8
	times := slices.Concat(slices.Repeat([]uint64{middle}, 5), slices.Repeat([]uint64{middle + 1e9}, 3))
	assert.Check(t, len(s.Values) == 0 && slices.Equal(s.TimestampsUnixNano, times), "sample %v", s)
}

// What joins a sample to a trace.
func TestLinks(t *testing.T) {
	trace, span, transaction := [16]byte{1}, [8]byte{2}, [8]byte{3}
	for _, c := range []struct {
		name              string
		trace             [16]byte
		span, transaction [8]byte
		linked            [8]byte // all zero: no link
		attribute         string
	}{
		{"span", trace, span, transaction, span, "0300000000000000"},
		{"transaction", trace, [8]byte{}, transaction, transaction, ""},
		{"span is the transaction", trace, transaction, transaction, transaction, ""},
		{"span without transaction", trace, span, [8]byte{}, span, ""},
		{"nothing", [16]byte{}, [8]byte{}, [8]byte{}, [8]byte{}, ""},
		{"no trace", [16]byte{}, span, transaction, [8]byte{}, ""},
		{"trace alone", trace, [8]byte{}, [8]byte{}, [8]byte{}, ""},
	} {
		sample := sampleOf(shop, profile.Frame{Address: 1})
		sample.TraceID, sample.SpanID, sample.TransactionID = c.trace, c.span, c.transaction
		request := one(t, testOptions(&counter{}), sample)
		s := request.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples[0]
		l := request.Dictionary.LinkTable[s.LinkIndex]
		none := s.LinkIndex == 0
		assert.Check(t, none == (c.linked == [8]byte{}) && (none || [8]byte(l.SpanId) == c.linked),
			"%s: link %v", c.name, l)
		got := attributes(request.Dictionary,
			s.AttributeIndices)["transaction.id"].GetStringValue()
		assert.Check(t, got == c.attribute, "%s: transaction %q", c.name, got)
	}
}

// What processes choose can make no request undecodable.
func TestText(t *testing.T) {
	hostile := &profile.Resource{
		Service: profile.Service{Name: "a\xff\xfe", Environment: "\x00"}, ContainerID: "\xed\xa0\x80", PID: 1,
		ExecutableName: "x\xc3", ExecutablePath: "/\xf5/é",
	}
	file := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, BuildID: "\x80", Path: "/lib/\xff"}
	sample := sampleOf(hostile, profile.Frame{File: file, Address: 1})
	sample.Thread = "t\xff"
	same := sample
	same.Thread = "t\xfe" // looks the same then, and so is the same item
	options := testOptions(&counter{})
	options.HostID, options.Version = "h\xff", "v\xff"
	request := one(t, options, sample, same)
	got := resourceOf(request.ResourceProfiles[0])
	assert.Check(t, got["service.name"] == "a\ufffd" && got["deployment.environment.name"] == "\x00" &&
		got["process.executable.path"] == "/\ufffd/é",
		"resource %q", got)
	samples := request.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples
	assert.Check(t, len(samples) == 1 && len(samples[0].TimestampsUnixNano) == 2, "samples %v", samples)
}

func TestInvalid(t *testing.T) {
	frame := profile.Frame{Address: 1}
	for name, change := range map[string]func(*profile.Sample){
		"nothing counted": func(s *profile.Sample) { s.Count = 0 },
		"no process":      func(s *profile.Sample) { s.Resource = nil },
		"no frames":       func(s *profile.Sample) { s.Stack = stackOf() },
		"address 0":       func(s *profile.Sample) { s.Stack = stackOf(frame, profile.Frame{File: library}) },
		// Sent, these would have another id.
		"name of bytes": func(s *profile.Sample) {
			s.Stack = stackOf(profile.NewJVMFrame(&profile.Function{Name: "a\xff"}, 1))
		},
		"long source file": func(s *profile.Sample) {
			long := &profile.Function{Name: "f", SourceFile: strings.Repeat("x", maxTextBytes+1)}
			s.Stack = stackOf(profile.Frame{Address: 1, Function: long})
		},
		"no name": func(s *profile.Sample) {
			s.Stack = stackOf(profile.NewJVMFrame(&profile.Function{SourceFile: "F.java"}, 1))
		},
		"before 1970": func(s *profile.Sample) { s.Start = time.Unix(0, 0) },
		"no time":     func(s *profile.Sample) { s.Start = time.Time{} },
	} {
		b, requests := collect(testOptions(&counter{}))
		sample := sampleOf(shop, frame)
		change(&sample)
		err := b.Add(&sample)
		assert.Check(t, errors.Is(err, ErrInvalid), "%s: %v", name, err)
		b.Flush()
		assert.Check(t, len(*requests) == 0, "%s: a request", name)
	}
}

func TestWithoutRateOrRandomness(t *testing.T) {
	options := testOptions(broken{})
	options.SamplesPerSecond = 0
	p := one(t, options, sampleOf(shop, profile.Frame{Address: 1})).ResourceProfiles[0].ScopeProfiles[0].Profiles[0]
	assert.Check(t, p.Period == 0 && len(p.ProfileId) == 0, "period %d, id %x", p.Period, p.ProfileId)
	options.Random = nil
	p = one(t, options, sampleOf(shop, profile.Frame{Address: 1})).ResourceProfiles[0].ScopeProfiles[0].Profiles[0]
	assert.Check(t, len(p.ProfileId) == 16, "id %x", p.ProfileId)
}

// A whole request, as it was written by hand.
func TestBytes(t *testing.T) {
	b, requests := collect(Options{SamplesPerSecond: 20, Random: &counter{}})
	sample := profile.Sample{
		Resource: &profile.Resource{Service: profile.Service{Name: "s"}}, Stack: stackOf(deep(1)...), Count: 2,
		Start: time.Unix(0, 256), End: time.Unix(0, 258),
	}
	assert.NilError(t, b.Add(&sample))
	b.Flush()
	text := func(s string) string { return hex.EncodeToString([]byte(s)) }
	want := strings.Join([]string{
		"0a bf01", // resource_profiles
		"  0a 15   0a 13   0a 0c", text("service.name"), "12 03 0a 01", text("s"),
		"  12 7d", // scope_profiles
		"    0a 0c 0a 0a", text("correlator"),
		"    12 44", // profiles
		"      0a 04 08 01 10 02",
		"      2a 04 08 03 10 04",
		"      30 80e1eb17", // 50 ms
		"      19 0001000000000000",
		"      20 02",
		"      12 14   08 01   2a 10 0101000000000000 0101000000000000", // samples
		"      3a 10 01010101010101010101010101010101",
		"    1a 27", text(schemaURL),
		"  1a 27", text(schemaURL),
		"12 64", // dictionary
		"  0a 00",
		"  12 00   12 0b   10 8080808080e01f   22 01 01",
		"  1a 00",
		"  22 00",
		"  2a 00   2a 07", text("samples"), "2a 05", text("count"), "2a 03", text("cpu"), "2a 0b", text("nanoseconds"),
		"  2a 12", text("profile.frame.type"),
		"  32 00   32 0c   08 05   12 08   0a 06", text("native"),
		"  3a 00   3a 03   0a 01 01",
	}, "")
	if got := hex.EncodeToString((*requests)[0].Body); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%s\nwant %s", got, strings.ReplaceAll(want, " ", ""))
	}
	decode(t, (*requests)[0].Body)
}

// Locations of frames that were undone are added again with the next stack that has them, and those that were not stay.
func TestFramesAreUndone(t *testing.T) {
	var d dictionary
	d.reset()
	first := stackOf(profile.Frame{File: library, Address: 7}, profile.NewJVMFrame(profile.NewFunction("a.b", "c"), 1))
	second := stackOf(append(first.Frames, profile.Frame{File: library, Address: 8})...)
	d.mark()
	for _, kept := range []bool{false, false, true} {
		index := d.stack(first, naming{})
		assert.Check(t, index == 1 && d.locations.count == 2 && d.functions.count == 1, "%d locations",
			d.locations.count)
		if !kept {
			d.rollBack()
			assert.Check(t, d.locations.count == 0 && d.functions.count == 0, "%d locations", d.locations.count)
		}
	}
	d.mark()
	d.stack(second, naming{})
	d.rollBack()
	d.stack(second, naming{})
	assert.Check(t, d.locations.count == 3 && d.functions.count == 1 && d.stacks.count == 2, "%d locations",
		d.locations.count)
}
