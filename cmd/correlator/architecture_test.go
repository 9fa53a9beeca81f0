package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// rooms are the directories of the house from the ground up. A package imports packages of its own room
// and of those listed before it. The longest directory that contains a package is its room.
var rooms = []string{
	"internal/host",
	"elfsym", "memread", "procscan", "tlsdesc", "bpf", "profile", "messaging",
	"otlp", "opencensus", "dots",
	"internal/worker",
	"internal/names",
	"internal/attach",
	"internal/stacks",
	"internal/out",
	"internal/operate",
	"cmd/correlator",
}

// outside are the directories that only tests, generators and commands of the developers import.
var outside = []string{"internal/lab", "deploy", "dots/internal", "otlp/internal", "opencensus/internal",
	"procscan/internal", "internal/worker/access/accesstest"}

// Imports point one way, and nothing of the program imports what is for tests.
func TestArchitecture(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "correlator/...")
	list.Dir = "../.."
	list.Stderr = os.Stderr // modules are downloaded, perhaps
	out, err := list.Output()
	assert.NilError(t, err)
	used := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		var ours []string
		for _, path := range strings.Fields(line) {
			if path, is := strings.CutPrefix(path, "correlator/"); is {
				ours = append(ours, path)
			}
		}
		pkg, imports := ours[0], ours[1:]
		if longest(outside, pkg) >= 0 {
			continue
		}
		room := longest(rooms, pkg)
		if room < 0 {
			t.Errorf("%s is in no room", pkg)
			continue
		}
		used[rooms[room]] = true
		for _, path := range imports {
			assert.Check(t, longest(outside, path) < 0 && longest(rooms, path) <= room,
				"%s imports %s, which is above it or for tests only", pkg, path)
		}
	}
	for _, room := range rooms {
		assert.Check(t, used[room], "there is nothing in %s", room)
	}
}

func longest(dirs []string, pkg string) int {
	found := -1
	for i, dir := range dirs {
		if (pkg == dir || strings.HasPrefix(pkg, dir+"/")) && (found < 0 || len(dir) > len(dirs[found])) {
			found = i
		}
	}
	return found
}

// Every test, fuzz target and benchmark that a page names exists.
func TestDocsNameTests(t *testing.T) {
	grep := func(pattern string, files ...string) string {
		args := append([]string{"-C", "../..", "grep", "-hoE", pattern, "--"}, files...)
		out, err := exec.Command("git", args...).Output()
		assert.NilError(t, err)
		return string(out)
	}
	existing := grep(`^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+\(`, "*_test.go")
	for name := range strings.Lines(grep("`(Test|Fuzz|Benchmark)[A-Za-z0-9_]+`", "*.md")) {
		if !strings.Contains(existing, "func "+strings.Trim(name, "`\n")+"(") {
			t.Errorf("there is no %s", strings.TrimSpace(name))
		}
	}
}
