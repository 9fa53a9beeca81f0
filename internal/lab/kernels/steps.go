package main

import (
	"path"
	"slices"
	"strings"
	"time"
)

// A suite is the tests of a package that depend on the kernel.
type suite struct {
	pkg   string
	name  string // in the table, if not that of the package
	run   string // only the tests that match, if not empty
	quick bool   // also in a short run
	v1    bool   // see step.CgroupV1
}

// leftOut are tests, by package, that fail for no reason but the slowness of emulated CPUs.
var leftOut = map[string][]test{
	"memread":                  {{Name: "TestSlotRewrittenWithoutPause", Output: "its many rounds take too long"}},
	"internal/attach/process":  {{Name: "TestReadPagedOut", Output: readingTime}},
	"internal/stacks/sampling": {{Name: "TestProcessSamplerSpan", Output: readingTime}},
	"internal/out/record":      {{Name: "TestRecordingPagedOut", Output: readingTime}},
	"internal/out/agent":       {{Name: "TestSampledSlotsNotResident", Output: readingTime}},
}

const readingTime = "reading a slot takes longer than it may (10 ms)"

// maySkip are the reasons for which tests may be skipped, parts of what they log, by kernel (none:
// all of them). For any other, a run fails.
var maySkip = []struct {
	reason  string
	kernels []string
}{
	{"PROCMAP_QUERY", []string{"amd64-5.10", "amd64-6.1", "arm64-6.1"}},
	{"SO_PASSPIDFD", []string{"amd64-5.10", "amd64-6.1", "arm64-6.1"}},
	{"needs Linux 6.1: task iterators of one process", []string{"amd64-5.10"}},
	{"bpf_task_pt_regs", []string{"amd64-5.10"}},
	{"a sched_switch tracepoint that tells the state", []string{"amd64-5.10"}},
	{"no memory controller of cgroups version 1", []string{"amd64-6.12", "amd64-7.2", "arm64-6.12"}},
	{"knows the instruction of x86-64", []string{"arm64-6.1", "arm64-6.12"}},
	{"this machine cannot be suspended to memory", []string{"arm64-6.1", "arm64-6.12"}},

	// The guest has its memory only.
	{"a directory on a disk", nil},

	// The guest has a JRE, no other runtimes, and no other compilers.
	{"needs the program go ", nil},
	{"needs the program javac ", nil},
	{"needs the program node ", nil},
	{"needs the program python3 ", nil},
	{"needs the program aarch64-linux-gnu-gcc ", nil},
	{"needs the program qemu-aarch64-static ", nil},
	{"needs JDK 25 ", nil},
	{"needs a JDK in /usr/lib/jvm/temurin-25-jdk-", nil},
}

// mayBeSkipped reports whether a test may be skipped for a reason.
func mayBeSkipped(kernel, reason string) bool {
	for _, s := range maySkip {
		if strings.Contains(reason, s.reason) && (s.kernels == nil || slices.Contains(s.kernels, kernel)) {
			return true
		}
	}
	return false
}

var suites = []suite{
	// First: see step.CgroupV1.
	{pkg: "cmd/correlator", name: "cgroups version 1", run: "^TestCgroupV1$", quick: true, v1: true},
	{pkg: "cmd/correlator", name: "end to end", run: "^TestEndToEnd$", quick: true},
	{pkg: "cmd/correlator", name: "CPU hotplug", run: "^TestHotplug$", quick: true},
	{pkg: "memread", quick: true},
	{pkg: "internal/host/kallsyms", quick: true},
	{pkg: "internal/names/symbols"},
	{pkg: "profile"},
	{pkg: "internal/host/safedir", quick: true},
	{pkg: "internal/host/timerfd", quick: true},
	{pkg: "internal/host/priority"},
	{pkg: "procscan", quick: true},
	{pkg: "procscan/watch"},
	{pkg: "messaging"},
	{pkg: "internal/worker"},
	{pkg: "internal/attach/mempoll"},
	{pkg: "internal/worker/access"},
	{pkg: "internal/attach/process"},
	{pkg: "tlsdesc"},
	{pkg: "bpf"},
	{pkg: "internal/operate/inspect"},
	{pkg: "internal/stacks/unwind"},
	{pkg: "internal/stacks/sampling"},
	{pkg: "internal/attach/lifecycle"},
	{pkg: "internal/out/record"},
	{pkg: "internal/out/agent", run: "^TestSampled"},
	{pkg: "cmd/correlator", name: "circumstances (check)", run: "^TestCircumstances$"},
	{pkg: "cmd/correlator", name: "capabilities", run: "^TestRights"},
	// After these the kernel may take its clock, the CPU's counter, for unstable, and use one that
	// is slow to read.
	{pkg: "cmd/correlator", name: "clock, suspend", run: "^Test(HotplugWhileRecording|ClockSet|Suspend|Stall|Pause)$"},
	// Last: what these set cannot be taken back.
	{pkg: "cmd/correlator", name: "settings", run: "^(TestContextWithoutNames|TestKernelOptions)$", quick: true},
}

// testTimeout is for the tests of one package: they take 20 to 50 times as long as without
// emulation.
const testTimeout = 20 * time.Minute

// planOf returns the suites as steps, and their packages.
func planOf(suites []suite) (p plan, packages []string) {
	for _, s := range suites {
		args := []string{path.Join(testsDir, path.Base(s.pkg)+".test"), "-test.v=test2json", "-test.short",
			"-test.paniconexit0", "-test.timeout=" + (testTimeout - 10*time.Second).String()}
		if s.run != "" {
			args = append(args, "-test.run="+s.run)
		}
		var skip []string
		for _, t := range leftOut[s.pkg] {
			skip = append(skip, "^"+t.Name+"$")
		}
		if skip != nil {
			args = append(args, "-test.skip="+strings.Join(skip, "|"))
		}
		p.Steps = append(p.Steps, step{
			Name: s.title(), Dir: path.Join(sourceDir, s.pkg), Args: args, Timeout: testTimeout,
			Env: []string{"PATH=/usr/sbin:/usr/bin", "HOME=/root"}, CgroupV1: s.v1,
		})
		if pkg := "./" + s.pkg; !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	return p, packages
}

func (s *suite) title() string { return valueOr(s.name, s.pkg) }

// selectSuites returns those that a short run has, or those of packages, or tests of them if run is
// given.
func selectSuites(quick bool, packages, run string) (selected []suite) {
	for pkg := range strings.FieldsSeq(packages) {
		of := slices.DeleteFunc(slices.Clone(suites), func(s suite) bool { return s.pkg != pkg })
		if run != "" || len(of) == 0 {
			of = []suite{{pkg: pkg, run: run, v1: strings.Contains(run, "CgroupV1")}}
		}
		selected = append(selected, of...)
	}
	if selected != nil {
		return selected
	}
	for _, s := range suites {
		if s.quick || !quick {
			selected = append(selected, s)
		}
	}
	return selected
}
