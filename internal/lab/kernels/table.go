package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"correlator/internal/host/textcut"
)

// maxReason is how many bytes of a reason the table shows. The log has all.
const maxReason = 300

// table returns what ran, in Markdown: for each package and kernel the number of tests, and for each
// test that did not run or failed, why.
func table(results []result) string {
	var out strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	head, releases, commits := []string{""}, []string{"kernel"}, []string{"commit"}
	var names []string
	for _, r := range results {
		head, releases = append(head, r.ID), append(releases, valueOr(r.Release, "did not boot"))
		commits = append(commits, r.Commit)
		for _, s := range r.Steps {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	row(head...)
	fmt.Fprintln(&out, "|"+strings.Repeat("---|", len(head)))
	row(releases...)
	row(commits...)
	for _, name := range names {
		cells := []string{"`" + name + "`"}
		for _, r := range results {
			cells = append(cells, r.cell(name))
		}
		row(cells...)
	}
	for _, r := range results {
		if r.Error != "" {
			fmt.Fprintf(&out, "\n%s failed: %s\n", r.ID, r.Error)
		}
	}
	list := func(title, outcome string) {
		lines := notPassed(results, outcome)
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&out, "\n| %s | tests | kernels |\n|---|---|---|\n", title)
		for _, line := range lines {
			row(line.reason, line.tests(), line.where(results))
		}
	}
	list("failed", "fail")
	list("did not end", "")
	list("skipped because", "skip")
	return out.String()
}

func valueOr(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// cell is what a kernel did with the tests of a package.
func (r *result) cell(name string) string {
	i := slices.IndexFunc(r.Steps, func(s stepResult) bool { return s.Name == name })
	if i < 0 {
		return "not run"
	}
	s := r.Steps[i]
	cell := fmt.Sprintf("%d passed", s.Count["pass"])
	for _, c := range []struct{ outcome, name string }{
		{"skip", "skipped"}, {"fail", "failed"}, {"", "did not end"},
	} {
		if n := s.Count[c.outcome]; n > 0 {
			cell += fmt.Sprintf(", %d %s", n, c.name)
		}
	}
	if s.Error != "" && s.Count["fail"]+s.Count[""] == 0 {
		cell += ", " + s.Error
	}
	return cell
}

// notPassedLine is a reason why tests did not pass, with the tests and the kernels.
type notPassedLine struct {
	reason  string
	names   []string
	kernels []string
}

// notPassed returns the tests with an outcome, those with the same reason together.
func notPassed(results []result, outcome string) (lines []*notPassedLine) {
	for _, r := range results {
		for _, s := range r.Steps {
			for _, t := range s.Tests {
				if t.Outcome != outcome {
					continue
				}
				text := valueOr(t.Output, "no reason")
				if cut := textcut.At(text, maxReason); cut != text {
					text = cut + "…"
				}
				reason := strings.ReplaceAll(text, "|", "\\|")
				i := slices.IndexFunc(lines, func(l *notPassedLine) bool { return l.reason == reason })
				if i < 0 {
					i = len(lines)
					lines = append(lines, &notPassedLine{reason: reason})
				}
				lines[i].add("`"+s.Name+"`: "+t.Name, r.ID)
			}
		}
	}
	return lines
}

func (l *notPassedLine) add(name, kernel string) {
	if !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
	if !slices.Contains(l.kernels, kernel) {
		l.kernels = append(l.kernels, kernel)
	}
}

func (l *notPassedLine) tests() string { return strings.Join(l.names, ", ") }

func (l *notPassedLine) where(results []result) string {
	if len(l.kernels) == len(results) {
		return "all"
	}
	return strings.Join(l.kernels, ", ")
}

// What is between these lines of the page is the table.
const (
	tableBegin = "<!-- made by: make kernels -->\n"
	tableEnd   = "<!-- end -->\n"
)

// updatePage replaces the table in a page.
func updatePage(path, table string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(page), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		return fmt.Errorf("%s has no place for the table: no %q or no %q", path, tableBegin, tableEnd)
	}
	return os.WriteFile(path, []byte(before+tableBegin+"\n"+table+"\n"+tableEnd+after), 0o644)
}
