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

// table returns what ran, in Markdown: for each kernel the number of tests, for each step that failed what
// is wrong with it, and for each test that failed its name. Why others were skipped is in the results.
func table(results []result) string {
	var out strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	head := func(cells ...string) {
		row(cells...)
		fmt.Fprintln(&out, "|"+strings.Repeat("---|", len(cells)))
	}
	var names []string
	for _, r := range results {
		for _, s := range r.Steps {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	head("", "kernel", "commit", "tests")
	for _, r := range results {
		row(r.ID, valueOr(r.Release, "did not boot"), r.Commit, r.sum().cell())
	}
	fmt.Fprintf(&out, "\nSteps: `%s`\n", strings.Join(names, "`, `"))
	for _, r := range results {
		if r.Error != "" {
			fmt.Fprintf(&out, "\n%s failed: %s\n", r.ID, r.Error)
		}
	}
	begun := false
	for _, name := range names {
		for _, r := range results {
			s := r.step(name)
			if !s.failed() || r.Release == "" {
				continue
			}
			if !begun {
				fmt.Fprintln(&out)
				head("failed step", "kernel", "tests")
				begun = true
			}
			row("`"+name+"`", r.ID, s.cell())
		}
	}
	list := func(title, outcome string) {
		lines := notPassed(results, outcome)
		if len(lines) == 0 {
			return
		}
		fmt.Fprintln(&out)
		head(title, "tests", "kernels")
		for _, line := range lines {
			row(line.reason, strings.Join(line.names, ", "), line.where(results))
		}
	}
	list("failed", "fail")
	list("did not end", "")
	return out.String()
}

func valueOr(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// step returns the result of a step, nil if it was not run.
func (r *result) step(name string) *stepResult {
	i := slices.IndexFunc(r.Steps, func(s stepResult) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Steps[i]
}

// sum returns the number of tests of all steps, by outcome.
func (r *result) sum() *stepResult {
	all := stepResult{Count: make(map[string]int)}
	for _, s := range r.Steps {
		for outcome, n := range s.Count {
			all.Count[outcome] += n
		}
	}
	return &all
}

// failed reports whether the step was not run, or not all that was run passed or was skipped as it may be.
func (s *stepResult) failed() bool {
	return s == nil || s.Error != "" || s.Count["fail"]+s.Count[""] > 0
}

// cell is the number of tests by outcome, and what is wrong with the step.
func (s *stepResult) cell() string {
	if s == nil {
		return "not run"
	}
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
