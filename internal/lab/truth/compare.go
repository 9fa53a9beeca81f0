package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"correlator/profile"
)

// truth is what a subject says of itself, see doc.go.
type truth struct {
	Inclusive, Self map[string]float64
	Above           map[string][]string
}

// seen is what a recording has of a subject, in samples.
type seen struct {
	samples         float64
	inclusive, self map[string]float64
	cut             float64
	cutWith         map[string]float64 // by function, those that are cut
	elsewhere       float64            // without the function in which all others are: in other threads
	wrong           map[string]float64 // by what is wrong
}

// comparison is a subject with both.
type comparison struct {
	name string
	truth
	seen
}

// compare runs a subject, records it, and compares.
func compare(agent string, s *subject, unwinder string, duration time.Duration) (*comparison, error) {
	dir, err := os.MkdirTemp("", "subject")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	command, err := s.build(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("it has said %q: %w", line, err)
	}
	recorded := filepath.Join(dir, "recorded.folded")
	err = run(exec.Command(agent, "record", "--pid", strconv.Itoa(cmd.Process.Pid), "-d", duration.String(),
		"-o", recorded, "--rate", "997", "--unwinder", unwinder))
	if err != nil {
		return nil, err
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	c := &comparison{name: s.name + ", " + unwinder}
	if err := json.NewDecoder(lines).Decode(&c.truth); err != nil {
		return nil, fmt.Errorf("its truth: %w", err)
	}
	folded, err := os.ReadFile(recorded)
	if err != nil {
		return nil, err
	}
	c.seen, err = look(&c.truth, string(folded))
	return c, err
}

// look reads folded stacks: frames from the root on, with semicolons between them, and the number of samples.
func look(t *truth, folded string) (s seen, err error) {
	s = seen{
		inclusive: make(map[string]float64), self: make(map[string]float64), wrong: make(map[string]float64),
		cutWith: make(map[string]float64),
	}
	for line := range strings.Lines(folded) {
		at := strings.LastIndexByte(strings.TrimSuffix(line, "\n"), ' ')
		if at < 0 {
			return s, fmt.Errorf("line %q", line)
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			return s, err
		}
		frames := strings.Split(line[:at], ";")
		s.add(t, frames, n)
	}
	return s, nil
}

// add adds samples of a stack, of which each function counts once.
func (s *seen) add(t *truth, frames []string, n float64) {
	s.samples += n
	leaf := frames[len(frames)-1]
	s.self[leaf] += n
	has := make(map[string]bool)
	for _, f := range frames {
		if !has[f] {
			s.inclusive[f] += n
		}
		has[f] = true
	}
	if has[profile.CutName] {
		s.cut += n
		for f := range has {
			s.cutWith[f] += n
		}
		return
	}
	for function, above := range t.Above {
		if has[function] && !slices.ContainsFunc(above, func(f string) bool { return has[f] }) {
			s.wrong[fmt.Sprintf("none of %v above %s", above, function)] += n
			return
		}
	}
	isKnown := func(f string) bool { _, known := t.Inclusive[f]; return known }
	switch {
	case !has["work"] && !has["main.work"]:
		s.elsewhere += n
	case slices.ContainsFunc(frames, isKnown), leaf == "work", leaf == "main.work",
		has["cpu_time"], has["main.cpuTime"]:
	default:
		s.wrong["no function of known share above "+leaf] += n
	}
}

// worst returns the largest difference of a share, in points, and of which function.
func (c *comparison) worst() (points float64, function string) {
	for _, of := range []struct{ truth, seen map[string]float64 }{{c.Inclusive, c.inclusive}, {c.Self, c.self}} {
		for f, share := range of.truth {
			if d := math.Abs(100 * (of.seen[f]/c.samples - share)); d > points {
				points, function = d, f
			}
		}
	}
	return points, function
}

// allWrong returns the share of samples whose stack is wrong.
func (c *comparison) allWrong() (share float64) {
	for _, n := range c.wrong {
		share += n / c.samples
	}
	return share
}

// write writes the table of a subject in Markdown.
func (c *comparison) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n%.0f samples, %.1f %% cut\n\n", c.name, c.samples, 100*c.cut/c.samples)
	fmt.Fprintf(w, "| function | self | shown | with what it calls | shown |\n|---|---|---|---|---|\n")
	functions := slices.Sorted(maps.Keys(c.Inclusive))
	for _, f := range slices.Sorted(maps.Keys(c.Self)) {
		if _, known := c.Inclusive[f]; !known {
			functions = append(functions, f)
		}
	}
	share := func(of map[string]float64, f string) string {
		if n, known := of[f]; known {
			return fmt.Sprintf("%.1f", 100*n)
		}
		return ""
	}
	for _, f := range functions {
		fmt.Fprintf(w, "| %s | %s | %.1f | %s | %.1f |\n", f, share(c.Self, f), 100*c.self[f]/c.samples,
			share(c.Inclusive, f), 100*c.inclusive[f]/c.samples)
	}
	for _, what := range slices.Sorted(maps.Keys(c.wrong)) {
		fmt.Fprintf(w, "\nwrong: %s in %.2f %%\n", what, 100*c.wrong[what]/c.samples)
	}
}

// summarize writes a line for each subject.
func summarize(w io.Writer, all []*comparison) {
	fmt.Fprintf(w, "\n| | samples | largest difference, points | of | wrong, %% | cut, %% | elsewhere, %% |\n")
	fmt.Fprintf(w, "|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		points, function := c.worst()
		fmt.Fprintf(w, "| %s | %.0f | %.1f | %s | %.2f | %.2f | %.2f |\n", c.name, c.samples, points, function,
			100*c.allWrong(),
			100*c.cut/c.samples, 100*c.elsewhere/c.samples)
	}
}
