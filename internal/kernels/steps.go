package main

import (
	"path"
	"time"
)

// testedPackages are those whose tests depend on the kernel.
var testedPackages = []string{
	"bpf",
}

// testTimeout is for the tests of one package. On an idle machine of 2020 they take some 20 times
// as long as without emulation.
const testTimeout = 15 * time.Minute

// testPlan runs the tests of packages.
func testPlan(packages []string, run string) (p plan) {
	for _, pkg := range packages {
		args := []string{path.Join(testsDir, path.Base(pkg)+".test"), "-test.v=test2json",
			"-test.timeout=" + (testTimeout - 10*time.Second).String()}
		if run != "" {
			args = append(args, "-test.run="+run)
		}
		p.Steps = append(p.Steps, step{
			Name: pkg, Dir: path.Join(sourceDir, pkg), Args: args, Timeout: testTimeout,
			Env: []string{"PATH=/usr/sbin:/usr/bin", "HOME=/root"},
		})
	}
	return p
}
