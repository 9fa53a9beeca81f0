package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unmapped are packages that do not belong to a layer: commands, and support of tests.
var unmapped = []string{"cmd/correlator", "deploy", "internal/backend", "internal/backend/show", "internal/demo",
	"internal/kernels", "internal/kernels/console", "dots/internal/demo", "dots/internal/gen",
	"internal/access/accesstest", "internal/testenv", "internal/testenv/browser", "internal/testenv/fusefs",
	"opencensus/internal/client", "dots/internal/throughput", "otlp/internal/throughput", "procscan/internal/child"}

// ARCHITECTURE.md names every package with the packages of ours that it imports, which stand above.
func TestArchitecture(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string][]string)
	name := regexp.MustCompile("`([^`]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*)\\|[^|]*\\|[^|]*\\|$").FindAllStringSubmatch(string(page), -1) {
		imports := []string{}
		for _, of := range name.FindAllStringSubmatch(row[2], -1) {
			if _, above := said[of[1]]; !above {
				t.Errorf("%s imports %s, which does not stand above it", row[1], of[1])
			}
			imports = append(imports, of[1])
		}
		said[row[1]] = imports
	}

	list := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "correlator/...")
	list.Dir = "../.."
	list.Stderr = os.Stderr // modules are downloaded, perhaps
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var ours []string
		for _, path := range strings.Fields(line) {
			if of, is := strings.CutPrefix(path, "correlator/"); is {
				ours = append(ours, of)
			}
		}
		pkg, imports := ours[0], ours[1:]
		slices.Sort(imports)
		imports = slices.DeleteFunc(imports, func(of string) bool { return slices.Contains(unmapped, of) })
		expected, mapped := said[pkg]
		switch {
		case mapped == slices.Contains(unmapped, pkg):
			t.Errorf("%s stands on the page: %v", pkg, mapped)
		case mapped && !slices.Equal(imports, expected):
			t.Errorf("%s imports %q, the page says %q", pkg, imports, expected)
		}
	}
}

// Every test, fuzz target and benchmark that a page names exists.
func TestDocsNameTests(t *testing.T) {
	grep := func(pattern string, files ...string) string {
		args := append([]string{"-C", "../..", "grep", "-hoE", pattern, "--"}, files...)
		out, err := exec.Command("git", args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	existing := grep(`^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+\(`, "*_test.go")
	for name := range strings.Lines(grep("`(Test|Fuzz|Benchmark)[A-Za-z0-9_]+`", "*.md")) {
		if !strings.Contains(existing, "func "+strings.Trim(name, "`\n")+"(") {
			t.Errorf("there is no %s", strings.TrimSpace(name))
		}
	}
}
