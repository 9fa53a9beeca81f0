package deploy

import (
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Whom packages name is said in one place, so who publishes them changes that one. Tools are named by
// MODULE@VERSION, which is no address.
func TestMaintainer(t *testing.T) {
	testenv.NeedTool(t, "git")
	address := regexp.MustCompile(`[\w.+-]+@[\w-]+(\.[\w-]+)*\.[a-z]+\b`)
	var found []string
	all := command(t, "git", "-C", "..", "grep", "-Ino", "[[:alnum:]_.+-]*@[[:alnum:]_.-]*", "--",
		"*.md", ".ci", ".github", "Makefile", "deploy", ":!*_test.go")
	for line := range strings.Lines(all) {
		if address.MatchString(line) {
			found = append(found, line)
		}
	}
	assert.Check(t, len(found) == 1 && strings.HasPrefix(found[0], "deploy/package/nfpm.yaml:"),
		"addresses are in %q", found)
}
