package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A result is what one kernel did. Those of whole lists are files of resultsDir, in JSON.
type result struct {
	ID      string
	Commit  string // of the checkout, as git describe prints it
	Release string // as uname -r prints it; empty: not booted
	Steps   []stepResult
	Kernel  []string `json:",omitempty"` // warnings and errors in the kernel's log
	Error   string   `json:",omitempty"` // why the guest was not done
}

type stepResult struct {
	Name  string
	Error string         `json:",omitempty"` // as of ending
	Count map[string]int // of tests, by outcome
	Tests []test         `json:",omitempty"` // those that did not pass, by the names that the table has
}

// A test is one without subtests, or a subtest.
type test struct {
	Name    string
	Outcome string // pass, skip, fail, or empty: it did not end
	Output  string `json:",omitempty"` // the last line that it logged, unless it passed
}

// newStepResult returns the result of a step in which tests were run.
func newStepResult(name, failure string, tests []test) stepResult {
	s := stepResult{Name: name, Error: failure, Count: make(map[string]int)}
	for _, t := range tests {
		of, _, isSubtest := strings.Cut(t.Name, "/")
		if isSubtest {
			t.Name = of
			if slices.ContainsFunc(tests, func(other test) bool {
				return other.Outcome == "pass" && strings.HasPrefix(other.Name, of+"/")
			}) {
				t.Name += " in part"
			}
		}
		s.add(t)
	}
	return s
}

func (s *stepResult) add(t test) {
	s.Count[t.Outcome]++
	if t.Outcome != "pass" && !slices.Contains(s.Tests, t) {
		s.Tests = append(s.Tests, t)
	}
}

// handle adds what an event says. Output is collected by step until the step ends.
func (r *result) handle(e event, outputs map[string]*bytes.Buffer) error {
	switch {
	case e.Release != "":
		r.Release = e.Release
	case e.Kernel != "":
		r.Kernel = append(r.Kernel, e.Kernel)
	case e.Ended != nil:
		var tests []test
		if output := outputs[e.Step]; output != nil {
			var err error
			if tests, err = parseTests(output); err != nil {
				return err
			}
		}
		r.Steps = append(r.Steps, newStepResult(e.Step, e.Ended.Error, tests))
	case e.Step != "":
		if outputs[e.Step] == nil {
			outputs[e.Step] = new(bytes.Buffer)
		}
		outputs[e.Step].WriteString(e.Output)
	}
	return nil
}

// tooSlow is how the reason begins for which a test is left out.
const tooSlow = "left out, emulated CPUs are slow: "

// leaveOut adds the tests of packages that were left out, as skipped.
func (r *result) leaveOut(suites []suite) {
	for i := range r.Steps {
		j := slices.IndexFunc(suites, func(s suite) bool { return s.title() == r.Steps[i].Name })
		if j < 0 {
			continue
		}
		runs := regexp.MustCompile(suites[j].run)
		for _, t := range leftOut[suites[j].pkg] {
			if !runs.MatchString(t.Name) {
				continue
			}
			t.Outcome, t.Output = "skip", tooSlow+t.Output
			r.Steps[i].add(t)
		}
	}
}

// judge adds errors: of steps that have not ended, although they are in the plan, of those in which
// nothing ran or too little, and of the kernel.
func (r *result) judge(p plan) {
	if r.Error == "" && !hasVersion(r.ID, r.Release) {
		r.Error = fmt.Sprintf("the kernel is %q", r.Release)
	}
	if i := slices.IndexFunc(r.Kernel, trouble.MatchString); i >= 0 && r.Error == "" {
		r.Error = "the kernel's log has: " + r.Kernel[i]
	}
	for _, planned := range p.Steps {
		i := slices.IndexFunc(r.Steps, func(s stepResult) bool { return s.Name == planned.Name })
		if i < 0 {
			r.Steps = append(r.Steps, newStepResult(planned.Name, "did not end", nil))
			continue
		}
		if s := &r.Steps[i]; s.Error == "" {
			s.Error = s.hidden(r.ID)
		}
	}
}

// trouble is what the kernel prints when something is wrong with it that does not end it, which may
// be in messages that were lost.
var trouble = regexp.MustCompile(`^(WARNING|BUG|KASAN|UBSAN|INFO: (task|rcu)|rcu: INFO|watchdog: BUG|` +
	`unchecked MSR|` + messagesLost + `)`)

// hidden returns why a step is no success although its tests did not fail; empty: it is one.
func (s *stepResult) hidden(kernel string) string {
	for _, t := range s.Tests {
		switch {
		case t.Outcome == "skip" && !mayBeSkipped(kernel, t.Output):
			return fmt.Sprintf("%s must not be skipped", t.Name)
		case t.Outcome == "":
			return t.Name + " did not end"
		}
	}
	if s.Count["pass"] == 0 {
		return "no test has passed"
	}
	return ""
}

// failed reports whether something is not as it should be.
func (r *result) failed() bool {
	return r.Error != "" || slices.ContainsFunc(r.Steps, func(s stepResult) bool { return s.Error != "" })
}

// logged is a line that a test logs: its file, its line, and the text.
var logged = regexp.MustCompile(`^\s+(\w+\.go):\d+: (.*)`)

// programLog is where what the tested program logs comes from, by package zaptest.
const programLog = "logger.go"

// parseTests reads what a test binary prints with -test.v=test2json.
func parseTests(output *bytes.Buffer) (tests []test, err error) {
	convert := exec.Command("go", "tool", "test2json")
	convert.Stdin = output
	text, err := convert.Output()
	if err != nil {
		return nil, fmt.Errorf("converting the output of tests: %w", err)
	}
	byName := make(map[string]*test)
	var names []string
	decoder := json.NewDecoder(bytes.NewReader(text))
	for decoder.More() {
		var e struct{ Action, Test, Output string }
		if err := decoder.Decode(&e); err != nil {
			return nil, fmt.Errorf("reading the output of tests: %w", err)
		}
		if e.Test == "" {
			continue
		}
		t := byName[e.Test]
		if t == nil {
			t = &test{Name: e.Test}
			byName[e.Test] = t
			names = append(names, e.Test)
		}
		switch e.Action {
		case "pass", "skip", "fail":
			t.Outcome = e.Action
		case "output":
			if match := logged.FindStringSubmatch(e.Output); match != nil && match[1] != programLog {
				t.Output = match[2]
			}
		}
	}
	for _, name := range names {
		t := byName[name]
		parent := slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
		// A test whose subtests pass may fail itself, or not end.
		if parent && (t.Outcome == "pass" || t.Outcome != "" && t.Output == "") {
			continue
		}
		if t.Outcome == "pass" {
			t.Output = ""
		}
		tests = append(tests, *t)
	}
	return tests, nil
}

// resultsDir has what each kernel did when it last ran the whole list: what the page shows.
const resultsDir = "internal/lab/kernels/results"

// keep keeps a result in a directory, and has the page show it.
func (r *result) keep(dir, page string) error {
	if err := r.save(dir); err != nil {
		return err
	}
	results, err := loadResults(dir)
	if err != nil {
		return err
	}
	return updatePage(page, table(results))
}

func (r *result) save(dir string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.ID+".json"), append(text, '\n'), 0o644)
}

func loadResults(dir string) (results []result, err error) {
	for _, k := range kernels {
		text, err := os.ReadFile(filepath.Join(dir, k.id+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("parsing the result of %s: %w", k.id, err)
		}
		results = append(results, r)
	}
	return results, nil
}
