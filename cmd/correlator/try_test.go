package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// correlator try needs nothing but rights: it shows a shop of its own, with accounts in which is at least what the
// shop has measured itself, writes a page, and leaves nothing else behind. Which waits have their stack is by chance on
// a CPU that is busy with others, so it may take more than one.
func TestTry(t *testing.T) {
	testenv.NeedUnwinding(t)
	program := installed(t)
	missing := make([]string, 10)
	for i := range missing {
		if missing[i] = whatTryMisses(t, program); missing[i] == "" {
			return
		}
	}
	t.Fatal(strings.Join(missing, "\n"))
}

// whatTryMisses tries once, and returns what was not seen by chance, with what was written.
func whatTryMisses(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(program, "try")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	left, _ := exec.Command("pgrep", "-f", "^"+program+" try --shop").Output()
	assert.Check(t, len(left) == 0, "%s", left)
	files, globErr := filepath.Glob(filepath.Join(dir, "*"))
	assert.NilError(t, globErr)
	if err != nil && strings.Contains(stderr.String(), "its CPU is too busy") {
		assert.Check(t, len(files) == 0, files)
		return stderr.String()
	}
	assert.NilError(t, err, "%s%s", out, &stderr)
	assert.Assert(t, len(files) == 1 && filepath.Base(files[0]) == "correlator-try.html", files)
	text, page := string(out), string(testenv.ReadFile(t, files[0]))
	lock := checkTried(t, text)
	for what, seen := range map[string]bool{
		"a lock that was waited for": lock >= 100*time.Millisecond,
		"the order that has the lock": regexp.MustCompile(`\(\*shop\)\.reserve .* checkout-2 in trace [0-9a-f]{8}\b`).
			MatchString(text),
		"CPU samples of traces":  regexp.MustCompile(`(?m)^CPU samples of [1-3] traces `).MatchString(text),
		"a method on the page":   strings.Contains(page, "(*shop).checkout"),
		"a lane of the timeline": regexp.MustCompile(`"checkout-2 \d+"`).MatchString(page),
	} {
		if !seen {
			return what + " was not seen: " + text
		}
	}
	return ""
}

// checkTried checks what the tables have however busy the CPU is, and returns how long a lock was waited for.
func checkTried(t *testing.T, text string) (lock time.Duration) {
	t.Helper()
	rows := regexp.MustCompile(`(?m)^(on a CPU|waiting for a CPU|lock|network|sleep) +(\S+ \S+) +(\S+ \S+)$`).
		FindAllStringSubmatch(text, -1)
	assert.Assert(t, len(rows) == 5, "%s", text)
	own, ours := make(map[string]time.Duration), make(map[string]time.Duration)
	for _, row := range rows {
		for i, into := range []map[string]time.Duration{own, ours} {
			d, err := time.ParseDuration(strings.ReplaceAll(row[2+i], " ", ""))
			assert.NilError(t, err)
			into[row[1]] = d
			if row[1] != "on a CPU" {
				into["off a CPU"] += d
			}
		}
	}
	for _, what := range []string{"on a CPU", "off a CPU"} { // the account has also what is beside orders
		assert.Check(t, ours[what] >= own[what]*9/10, "%s: %s", what, text)
	}
	assert.Check(t, ours["sleep"] >= 80*time.Millisecond, "%s", text)
	for _, part := range []string{"checkout", "checkout-2", "bank", "report"} {
		assert.Check(t, strings.Contains(text, part), "%q in\n%s", part, text)
	}
	return ours["lock"]
}

// Without rights try says so, and shows what was recorded once, as explain --demo does, and writes no file.
func TestTryWithoutRights(t *testing.T) {
	program, dir := installed(t), t.TempDir()
	assert.NilError(t, os.Chmod(dir, 0o500))
	run := func(args ...string) (stdout, stderr string) {
		cmd := exec.Command("setpriv", append([]string{"--bounding-set=-all", "--inh-caps=-all", program}, args...)...)
		cmd.Dir = dir
		var out, failure bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &failure
		assert.NilError(t, cmd.Run(), "%s%s", &out, &failure)
		return out.String(), failure.String()
	}
	want, _ := run("explain", "--demo")
	got, stderr := run("try")
	assert.Check(t, got == want && strings.Contains(got, "holder in transaction"), "%s", got)
	assert.Check(t, strings.Contains(stderr, "CAP_BPF") && strings.Contains(stderr, "explain --demo"), "%s", stderr)
}
