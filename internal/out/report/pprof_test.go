package report

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/names/symbolizer"
	"correlator/internal/names/symbols"
	"correlator/internal/out/record"
	"correlator/profile"
)

// stackID is an id like no other.
func stackID(n byte) profile.StackTraceID { return profile.StackTraceID{n} }

// fixture is a recording of two processes with frames of every sort, and names of most of them.
func fixture(t testing.TB) (*record.Recording, *symbolNames) {
	t.Helper()
	library := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, BuildID: "0123456789abcdef",
		Path: "/usr/lib/libshop.so"}
	stripped := &profile.File{ID: profile.FileID{2}, Kind: profile.NativeFrame,
		Path: "/nonexistent/stripped\x1b[31m.so"}
	vmlinux := &profile.File{ID: profile.FileID{3}, Kind: profile.KernelFrame, BuildID: "fedc",
		Path: symbolizer.VMLinuxPath}
	module := &profile.File{ID: profile.FileID{4}, Kind: profile.KernelFrame, BuildID: "ba98", Path: "nf_tables"}
	shop := &record.Process{PID: 101, Service: "shop", Environment: "production", ContainerID: "8d3f"}
	cart := &record.Process{PID: 102, Service: "cart\x1b[2J"}
	r := &record.Recording{
		Start: time.Unix(1700000000, 0), Duration: 30 * time.Second, SamplesPerSecond: 100,
		Processes: []*record.Process{shop, cart},
		Stacks: map[profile.StackTraceID][]profile.Frame{
			stackID(1): {{File: library, Address: 0x1010}, {Address: 0x7f0000001010}, {Address: 0x7f0000009999},
				{File: library, Address: 0x2020}},
			stackID(2): {{File: vmlinux, Address: 0x40}, {File: module, Address: 0x10}, {Address: 1<<63 + 5},
				{File: stripped, Address: 0x3000}},
		},
		Samples: map[record.Key]uint64{
			{Process: shop, TID: 111, Thread: "worker", TraceID: [16]byte{0xAB, 1}, TransactionID: [8]byte{0xCD, 2},
				Stack: stackID(1)}: 70,
			{Process: shop, TID: 111, Thread: "worker", TraceID: [16]byte{0xAB, 1}, TransactionID: [8]byte{0xCD, 3},
				Stack: stackID(1)}: 20,
			{Process: shop, TID: 112, Stack: stackID(2)}:                      3,
			{Process: cart, TID: 121, Thread: "a\nthread", Stack: stackID(1)}: 7,
		},
	}
	native := map[profile.FileID]map[uint64]string{library.ID: {0x1010: "_ZN4shop8checkoutEv", 0x2020: "main"}}
	demangled := map[string]string{"_ZN4shop8checkoutEv": "shop::checkout"}
	kernel := symbols.NewQuery([]uint64{0xffffffff81000040, 0xffffffffc0000010})
	names(t, kernel, "ffffffff81000040 10 do_syscall_64\nffffffffc0000000 20 nft_do_chain\n")
	return r, &symbolNames{
		names: map[*record.Process]symbolizer.Names{
			shop: {Native: native, Demangled: demangled,
				Code: map[uint64]string{0x7f0000001010: "void Demo.price()", 0x7f0000009999: ""}},
			cart: {Native: native, Demangled: demangled,
				Code: map[uint64]string{0x7f0000001010: "void Cart.add()", 0x7f0000009999: ""}},
		},
		kernel: symbolizer.NewKernelNames(kernel, map[string]uint64{symbolizer.VMLinuxPath: 0xffffffff81000000,
			"nf_tables": 0xffffffffc0000000}),
		perfMaps: map[*record.Process]error{shop: nil, cart: nil},
	}
}

func names(t testing.TB, q *symbols.Query, perfMap string) {
	t.Helper()
	assert.NilError(t, q.ReadPerfMap(strings.NewReader(perfMap), int64(len(perfMap))))
}

func TestProfile(t *testing.T) {
	r, names := fixture(t)
	p := buildProfile(r, names)
	assert.NilError(t, p.CheckValid())
	assert.Check(t, p.TimeNanos == 1700000000e9 && p.DurationNanos == 30e9 && p.Period == 10e6 &&
		p.PeriodType.Type == "cpu" && p.DefaultSampleType == "cpu",
		p)
	first := p.Sample[0]
	wantLabels := map[string]string{"trace_id": "ab010000000000000000000000000000",
		"transaction_id": "cd02000000000000", "service": "shop",
		"environment": "production", "container_id": "8d3f", "thread": "worker"}
	for label, want := range wantLabels {
		got := first.Label[label]
		assert.Check(t, len(got) == 1 && got[0] == want, "%s is %q, want %q", label, got, want)
	}
	assert.Check(t, len(first.Label) == len(wantLabels) && first.NumLabel["pid"][0] == 101 &&
		first.NumLabel["tid"][0] == 111 && first.Value[0] == 70 && first.Value[1] == 700e6,
		"%+v", first)
	// Per sample, leaf first. Equal addresses of two processes without a file are two locations.
	want := []string{
		"libshop.so shop::checkout|[jit 101] Demo.price|[jit 101] [jit]|libshop.so main",
		"libshop.so shop::checkout|[jit 101] Demo.price|[jit 101] [jit]|libshop.so main",
		`[kernel.kallsyms] do_syscall_64|[nf_tables] nft_do_chain|[kernel] [kernel]|stripped\x1b[31m.so 0x3000`,
		"libshop.so shop::checkout|[jit 102] Cart.add|[jit 102] [jit]|libshop.so main",
	}
	for i, sample := range p.Sample {
		got := describe(sample)
		assert.Check(t, got == want[i], "sample %d: %s\nwant %s", i, got, want[i])
	}
	got := p.Sample[3].Label
	assert.Check(t, got["thread"][0] == `a\nthread` && got["service"][0] == `cart\x1b[2J` && got["trace_id"] == nil,
		"%q", got)
	// pprof leaves names alone where there are two, and demangles otherwise.
	for _, f := range p.Function {
		want := cmp.Or(map[string]string{"shop::checkout": "_ZN4shop8checkoutEv"}[f.Name], f.Name)
		assert.Check(t, f.SystemName == want, "%s is %s to the system", f.Name, f.SystemName)
	}
	if m := p.Mapping[0]; m.File != "/usr/lib/libshop.so" || m.BuildID != "0123456789abcdef" || !m.HasFunctions ||
		len(p.Mapping) != 7 {
		t.Errorf("%+v, %d mappings", m, len(p.Mapping))
	}
}

// Attributes are labels, but for those with the name of another label, and part of the order.
func TestAttributeLabels(t *testing.T) {
	p := &record.Process{PID: 101, Service: "shop"}
	r := &record.Recording{SamplesPerSecond: 100, Processes: []*record.Process{p}, Samples: make(map[record.Key]uint64),
		Stacks: map[profile.StackTraceID][]profile.Frame{stackID(1): {{Address: 1}}}}
	for i, list := range [][]profile.Attribute{
		{{Key: "http.route", Value: "/b"}}, {{Key: "http.route", Value: "/a\x1b"}, {Key: "k\n", Value: "v"}},
		{{Key: "service", Value: "forged"}, {Key: "span_id", Value: "forged"}, {Key: "pid", Value: "1"},
			{Key: "", Value: "x"}, {Key: "empty", Value: ""}, {Key: "k\xff", Value: "first"}, {Key: `k\xff`, Value: "same"}}, nil,
	} {
		r.Samples[record.Key{Process: p, Stack: stackID(1), Attributes: profile.NewAttributes(list)}] = uint64(i + 1)
	}
	got := make(map[int64]map[string][]string)
	for _, s := range buildProfile(r, &symbolNames{}).Sample {
		got[s.Value[0]] = s.Label
	}
	service := []string{"shop"}
	want := map[int64]map[string][]string{
		1: {"service": service, "http.route": {"/b"}}, 2: {"service": service, "http.route": {`/a\x1b`}, `k\n`: {"v"}},
		3: {"service": service, `k\xff`: {"same"}}, 4: {"service": service},
	}
	assert.Check(t, reflect.DeepEqual(got, want), got)
}

// Transactions whose id is not known are those of their traces: no id of zeros is shown, which all would share.
func TestTransactionsWithoutID(t *testing.T) {
	r := unwound(t)
	r.Samples = map[record.Key]uint64{
		{Process: r.Processes[0], TraceID: [16]byte{1}, Stack: stackID(1)}:                               3,
		{Process: r.Processes[0], TraceID: [16]byte{2}, Stack: stackID(1)}:                               2,
		{Process: r.Processes[1], TraceID: [16]byte{3}, TransactionID: [8]byte{0xCD}, Stack: stackID(1)}: 1,
	}
	for _, s := range buildProfile(r, &symbolNames{}).Sample {
		known := s.Value[0] == 1
		assert.Check(t, len(s.Label["trace_id"]) == 1 && (s.Label["transaction_id"] != nil) == known, "%v", s.Label)
	}
	s := summarize(r, nil)
	var text, page strings.Builder
	assert.NilError(t, s.write(&text))
	assert.NilError(t, writeHTML(&page, r, nil, About{}))
	row := regexp.MustCompile(`(?m)^-  +01000000000000000000000000000000 +shop +3 `)
	assert.Check(t, row.MatchString(text.String()) && strings.Contains(text.String(), "in 3 transactions"), "%s", &text)
	assert.Check(t, !strings.Contains(text.String()+page.String(), strings.Repeat("0", 32)) &&
		!strings.Contains(text.String()+page.String(), " 0000000000000000"), "%s", &text)
	assert.Check(t, s.topTransaction() == "cd00000000000000", "%s", s.topTransaction())
}

// unwound is a recording of a truncated stack of a JVM, with a function in a file and a compiled one,
// in two spans.
func unwound(*testing.T) *record.Recording {
	library := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: "/usr/lib/libjvm.so"}
	shop, cart := &record.Process{PID: 101, Service: "shop"}, &record.Process{PID: 102, Service: "cart"}
	pay := profile.NewFunction("shop.Checkout.pay", "Checkout.java")
	return &record.Recording{
		Start: time.Unix(1700000000, 0), Duration: 30 * time.Second, SamplesPerSecond: 100,
		Processes: []*record.Process{shop, cart},
		Stacks: map[profile.StackTraceID][]profile.Frame{
			stackID(1): {
				{File: library, Address: 0x10, Function: profile.NewFunction("JVM_Sleep", "jvm.cpp"), Line: 7},
				profile.NewJVMFrame(pay, 42), profile.NewJVMFrame(pay, 43),
				profile.NewJVMFrame(profile.NewFunction("shop.\x1b[2J", ""), 0),
				{Address: 0x7f0000001010, Function: profile.NewFunction("stub", "")}, profile.NewCutFrame(),
			},
			stackID(2): {profile.NewJVMFrame(pay, 42), profile.NewJVMFrame(pay, 42), profile.NewJVMFrame(pay, 42)},
		},
		Samples: map[record.Key]uint64{
			{Process: shop, TraceID: [16]byte{0xAB, 1}, TransactionID: [8]byte{0xCD, 2}, SpanID: [8]byte{0xEF, 3},
				Stack: stackID(1)}: 20,
			{Process: shop, TraceID: [16]byte{0xAB, 1}, TransactionID: [8]byte{0xCD, 2}, Stack: stackID(2)}: 10,
			{Process: cart, Stack: stackID(2)}: 50,
		},
	}
}

// Names, files and lines of an unwinder need no symbols, and its line numbers are no addresses.
func TestProfileOfUnwoundStacks(t *testing.T) {
	r := unwound(t)
	frames := want(r).processes
	for _, p := range r.Processes {
		of := frames[p]
		assert.Check(t, len(of.Code) == 0 && len(of.Files) == 0, "names are wanted of %+v", of)
	}
	p := buildProfile(r, nil)
	assert.NilError(t, p.CheckValid())
	lines := func(s *pprof.Sample) (texts []string) {
		for _, l := range s.Location {
			f := l.Line[0].Function
			texts = append(texts, fmt.Sprintf("%s %s (%s:%d) %#x", filepath.Base(l.Mapping.File), f.Name, f.Filename,
				l.Line[0].Line, l.Address))
		}
		return texts
	}
	const pay = "[jvm] shop.Checkout.pay (Checkout.java:42) 0x0"
	for i, want := range [][]string{
		{pay, pay, pay}, // in the transaction, without a span
		{"libjvm.so JVM_Sleep (jvm.cpp:7) 0x10", pay, "[jvm] shop.Checkout.pay (Checkout.java:43) 0x0",
			`[jvm] shop.\x1b[2J (:0) 0x0`, "[unknown] stub (:0) 0x7f0000001010",
			"[stack truncated] [stack truncated] (:0) 0x0"},
		{pay, pay, pay},
	} {
		got := lines(p.Sample[i])
		assert.Check(t, slices.Equal(got, want), "sample %d: %q\nwant %q", i, got, want)
	}
	if p.Sample[0].Location[0] != p.Sample[2].Location[0] || len(p.Location) != 6 {
		t.Errorf("%d locations: methods are the same in all processes", len(p.Location))
	}
	spans := []string{"", "ef03000000000000", ""}
	for i, s := range p.Sample {
		got := strings.Join(s.Label["span_id"], ",")
		assert.Check(t, got == spans[i], "sample %d is of span %q, want %q", i, got, spans[i])
	}
	m := p.Mapping[0]
	assert.Check(t, m.File == "/usr/lib/libjvm.so" && m.HasFunctions, "the first mapping is %+v", m)
}

func TestGoToolPprofOfUnwoundStacks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	_, err := saveProfile(path, buildProfile(unwound(t), nil))
	assert.NilError(t, err)
	for args, want := range map[string][]string{
		"-top":        {`800ms   100%  shop.Checkout.pay`, `200ms 25.00%  \[stack truncated\]`},
		"-top -lines": {`shop.Checkout.pay Checkout.java:42`, `JVM_Sleep jvm.cpp:7`},
		"-tags":       {`span_id: Total 200ms`},
	} {
		out := goToolPprof(t, append(strings.Fields(args), path)...)
		for _, one := range want {
			assert.Check(t, regexp.MustCompile(one).MatchString(out), "%s: no %s in\n%s", args, one, out)
		}
	}
}

func describe(sample *pprof.Sample) string {
	var frames []string
	for _, l := range sample.Location {
		name := "0x3000"
		if len(l.Line) > 0 {
			name = l.Line[0].Function.Name
		} else if l.Address != 0x3000 {
			name = "?"
		}
		frames = append(frames, filepath.Base(l.Mapping.File)+" "+name)
	}
	return strings.Join(frames, "|")
}

// The same recording gives the same bytes, wherever maps and pointers happen to lie.
func TestProfileIsDeterministic(t *testing.T) {
	var first bytes.Buffer
	for i := range 10 {
		r, names := fixture(t)
		for n := range 10 { // that differ in their attributes alone
			attributes := profile.NewAttributes([]profile.Attribute{{Key: "n", Value: fmt.Sprint(n)}})
			r.Samples[record.Key{Process: r.Processes[0], Stack: stackID(1), Attributes: attributes}] = 1
		}
		var again bytes.Buffer
		assert.NilError(t, buildProfile(r, names).Write(&again))
		if i == 0 {
			first = again
		} else if !bytes.Equal(first.Bytes(), again.Bytes()) {
			t.Fatal("another profile of the same recording")
		}
	}
}

// writeProfile writes the profile of the fixture and returns its path.
func writeProfile(t *testing.T) string {
	t.Helper()
	r, names := fixture(t)
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	_, err := saveProfile(path, buildProfile(r, names))
	assert.NilError(t, err)
	return path
}

func goToolPprof(t *testing.T, args ...string) string {
	t.Helper()
	testenv.NeedTool(t, "go")
	tool, err := pprofTool()
	assert.NilError(t, err, "finding go tool pprof")
	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	assert.NilError(t, err, "go tool pprof %v: %v\n%s", args, err, &stderr)
	return string(out)
}

// pprofTool returns the program, which the go command may have to build first: without libc, as it builds releases.
var pprofTool = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-n", "pprof")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	path, err := cmd.Output()
	return strings.TrimSpace(string(path)), err
})

// What people do with a profile, done with the tool that they use.
func TestGoToolPprof(t *testing.T) {
	path := writeProfile(t)
	for _, test := range []struct {
		args []string
		want []string // regular expressions
		not  string
	}{
		{[]string{"-raw"}, []string{`PeriodType: cpu nanoseconds`, `Period: 10000000`, `Duration: 30s`,
			`samples/count cpu/nanoseconds\[dflt\]`,
			`70  700000000: `, `pid:\[101\]|transaction_id:\[cd02000000000000\]`, `Mappings`,
			`1: 0x0/0xffffffffffffffff/0x0 /usr/lib/libshop.so 0123456789abcdef \[FN\]`}, ""},
		{[]string{"-top"}, []string{`File: libshop.so`, `Type: cpu`, `Total samples = 1000ms`,
			`970ms 97.00% .* shop::checkout`,
			`30ms .* do_syscall_64`, `900ms 90.00%  Demo.price`, `970ms 97.00%  main`}, "\x1b"},
		{[]string{"-top", "-tagfocus=transaction_id=cd02000000000000"},
			[]string{`700ms 70.00% .* shop::checkout`, `main`}, "do_syscall_64|Cart.add"},
		{[]string{"-top", "-tagfocus=service=cart.*"}, []string{`70ms`, `Cart.add`}, "Demo.price"},
		{[]string{"-top", "-tagfocus=pid=102"}, []string{`70ms`, `Cart.add`}, "Demo.price"},
		{[]string{"-top", "-sample_index=samples"}, []string{`Type: samples`, `97 97.00% .* shop::checkout`}, ""},
		{[]string{"-top", "-addresses"}, []string{`0000000000003000 \[stripped\\x1b\[31m.so\]`}, "\x1b"},
		{[]string{"-tags"}, []string{`pid: Total 1s of 1s`, `930ms \(93.00%\): 101\n`,
			`transaction_id: Total 900ms of 1s`,
			`700ms \(70.00%\): cd02000000000000`, `200ms \(20.00%\): cd03000000000000`}, "\x1b"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			out := goToolPprof(t, append(test.args, path)...)
			for _, want := range test.want {
				assert.Check(t, regexp.MustCompile(want).MatchString(out), "no %s in\n%s", want, out)
			}
			assert.Check(t, test.not == "" || !regexp.MustCompile(test.not).MatchString(out),
				"%q in\n%s", test.not, out)
		})
	}
}

// What has no name here, pprof finds in the file, also when other functions of the file have names.
// That of Go can do so with what Go has compiled.
func TestLeftToPprof(t *testing.T) {
	path, err := os.Executable()
	assert.NilError(t, err)
	file := &profile.File{ID: profile.FileID{1}, Kind: profile.NativeFrame, Path: path}
	own := profile.Frame{File: file, Address: uint64(reflect.ValueOf(TestLeftToPprof).Pointer()) +
		1} // loaded where it is linked to be
	other := profile.Frame{File: file, Address: 1}
	p := &record.Process{PID: 1}
	r := recording(map[*record.Process][]profile.Frame{p: {other, own}})
	known := map[uint64]string{other.Address: "known_here"}
	output := filepath.Join(t.TempDir(), "out.pb.gz")
	_, err = saveProfile(output, buildProfile(r, &symbolNames{
		names: map[*record.Process]symbolizer.Names{p: {Native: map[profile.FileID]map[uint64]string{file.ID: known}}},
	}))
	assert.NilError(t, err)
	top := goToolPprof(t, "-top", output)
	for _, want := range []string{"known_here", "TestLeftToPprof"} {
		assert.Check(t, strings.Contains(top, want), "no %s in\n%s", want, top)
	}
}

// The flame graph is a page of the server that -http starts.
func TestFlameGraph(t *testing.T) {
	path := writeProfile(t)
	testenv.NeedTool(t, "go")
	tool, err := pprofTool()
	assert.NilError(t, err)
	cmd := exec.Command(tool, "-http=127.0.0.1:", "-no_browser", path)
	stderr, err := cmd.StderrPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	address := ""
	for lines := bufio.NewScanner(stderr); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "Serving web UI on ")
	}
	var response *http.Response
	testenv.Poll(t, time.Minute, "the server to listen", func() bool { // which it does after it has said so
		response, err = http.Get(address + "/ui/flamegraph?tf=transaction_id%3Dcd03000000000000")
		return err == nil
	})
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	assert.NilError(t, err)
	for _, want := range []string{"Demo.price", "shop::checkout"} {
		assert.Check(t, bytes.Contains(page, []byte(want)), "no %s in the flame graph", want)
	}
	assert.Check(t, !bytes.Contains(page, []byte("do_syscall_64")), "the flame graph shows another transaction")
}

// A profile is called by its first mapping, a file, even if other code took more time.
func TestFirstMapping(t *testing.T) {
	r, names := fixture(t)
	compiled := r.Stacks[stackID(1)]
	compiled[0], compiled[1] = compiled[1], compiled[0]
	first := buildProfile(r, names).Mapping[0].File
	assert.Check(t, strings.HasPrefix(first, "/"), "the first mapping is %s", first)
}

// Frames of each runtime are in a mapping of its own, without addresses.
func TestProfileOfRuntimes(t *testing.T) {
	process := &record.Process{PID: 101}
	r := &record.Recording{
		Start: time.Unix(1700000000, 0), Duration: time.Second, SamplesPerSecond: 100,
		Processes: []*record.Process{process},
		Stacks: map[profile.StackTraceID][]profile.Frame{stackID(1): {
			profile.NewRuntimeFrame(profile.PythonFrame, profile.NewFunction("Work.run", "/srv/work.py"), 7),
			profile.NewRuntimeFrame(profile.V8Frame, profile.NewFunction("run", "/srv/work.js"), 8),
		}},
		Samples: map[record.Key]uint64{{Process: process, Stack: stackID(1)}: 1},
	}
	p := buildProfile(r, nil)
	assert.NilError(t, p.CheckValid())
	for i, want := range []string{
		"[cpython] Work.run /srv/work.py:7", "[v8js] run /srv/work.js:8",
	} {
		l := p.Sample[0].Location[i]
		f := l.Line[0].Function
		got := fmt.Sprintf("%s %s %s:%d", l.Mapping.File, f.Name, f.Filename, l.Line[0].Line)
		assert.Check(t, got == want && l.Address == 0, "%s at %#x, want %s", got, l.Address, want)
	}
}
