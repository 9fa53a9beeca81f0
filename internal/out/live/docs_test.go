package live

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"correlator/internal/lab/testenv"
)

// The limits that docs/security.md promises are those of the code, and the tests that it names exist.
func TestLimitsAreDocumented(t *testing.T) {
	_, text, _ := strings.Cut(string(testenv.ReadFile(t, "../../../docs/security.md")), "\n## Live view\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text = strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		fmt.Sprintf("frames of %d KiB", maxFrameBytes>>10), fmt.Sprintf("%d connections", MaxGuests),
		fmt.Sprintf("%d MiB that wait for one guest", maxQueueBytes>>20),
		fmt.Sprintf("%d MiB for all of them and the objects", maxMemoryBytes>>20),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	named := regexp.MustCompile("\\(([a-z/]+): (`[A-Za-z]+`(?:, `[A-Za-z]+`)*)\\)").FindAllStringSubmatch(text, -1)
	if len(named) == 0 {
		t.Error("no tests are named")
	}
	for _, m := range named {
		tests := testsOf(t, "../../../"+m[1])
		for _, name := range strings.Split(m[2], ", ") {
			if name = strings.Trim(name, "`"); !strings.Contains(tests, "func "+name+"(") {
				t.Errorf("%s has no %s", m[1], name)
			}
		}
	}
}

// testsOf returns the text of a package's tests.
func testsOf(t *testing.T, dir string) (all string) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	for _, path := range files {
		all += string(testenv.ReadFile(t, path))
	}
	return all
}

// Each page of the documentation has its row in the README.
func TestPagesAreListed(t *testing.T) {
	readme := string(testenv.ReadFile(t, "../../../README.md"))
	pages, err := os.ReadDir("../../../docs")
	if err != nil || len(pages) == 0 {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := page.Name(); strings.HasSuffix(name, ".md") && !strings.Contains(readme, "| [docs/"+name+"]") {
			t.Errorf("docs/%s is not in README.md", name)
		}
	}
}
