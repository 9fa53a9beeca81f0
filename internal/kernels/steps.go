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
	skip  string // without the tests that match, if not empty
	why   string // for what skip matches
	quick bool   // also in a short run
}

const (
	tooSlow     = "left out: too slow under emulation"
	readingTime = "left out: emulated, reading a slot takes longer than it may (200 µs)"
)

var suites = []suite{
	{pkg: "cmd/correlator", run: "^TestEndToEnd$", quick: true},
	{pkg: "cmd/correlator", name: "CPU hotplug", run: "^TestHotplug$", quick: true},
	{pkg: "cmd/correlator", name: "clock, suspend", run: "^Test(HotplugWhileRecording|ClockSet|Suspend|Stall)$"},
	{pkg: "memread", skip: "^TestSlotRewrittenWithoutPause$", why: tooSlow, quick: true},
	{pkg: "internal/kallsyms", quick: true},
	{pkg: "internal/safedir", quick: true},
	{pkg: "internal/timerfd", quick: true},
	{pkg: "procscan", quick: true},
	{pkg: "procscan/watch"},
	{pkg: "messaging"},
	{pkg: "internal/worker"},
	{pkg: "internal/mempoll"},
	{pkg: "internal/access"},
	{pkg: "internal/process", skip: "^TestReadPagedOut$", why: readingTime},
	{pkg: "tlsdesc"},
	{pkg: "bpf"},
	{pkg: "internal/unwind"},
	{pkg: "internal/sampling", skip: "^TestProcessSamplerSpan$", why: readingTime},
	{pkg: "internal/lifecycle"},
	{pkg: "internal/record"},
	{pkg: "internal/agent"},
}

// testTimeout is for the tests of one package: they take 20 to 50 times as long as without
// emulation.
const testTimeout = 20 * time.Minute

// planOf returns the suites as steps, and their packages.
func planOf(suites []suite) (p plan, packages []string) {
	for _, s := range suites {
		args := []string{path.Join(testsDir, path.Base(s.pkg)+".test"), "-test.v=test2json", "-test.short",
			"-test.timeout=" + (testTimeout - 10*time.Second).String()}
		if s.run != "" {
			args = append(args, "-test.run="+s.run)
		}
		if s.skip != "" {
			args = append(args, "-test.skip="+s.skip)
		}
		p.Steps = append(p.Steps, step{
			Name: s.title(), Dir: path.Join(sourceDir, s.pkg), Args: args, Timeout: testTimeout,
			Env: []string{"PATH=/usr/sbin:/usr/bin", "HOME=/root"},
		})
		if pkg := "./" + s.pkg; !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	return p, packages
}

func (s *suite) title() string { return valueOr(s.name, s.pkg) }

// selectSuites returns those that a short run has, or those of packages, with other tests if run is
// given.
func selectSuites(quick bool, packages, run string) (selected []suite) {
	for pkg := range strings.FieldsSeq(packages) {
		s := suite{pkg: pkg}
		if i := slices.IndexFunc(suites, func(s suite) bool { return s.pkg == pkg }); i >= 0 {
			s = suites[i]
		}
		if run != "" {
			s.run = run
		}
		selected = append(selected, s)
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
