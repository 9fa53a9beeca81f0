package main

import (
	"path"
	"strings"
	"time"
)

// A suite is the tests of a package that depend on the kernel, or those of them that match run.
type suite struct {
	pkg, run string
	quick    bool // also in a short run
}

var suites = []suite{
	{"cmd/correlator", "^TestEndToEnd$", true},
	{"memread", "", true},
	{"messaging", "", true},
	{"procscan", "", true},
	{"procscan/watch", "", true},
	{"tlsdesc", "", false},
	{"internal/kallsyms", "", true},
	{"internal/safedir", "", true},
	{"internal/timerfd", "", true},
	{"internal/worker", "", false},
	{"internal/mempoll", "", false},
	{"internal/access", "", false},
	{"internal/processcontext", "", false},
	{"internal/process", "", false},
	{"bpf", "", false},
	{"internal/unwind", "", false},
	{"internal/sampling", "", false},
	{"internal/lifecycle", "", false},
	{"internal/record", "", false},
	{"internal/agent", "", false},
}

// testTimeout is for the tests of one package: they take 20 to 50 times as long as without
// emulation.
const testTimeout = 20 * time.Minute

// planOf returns the suites as steps, and their packages.
func planOf(suites []suite) (p plan, packages []string) {
	for _, s := range suites {
		args := []string{path.Join(testsDir, path.Base(s.pkg)+".test"), "-test.v=test2json",
			"-test.timeout=" + (testTimeout - 10*time.Second).String()}
		if s.run != "" {
			args = append(args, "-test.run="+s.run)
		}
		p.Steps = append(p.Steps, step{
			Name: s.pkg, Dir: path.Join(sourceDir, s.pkg), Args: args, Timeout: testTimeout,
			Env: []string{"PATH=/usr/sbin:/usr/bin", "HOME=/root"},
		})
		packages = append(packages, "./"+s.pkg)
	}
	return p, packages
}

// selectSuites returns those that a short run has, or those of packages, with other tests if run is
// given.
func selectSuites(quick bool, packages, run string) (selected []suite) {
	for pkg := range strings.FieldsSeq(packages) {
		selected = append(selected, suite{pkg: pkg, run: run})
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
