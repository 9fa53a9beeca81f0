package dotstool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Types of the protocol have no code in the package of the user: their users are refused, with the
// place, and nothing is written.
func TestGenerateProtocolTypes(t *testing.T) {
	for _, property := range []string{"DotsMt x", "vector<DotsStatistics> x"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "a.dots")
		assert.NilError(t, os.WriteFile(path, []byte("struct A {\n    1: "+property+";\n}\n"), 0o600))
		err := Generate([]string{path}, dir, "p")
		assert.Check(t, err != nil && strings.HasPrefix(err.Error(), path+":2:") &&
			strings.Contains(err.Error(), "type of the protocol"),
			"%s: %v", property, err)
		_, err = os.Stat(filepath.Join(dir, "a.dots.go"))
		assert.Check(t, err != nil, "%s: written", property)
	}
}
