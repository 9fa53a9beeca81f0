package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/operate/check"
)

// check exits 1 if and only if run with the same flags does not start.
func TestCheckTellsTheTruth(t *testing.T) {
	for i := range socketCircumstances {
		socketCircumstances[i].unsampled = !slices.Contains(socketCircumstances[i].lacks, "RLIMIT_NOFILE")
	}
	checkIn(t, slices.Concat(circumstances, socketCircumstances))
}

func checkIn(t *testing.T, circumstances []circumstance) {
	t.Helper()
	needSampler(t)
	for _, tool := range []string{"setpriv", "unshare", "flock"} {
		testenv.NeedTool(t, tool)
	}
	for _, c := range circumstances {
		t.Run(c.name, c.test)
	}
}

func (c *circumstance) test(t *testing.T) {
	t.Parallel() // no agent is for a process of another
	if testenv.KernelBefore(t, c.since) {
		c.works, c.lacks = false, []string{"sampler"}
	}
	dir := t.TempDir()
	if c.prepare != nil {
		c.prepare(t, dir)
	}
	by, flags := below(dir, c.by), below(dir, c.flags)
	if !c.engine {
		flags = append(flags, "--unwinder", "frame-pointers")
	}
	if c.unsampled {
		flags = append(flags, "--samples-per-second", "0")
		if !slices.Contains(flags, "--feed-socket") {
			flags = append(flags, "--feed-socket", filepath.Join(dir, "unused"))
		}
	}
	correlator := installed(t)
	if len(c.refuse) > 0 {
		runtime.LockOSThread() // never unlocked: the thread ends with the test
		assert.NilError(t, testenv.RefuseCalls(c.refuse))
	}
	before := filesIn(t, dir)
	results, works := checked(t, correlator, by, flags)
	after := filesIn(t, dir)
	assert.Check(t, slices.Equal(before, after) || c.by != nil, "check left %q, there was %q", after, before)
	started, said := starts(t, correlator, by, flags)
	assert.Check(t, works == started && works == c.works,
		"check says %v, run %v (%s), want %v", works, started, said, c.works)
	c.compare(t, results)
}

func below(dir string, words []string) (replaced []string) {
	for _, word := range words {
		replaced = append(replaced, strings.ReplaceAll(word, "DIR", dir))
	}
	return replaced
}

func (c *circumstance) compare(t *testing.T, results []check.Result) {
	t.Helper()
	for status, names := range map[check.Status][]string{check.Missing: c.lacks, check.Degraded: c.limited} {
		for _, name := range names {
			i := slices.IndexFunc(results, func(r check.Result) bool { return r.Name == name })
			if i < 0 || results[i].Status != status || results[i].Remedy == "" {
				t.Errorf("%s is not %s: %+v", name, status, results[max(i, 0)])
			}
		}
	}
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	assert.NilError(t, err)
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

// checked runs check, and reports whether it exits 0.
func checked(t *testing.T, correlator string, by, flags []string) (results []check.Result, works bool) {
	t.Helper()
	argv := slices.Concat(by, []string{correlator, "check", "-o", "json"}, flags)
	cmd := exec.Command(argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	assert.NilError(t, err, "check: %v\n%s%s", err, out, &stderr)
	works = exit == nil
	if works != check.Works(results) || works != (stderr.Len() == 0) || !works &&
		!strings.HasSuffix(stderr.String(), check.Verdict(results)+"\n") {
		t.Errorf("it exits 0: %v, and says %q of %+v", works, &stderr, results)
	}
	return results, works
}

// starts reports whether run starts, and the last line of its log. run is killed then.
func starts(t *testing.T, correlator string, by, flags []string) (started bool, said string) {
	t.Helper()
	argv := slices.Concat(by, []string{correlator, "run"}, flags)
	cmd := exec.Command(argv[0], argv[1:]...)
	stderr, err := cmd.StderrPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	for lines := bufio.NewScanner(stderr); lines.Scan(); { // to the end: then nobody runs any more
		said = lines.Text()
		if strings.Contains(said, "correlator runs") {
			started = true
			cmd.Process.Kill()
		}
	}
	err = cmd.Wait()
	assert.Check(t, started || cmd.ProcessState.ExitCode() == 1, "run ends with %v and says %q", err, said)
	return started, said
}

// On a terminal lines are broken at its width, and status words are colored, unless that is
// disabled.
func TestCheckOnTerminal(t *testing.T) {
	for columns, variable := range map[uint16]string{60: "NO_COLOR=", 80: "NO_COLOR=1", 120: "NO_COLOR="} {
		out := onTerminal(t, columns, variable, "check", "--samples-per-second", "0", "--feed-socket", "feed")
		plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(out, "")
		colored := plain != out
		assert.Check(t, colored == (variable == "NO_COLOR="), "%s: colored: %v", variable, colored)
		longest := ""
		for line := range strings.Lines(plain) {
			if line = strings.TrimRight(line, "\r\n"); len(line) > len(longest) {
				longest = line
			}
		}
		assert.Check(t, len(longest) <= int(columns) && len(longest) >= int(columns)/2,
			"of %d columns this takes %d: %s", columns, len(longest), longest)
		assert.Check(t, strings.Contains(strings.Join(strings.Fields(plain), " "), " run would work"),
			"it ends without a verdict:\n%s", plain)
	}
}

func onTerminal(t *testing.T, columns uint16, variable string, args ...string) string {
	t.Helper()
	controller, terminal := testenv.Terminal(t, columns, 24)
	cmd := exec.Command(installed(t), args...)
	cmd.Env = append(os.Environ(), "TERM=xterm", variable)
	cmd.Stdout = terminal
	cmd.Dir = t.TempDir()
	err := cmd.Start()
	terminal.Close()
	assert.NilError(t, err)
	out, _ := io.ReadAll(controller) // ends with EIO when nobody has the terminal open any more
	err = cmd.Wait()
	assert.Check(t, err, "%v ends with %v", args, err)
	return string(out)
}
