package report

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/names/symbols"
	"correlator/internal/out/record"
	"correlator/profile"
)

func TestSummary(t *testing.T) {
	r, names := fixture(t)
	r.Lost = map[string]uint64{"stale": 4, record.LostTooMany: 3}
	r.Missed = 900
	r.Failed = []record.Failure{{PID: 103, Err: os.ErrPermission}}
	s := summarize(r, names)
	s.cpus = 2 // 6000 ticks
	var b strings.Builder
	assert.NilError(t, s.write(&b))
	want := string(testenv.ReadFile(t, "testdata/summary.txt"))
	assert.Check(t, b.String() == want, "%s\nwant\n%s", &b, want)
	if s.cpus = 32; slices.ContainsFunc(s.hints(), func(hint string) bool {
		return strings.Contains(hint,
			"sampling clock")
	}) {
		t.Errorf("900 of 96000 ticks are not many: %q", s.hints())
	}
	assert.Check(t, s.samples == 100 && s.withTrace == 90 && s.topTransaction() == "cd02000000000000", "%+v", s)
}

// What samples have of a context and was not taken is told.
func TestSummaryOfContexts(t *testing.T) {
	r, names := fixture(t)
	before := len(summarize(r, names).losses())
	r.LabelsRefused, r.AttributesCut, r.UnknownKeys = 5, 2, 1
	got := summarize(r, names).losses()[before:]
	assert.Check(t, len(got) == 2 && strings.HasPrefix(got[0], "without context: 5 samples of goroutines") &&
		strings.HasPrefix(got[1], "without attributes: 3 samples"), "%q", got)
}

// What is at no address that a process ever had code at is not called compiled, and no reason for
// hints.
func TestUnknownAddresses(t *testing.T) {
	r, names := fixture(t)
	for _, of := range names.names {
		maps.DeleteFunc(of.Code, func(_ uint64, name string) bool { return name == "" })
	}
	s := summarize(r, names)
	got, want := s.namedFrames(),
		"98.5% of native, 100.0% of JIT, 66.7% of kernel; at unknown addresses: 24.2% of all"
	assert.Check(t, got == want, "%s, want %s", got, want)
	for _, hint := range s.hints() {
		assert.Check(t, !strings.Contains(hint, "compiled code"), hint)
	}
	p := buildProfile(r, names)
	got, want = describe(p.Sample[0]),
		"libshop.so shop::checkout|[jit 101] Demo.price|[unknown] [unknown]|libshop.so main"
	assert.Check(t, got == want, "%s, want %s", got, want)
}

// It is said of how many samples the stacks were not unwound where there is an engine, and why; nothing if there are
// none.
func TestSummaryOfWalkedStacks(t *testing.T) {
	const early, unknown = "taken before their stacks could be unwound, or of processes that cannot be",
		"in code that the unwinding engine does not know"
	for _, test := range []struct {
		engine     bool
		shop, cart record.Walks // of 30 and 50 samples
		want       string
	}{
		{false, record.Walks{}, record.Walks{}, ""},
		{true, record.Walks{Served: 30, Unwound: 30}, record.Walks{Served: 50, Unwound: 50}, ""},
		{true, record.Walks{Served: 20, Unwound: 20}, record.Walks{}, "75.0% of samples, " + early},
		{
			true, record.Walks{Served: 30, Unwound: 30}, record.Walks{Served: 50, Unwound: 10},
			"50.0% of samples, " + unknown,
		},
		{true, record.Walks{Served: 30}, record.Walks{}, "100.0% of samples, " + early + ", or " + unknown},
	} {
		r := unwound(t)
		r.Engine = test.engine
		r.Walks = map[*record.Process]record.Walks{r.Processes[0]: test.shop, r.Processes[1]: test.cart}
		var b strings.Builder
		assert.NilError(t, summarize(r, nil).write(&b))
		_, got, _ := strings.Cut(b.String(), "\nwalked by frame pointers: ")
		got, _, _ = strings.Cut(got, "\n")
		assert.Check(t, got == test.want, "%q, want %q", got, test.want)
	}
}

// What a hint says of short stacks is so by who has walked them.
func TestHintsOfWalks(t *testing.T) {
	const (
		shallow   = "most stacks of process (1) have one or two frames"
		pointers  = shallow + ", as those of code that keeps no frame pointers: --unwinder auto"
		functions = shallow + ": functions of Python, Node.js and PHP"
		walked    = shallow + ", as those of code that keeps no frame pointers: they were walked by these, "
		unknown   = walked + "in code that the unwinding engine does not know"
		early     = walked + "before they could be unwound"
		failed    = `most stacks of process (1) were walked by frame pointers, as they could not be unwound: \x1b 100%`
	)
	for name, test := range map[string]struct {
		file    string
		frames  int // 1: called by code in memory; 0: the other way round
		engine  bool
		walks   record.Walks // of 20 samples
		failure string
		want    string // nothing else
	}{
		"no engine":               {"/bin/c", 2, false, record.Walks{}, "", pointers},
		"no engine, Python":       {"/bin/python3", 2, false, record.Walks{}, "", functions},
		"no engine, compiler":     {"/bin/luajit", 2, false, record.Walks{}, "", ""},
		"no engine, its library":  {"/lib/libcoreclr.so", 2, false, record.Walks{}, "", pointers},
		"no engine, compiled":     {"/lib/libcoreclr.so", 0, false, record.Walks{}, "", ""},
		"no engine, of compiled":  {"/lib/libcoreclr.so", 1, false, record.Walks{}, "", ""},
		"no engine, other memory": {"/bin/c", 1, false, record.Walks{}, "", pointers},
		"unwound":                 {"/bin/c", 2, true, record.Walks{Served: 20, Unwound: 20}, "", ""},
		"unwound, Python":         {"/bin/python3", 2, true, record.Walks{Served: 20, Unwound: 20}, "", ""},
		"unknown":                 {"/bin/c", 2, true, record.Walks{Served: 20}, "", unknown},
		"some unknown":            {"/bin/c", 2, true, record.Walks{Served: 20, Unwound: 11}, "", ""},
		"unknown, long":           {"/bin/c", 3, true, record.Walks{Served: 20}, "", ""},
		"unknown, compiler":       {"/bin/luajit", 2, true, record.Walks{Served: 20}, "", ""},
		"early":                   {"/bin/c", 2, true, record.Walks{Served: 9, Unwound: 9}, "", early},
		"some early":              {"/bin/c", 2, true, record.Walks{Served: 10, Unwound: 10}, "", ""},
		"early, long":             {"/bin/c", 3, true, record.Walks{}, "", ""},
		"failed":                  {"/bin/c", 2, true, record.Walks{}, "\x1b 100%", failed},
		"failed, long":            {"/bin/c", 3, true, record.Walks{}, "\x1b 100%", failed},
		"failed at the end":       {"/bin/c", 2, true, record.Walks{Served: 20, Unwound: 20}, "\x1b 100%", ""},
		"failed before an engine": {"/bin/c", 2, false, record.Walks{}, "\x1b 100%", pointers},
	} {
		p := &record.Process{PID: 1, Executable: strings.Replace(test.file, "/lib/libcoreclr.so", "/bin/c", 1)}
		file := &profile.File{Kind: profile.NativeFrame, Path: test.file}
		stack := make([]profile.Frame, max(1, test.frames))
		for i := range stack {
			stack[i] = profile.Frame{Address: uint64(i + 1), File: file}
		}
		if test.frames <= 1 {
			stack = slices.Insert(stack, test.frames, profile.Frame{Address: 9})
		}
		r := recording(map[*record.Process][]profile.Frame{p: stack})
		for key := range r.Samples {
			r.Samples[key] = 20
		}
		r.Engine, r.Walks = test.engine, map[*record.Process]record.Walks{p: test.walks}
		if test.failure != "" {
			r.Failures = map[*record.Process]string{p: test.failure}
		}
		hints := slices.DeleteFunc(summarize(r, nil).hints(), func(hint string) bool {
			return !strings.Contains(hint, "most stacks")
		})
		if test.want == "" {
			assert.Check(t, len(hints) == 0, "%s: %q", name, hints)
		} else {
			assert.Check(t, len(hints) == 1 && strings.HasPrefix(hints[0], test.want), "%s: %q", name, hints)
		}
	}
}

// Of runtimes that compile code, also where none of their own functions was sampled, it is said what names that, or
// that it is not shown, and nothing where it is.
func TestHintsOfCompilers(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/luajit-2.1.0": "", "/usr/bin/sbcl": "", "/usr/libexec/valgrind/memcheck-amd64-linux": "",
		"/usr/lib/erlang/erts/bin/beam.smp": `no perf map: Erlang writes one by "erl +JPperf map"`,
		"/usr/bin/julia":                    "no perf map: runtimes write one if they are told to",
	} {
		r, names := fixture(t)
		shop := r.Processes[0]
		shop.Executable = path
		says := func(text string) int {
			return strings.Count(strings.Join(summarize(r, names).hints(), "\n"), text)
		}
		r.Samples = map[record.Key]uint64{{Process: shop, Stack: stackID(1)}: 20}
		known, runtime := " of shop (101) has no names", path != "/usr/bin/julia"
		assert.Check(t, says("are not shown") == 0, path) // the perf map was read
		names.perfMaps[shop] = os.ErrNotExist
		shown := 0
		if runtime {
			shown = 1
		}
		assert.Check(t, says("functions that shop (101) runs by ") == shown, path)
		assert.Check(t, says(known) == min(1, len(want)) && (want == "" || says(want) == 1), "%s: %q", path,
			summarize(r, names).hints())
	}
}

// What an unwinder names is counted by kind, and what it could not walk is told, once where a stack is cut twice.
func TestSummaryOfUnwoundStacks(t *testing.T) {
	r := unwound(t)
	r.Stacks[stackID(1)] = slices.Insert(r.Stacks[stackID(1)], 1, profile.NewCutFrame())
	s := summarize(r, nil)
	got, want := s.namedFrames(), "100.0% of native, 100.0% of JVM, 100.0% of JIT"
	assert.Check(t, got == want, "%s, want %s", got, want)
	var b strings.Builder
	assert.NilError(t, s.write(&b))
	want = "\ntruncated stacks: 25.0% of samples, missing callers are in [stack truncated]\n"
	assert.Check(t, strings.Contains(
		b.String(), want), "no %q in\n%s", want, &b)
	hints := s.hints()
	assert.Check(t, len(hints) == 0, "%q", hints)
}

// Where it is often not known which inlined method runs, the share of the service's CPU time is told, and what helps.
func TestInlinedNotes(t *testing.T) {
	r := unwound(t)
	of := r.Processes[0]
	caller := profile.NewJVMFrame(profile.NewFunction("Main.main", ""), 1)
	r.Stacks[stackID(3)] = []profile.Frame{{Address: 1}, profile.NewInlinedFrame(), caller}
	for samples, want := range map[uint64]string{
		1: "", 10: "25.0% of the CPU time of shop is in inlined Java methods",
	} {
		r.Samples[record.Key{Process: of, Stack: stackID(3)}] = samples
		hints := summarize(r, nil).hints()
		text := strings.Join(hints, "\n")
		assert.Check(t, strings.HasPrefix(text, want) &&
			strings.Contains(text, "-XX:+DebugNonSafepoints") == (want != "") &&
			strings.Contains(text, "unless they are set (of use from JDK 11.0.21, 17.0.9 and 21") == (want != ""), text)
		var page strings.Builder
		assert.NilError(t, writeHTML(&page, r, nil, About{}))
		assert.Check(t, strings.Contains(page.String(), "[inlined code]): -XX:+Unlock") == (want != ""))
	}
}

// Processes that may not be read are one line, not a warning each. One of anything is no plural.
func TestLosses(t *testing.T) {
	for _, r := range []record.Recording{{Unreadable: 3}, {Unreadable: 1, Missed: 1, LostWaits: 1, LabelsRefused: 1,
		UnknownKeys: 1, Lost: map[string]uint64{"stale": 1}}} {
		var got []string
		for _, line := range summarize(&r, nil).losses() {
			what, rest, _ := strings.Cut(line, ": ")
			number, rest, _ := strings.Cut(rest, " ")
			noun, _, _ := strings.Cut(rest, " ")
			got = append(got, strings.Join([]string{what, number, strings.Trim(noun, ":")}, " "))
		}
		want := []string{"not looked into 3 processes"}
		if r.Missed > 0 {
			want = []string{"lost 1 sample", "lost 1 wait", "missed 1 tick", "without context 1 sample",
				"without attributes 1 sample", "not looked into 1 process"}
		}
		assert.DeepEqual(t, got, want)
	}
}

// A frame without a name in a C library is a reason for its debug symbols, but where a coroutine begins.
func TestHintsOfCoroutines(t *testing.T) {
	of := func(path string) profile.Frame {
		return profile.Frame{Address: 1, File: &profile.File{Kind: profile.NativeFrame, Path: path}}
	}
	named := profile.Frame{Address: 2, Function: &profile.Function{Name: "body"}}
	for _, test := range []struct {
		stack []profile.Frame
		want  bool
	}{
		{[]profile.Frame{named, of("/lib/libc.so.6")}, false},
		{[]profile.Frame{named, of("/lib/libc.so.6"), named}, true},
		{[]profile.Frame{of("/lib/libc.so.6")}, true},
		{[]profile.Frame{named, of("/lib/libcoroutines.so")}, true},
	} {
		r := recording(map[*record.Process][]profile.Frame{{PID: 1}: test.stack})
		hints := strings.Join(summarize(r, nil).hints(), "\n")
		assert.Check(t, strings.Contains(hints, "no symbols for /lib/libc") == test.want, "%+v: %s", test, hints)
	}
}

// Few samples, and those that begin in the kernel, are no evidence about frame pointers.
func TestShallow(t *testing.T) {
	for _, test := range []struct {
		samples uint64
		stack   []profile.Frame
		want    bool
	}{
		{20, []profile.Frame{{Address: 1}}, true},
		{19, []profile.Frame{{Address: 1}}, false},
		{20, []profile.Frame{{Address: 1 << 63}, {Address: 1}}, false},
		{20, []profile.Frame{{Address: 1}, {Address: 2}, {Address: 3}}, false},
		{20, []profile.Frame{{Address: 1}, {Address: 2, Function: &profile.Function{Name: "main"}}}, false},
		{20, []profile.Frame{{Address: 2, Function: &profile.Function{Name: "main"}}, {Address: 1}}, true},
	} {
		p := &record.Process{PID: 1}
		r := recording(map[*record.Process][]profile.Frame{p: test.stack})
		for key := range r.Samples {
			r.Samples[key] = test.samples
		}
		hints := summarize(r, nil).hints()
		got := slices.ContainsFunc(hints, func(hint string) bool {
			return strings.Contains(hint,
				"frame pointers")
		})
		assert.Check(t, got == test.want, "%+v: %q", test, hints)
	}
}

func TestHints(t *testing.T) {
	r, names := fixture(t)
	shop, cart := r.Processes[0], r.Processes[1]
	r.Stacks[stackID(1)] = r.Stacks[stackID(1)][:2] // what is walked without frame pointers
	file := &profile.File{ID: profile.FileID{9}, Kind: profile.NativeFrame, Path: "/usr/lib/libstripped.so"}
	r.Stacks[stackID(1)][0].File = file
	for _, of := range names.names {
		for addr := range of.Code {
			of.Code[addr] = ""
		}
	}
	names.perfMaps = map[*record.Process]error{shop: os.ErrNotExist, cart: symbols.ErrOwner}
	names.kernel = symbolizer.KernelNames{}
	names.late = []*record.Process{cart}
	hints := summarize(r, names).hints()
	for _, want := range []string{
		`most stacks of shop (101) have one or two frames`,
		"code in memory of shop (101) has no names, as there is no perf map",
		`the perf map of cart\x1b[2J (102) was not used, or not all of it: belongs to another user`,
		`files of cart\x1b[2J (102) could not be read in time`,
		"no symbols for /usr/lib/libstripped.so",
		"kernel frames have no names",
	} {
		assert.Check(t, slices.ContainsFunc(hints, func(hint string) bool { return strings.HasPrefix(hint, want) }),
			"no hint %q in %q", want, hints)
	}
	assert.Check(t, len(hints) == 6, "%q", hints)
	names.perfMaps[shop] = fmt.Errorf("reading perf map: %w in 2 of its lines", symbols.ErrLines)
	hints = summarize(r, names).hints()
	assert.Check(t, slices.ContainsFunc(hints, func(hint string) bool {
		return strings.HasPrefix(hint, "code in memory of shop (101) is not all in its perf map: have it written") &&
			strings.Contains(hint, ". Not all of it was used: reading perf map: there is no start, size and name")
	}), "%q", hints)
}

// That functions of a runtime are not read is a hint, also that a perf map has some; of others there is none.
func TestHintsOfScripts(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/perl": "Perl", "/usr/lib/libperl.so.5.36": "Perl",
		"/usr/bin/ruby3.1": "Ruby", "/usr/lib/libruby-3.1.so.3.1": "Ruby", "/usr/lib/dotnet/libcoreclr.so": ".NET",
		"/usr/lib/erlang/bin/beam.smp": "Erlang", "/usr/bin/luajit-2.1.0": "LuaJIT", "/usr/bin/perlite": "",
		"/usr/bin/phpx": "",
	} {
		r, names := fixture(t)
		perfMaps := names.perfMaps
		names.perfMaps = nil
		r.Stacks[stackID(1)][0].File = &profile.File{ID: profile.FileID{9}, Kind: profile.NativeFrame, Path: path}
		hints := strings.Join(summarize(r, names).hints(), "\n")
		assert.Check(t, strings.Contains(hints, " runs by "+want+" are not shown") == (want != "") &&
			strings.Count(hints, "are not shown") <= 1, "%s: %s", path, hints)
		names.perfMaps = perfMaps
		_, compiles := compilers[want]
		hints = strings.Join(summarize(r, names).hints(), "\n")
		assert.Check(t, strings.Contains(hints, " runs by "+want+" are shown only where they are in its perf map") ==
			(want != "" && !compiles) && !strings.Contains(hints, "are not shown"), "%s: %s", path, hints)
	}
}

// Of Python and Node.js no hint is about frame pointers or jcmd, which do not help them; if the unwinding engine could
// not read the runtime, that is the hint.
func TestHintsOfInterpreters(t *testing.T) {
	for path, want := range map[string][]string{
		"/usr/bin/node":               {"are found with --unwinder auto alone", "with --perf-basic-prof"},
		"/usr/lib/libnode.so.108":     {"are found with --unwinder auto alone", "with --perf-basic-prof"},
		"/usr/bin/python3.12":         {"are found with --unwinder auto alone"},
		"/usr/sbin/php-fpm8.2":        {"are found with --unwinder auto alone"},
		"/usr/lib/libpython3.12.so.1": {"are found with --unwinder auto alone"},
		"/usr/bin/nodeset":            {"keeps no frame pointers", "jcmd"},
		"/usr/bin/pythonista":         {"keeps no frame pointers", "jcmd"},
	} {
		for _, refused := range []bool{false, true} {
			r, names := fixture(t)
			shop := r.Processes[0]
			r.Stacks[stackID(1)] = r.Stacks[stackID(1)][:2]
			r.Stacks[stackID(1)][0].File = &profile.File{ID: profile.FileID{9}, Kind: profile.NativeFrame, Path: path}
			for _, of := range names.names {
				for addr := range of.Code {
					of.Code[addr] = ""
				}
			}
			names.perfMaps = map[*record.Process]error{shop: os.ErrNotExist}
			if refused && !strings.HasSuffix(want[len(want)-1], "jcmd") {
				r.Refused = map[*record.Process]string{shop: "V8: \x1b 100% unknown"}
				want = []string{"functions of shop (101) have no names, as the unwinding engine cannot read its " +
					`runtime: V8: \x1b 100% unknown`}
			}
			of := func(hint string) bool { return strings.Contains(hint, "shop") }
			hints := slices.DeleteFunc(summarize(r, names).hints(), func(hint string) bool { return !of(hint) })
			assert.Assert(t, len(hints) == len(want), "%s: %q", path, hints)
			for i := range want {
				assert.Check(t, strings.Contains(hints[i], want[i]), "%s: %q", path, hints)
			}
		}
	}
}
