package main

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// notRun are packages with tests that need root, of which no kernel runs any, and why its version
// makes no difference to them.
var notRun = map[string]string{
	"deploy": "installs packages and images and boots systemd, none of which the guests have; what the agent " +
		"can do with the unit's capabilities on a kernel, cmd/correlator compares in TestKernelOptions",
	"internal/operate/check": "paths, as sockfile sees them; what kernels show, cmd/correlator compares with run",
	"internal/lab/demo": "the demo's own records, files and protocol; what kernels show of its processes, all suites see " +
		"that start them",
	"internal/lab/truth": "which functions are shown of programs beside what they do, which depends on their code; " +
		"how kernels have it walked, bpf and internal/stacks/unwind check",
	"internal/out/keep":        "root for the agent's workers alone: its samples are made up, and nothing of a process is read",
	"internal/operate/metrics": "compares an agent's counters in two forms; that they say what arrived, internal/out/agent checks",
	"internal/names/naming": "when names are asked for; those of the kernel are read by internal/names/symbols, the files of " +
		"processes opened by internal/worker/access and procscan",
	"internal/names/symbolizer": "rights, mounts and root directories of processes that tell views of a file apart, by fstat and " +
		"numbers of namespaces, which are those of Linux 3.8",
	"internal/out/report": "owners, modes and links of files, by safedir's calls; names are read by internal/names/symbols, " +
		"from files that internal/worker/access and procscan open",
	"internal/operate/serve": "an agent without a sampler is ended: sockets, channels and goroutines",
	"internal/host/sockfile": "bind, flock, groups and modes of sockets, which are those of Linux 2.6; paths are opened " +
		"by internal/host/safedir",
	"messaging/feed": "the mode of a socket keeps users out, as ever (unix(7)); process ids of senders are tests of " +
		"messaging",
	"opencensus/receiver": "the process at the other end, whose handle depends on SO_PEERPIDFD, is found by procscan " +
		"(TestPeer), its cgroup, too; users are those of SO_PEERCRED",
	"otlp/receiver": "shares of users, by SO_PEERCRED, and paths that internal/host/safedir opens",
}

// needsRoot matches calls that end a test without root.
const needsRoot = `(testenv\.(NeedRoot|NeedPriority|NeedUnwinding|Cgroup|ExchangeNames)|fusefs\.Mount)\(`

// No package whose tests touch the kernel is forgotten.
func TestSuites(t *testing.T) {
	grep := exec.Command("git", "-C", "../../..", "grep", "--untracked", "-lE", needsRoot, "--", "*_test.go")
	out, err := grep.Output()
	assert.NilError(t, err)
	var packages []string
	for file := range strings.Lines(string(out)) {
		packages = append(packages, path.Dir(file))
	}
	packages = slices.Compact(packages)
	assert.Assert(t, len(packages) >= len(notRun), "found only %q", packages)
	run := func(pkg string) bool { return slices.ContainsFunc(suites, func(s suite) bool { return s.pkg == pkg }) }
	for _, pkg := range packages {
		if _, known := notRun[pkg]; !known && !run(pkg) {
			t.Errorf("tests of %s need root: it belongs to suites, or, with a reason, to notRun", pkg)
		}
	}
	for pkg, reason := range notRun {
		assert.Check(t, !run(pkg) && slices.Contains(packages, pkg) && reason != "",
			"%s does not belong to notRun: it is run, or none of its tests needs root, or without reason", pkg)
	}
}

// Every test that is left out exists.
func TestLeftOut(t *testing.T) {
	for pkg, tests := range leftOut {
		sources, err := filepath.Glob(filepath.Join("../../..", pkg, "*_test.go"))
		assert.NilError(t, err)
		var all []byte
		for _, source := range sources {
			text, err := os.ReadFile(source)
			assert.NilError(t, err)
			all = append(all, text...)
		}
		for _, test := range tests {
			assert.Check(t, bytes.Contains(all, []byte("func "+test.Name+"(")), "%s has no %s", pkg, test.Name)
		}
	}
}
