package inspect

import (
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/testenv"
)

// Where no process publishes contexts, those of known runtimes are listed with what would make them; what that is
// stands in a page that is there.
func TestOthers(t *testing.T) {
	lines := strings.Join(describeOthers(map[int]string{
		11: "java", 12: "javac", 9: "python3.11", 2: "node", 3: "sleep", 10: "python", 5: "php-fpm8.2", 6: "ruby3.1",
		7: "dotnet", 8: "xnode", 13: goProgram, 14: "beam.smp", 15: "perl", 16: "luajit-2.1.1737090214",
	}), "\n")
	for _, want := range []string{"JVM (11): ", "Python (9, 10): ", "PHP (5): ", "Node.js (2): ", "Ruby (6): ",
		".NET (7): ", "Go (13): ", "Erlang (14): ", "Perl (15): ", "LuaJIT (16): "} {
		assert.Check(t, strings.Contains(lines, "\n"+want), "no %q in\n%s", want, lines)
	}
	assert.Check(t, strings.Contains(lines, "record --pid") && strings.Count(lines, "\n") == 10, lines)
	for _, link := range regexp.MustCompile(`(docs/[a-z-]+\.md)(?:#([a-z-]+))?`).FindAllStringSubmatch(lines, -1) {
		title := strings.ReplaceAll(link[2], "-", "[ -]")
		page := testenv.ReadFile(t, "../../../"+link[1])
		assert.Check(t, regexp.MustCompile("(?im)^#+ "+title).Match(page), link[0])
	}
	assert.Check(t, len(describeOthers(nil)) == 1)
}

// They are looked for only where no process publishes any.
func TestOthersOfHost(t *testing.T) {
	lines, err := Others(t.Context(), "/proc", []Process{{View: process.View{State: process.StateSilent}}})
	assert.Check(t, err == nil && len(lines) > 0, err)
	for _, view := range []process.View{
		{State: process.StateReady, Contexts: []string{"elastic"}}, {State: process.StateFiltered},
		{State: process.StateError},
	} {
		lines, err = Others(t.Context(), "/proc", []Process{{View: view}})
		assert.Check(t, err == nil && lines == nil, "%v, %v", lines, err)
	}
}
