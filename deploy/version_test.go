package deploy

import (
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

// The version is a function of the commit, sorts as the history does, and is never made up.
func TestVersion(t *testing.T) {
	testenv.NeedTool(t, "git")
	dir := t.TempDir()
	repository := filepath.Join(dir, "repository")
	script := filepath.Join(repository, ".ci/version")
	testenv.WriteFile(t, script, testenv.ReadFile(t, "../.ci/version"))
	changelog := filepath.Join(repository, "CHANGELOG.md")
	testenv.WriteFile(t, changelog, "## Unreleased\n\n## 0.2.0 - 2026-01-01\n\n## 0.1.0 - 2025-01-01\n")
	for _, name := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+name+"_NAME", "test")
		t.Setenv("GIT_"+name+"_EMAIL", "test@localhost")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CEILING_DIRECTORIES", dir)
	version := func() (string, error) {
		out, err := exec.Command("bash", script).Output()
		return string(out), err
	}
	out, err := version()
	assert.Check(t, err != nil && out == "", "without git it is %q, %v", out, err)
	git := func(args ...string) string { return command(t, "git", append([]string{"-C", repository}, args...)...) }
	expect := func(when, pattern string) {
		t.Helper()
		if out, err := version(); err != nil || !regexp.MustCompile(`^`+pattern+`\n$`).MatchString(out) {
			t.Errorf("%s it is %q, %v", when, out, err)
		}
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "one")
	expect("before the tag", `0\.2\.0-dev\.1\.g[0-9a-f]{12}`)
	git("config", "core.abbrev", "20")
	expect("with other abbreviations", `0\.2\.0-dev\.1\.g[0-9a-f]{12}`)
	git("tag", "-m", "release", "v0.2.0")
	expect("with the tag", `0\.2\.0`)
	old := time.Unix(1e9, 0)
	assert.NilError(t, os.Chtimes(changelog, old, old))
	expect("of a copy", `0\.2\.0`)
	text := testenv.ReadFile(t, changelog)
	testenv.WriteFile(t, changelog, string(text)+"more\n")
	expect("with a change", `0\.2\.0\+0\.g[0-9a-f]{12}\.dirty`)
	git("commit", "-qam", "two")
	expect("after the tag", `0\.2\.0\+1\.g[0-9a-f]{12}`)

	shallow := filepath.Join(dir, "shallow")
	command(t, "git", "clone", "-q", "--depth", "1", "file://"+repository, shallow)
	script = filepath.Join(shallow, ".ci/version")
	out, err = version()
	assert.Check(t, err != nil && strings.TrimSpace(out) == "", "of a clone without history it is %q, %v", out, err)
}
