package live

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// The limits that docs/security.md promises are those of the code.
func TestLimitsAreDocumented(t *testing.T) {
	_, text, _ := strings.Cut(string(testenv.ReadFile(t, "../../../docs/security.md")), "\n## Live view\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text = strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		fmt.Sprintf("frames of %d KiB", maxFrameBytes>>10), fmt.Sprintf("%d connections", MaxGuests),
		fmt.Sprintf("%d MiB that wait for one guest", maxQueueBytes>>20),
		fmt.Sprintf("%d MiB for all of them and the objects", maxMemoryBytes>>20),
	} {
		assert.Check(t, strings.Contains(text, want), "it does not say %q", want)
	}
}

// Each page of the documentation has its row in the README.
func TestPagesAreListed(t *testing.T) {
	readme := string(testenv.ReadFile(t, "../../../README.md"))
	pages, err := os.ReadDir("../../../docs")
	assert.Assert(t, err == nil && len(pages) != 0, err)
	for _, page := range pages {
		if name := page.Name(); strings.HasSuffix(name, ".md") && !strings.Contains(readme, "| [docs/"+name+"]") {
			t.Errorf("docs/%s is not in README.md", name)
		}
	}
}
