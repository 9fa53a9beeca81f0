package limits

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const root = "../../.."

// Each limit of the code has a row, or is said to be none on what is read of a process, and no row is of what is not
// there any more. The table is of today's code.
func TestTable(t *testing.T) {
	all, err := Find(root)
	assert.NilError(t, err)
	known := make(map[string]bool)
	for _, l := range all {
		known[l.Name] = true
		_, isRow := rows[l.Name]
		_, isOwn := own[l.Name]
		assert.Check(t, isRow != isOwn, "%s = %s: a row says what shows when it is reached, or own that it is no such limit",
			l.Name, l.Value)
	}
	for name := range rows {
		assert.Check(t, known[name], "%s is no constant", name)
	}
	for name, why := range own {
		assert.Check(t, why != "", name)
	}
	page, err := os.ReadFile("README.md")
	assert.Check(t, err == nil && string(page) == Page(all), "the table is not current: make generate")
}

var (
	counter = regexp.MustCompile("`(correlator_[a-z_]+)(?:\\{([a-z_]+)=\"([a-z_0-9]+)\"\\})?`")
	remark  = regexp.MustCompile(`"([^"]+)"`)
)

// What shows that a limit is reached is there: a metric with such a reason, a state, or a remark in the code; and so is
// the test.
func TestRows(t *testing.T) {
	metrics, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	assert.NilError(t, err)
	var code, tests strings.Builder
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "testdata" || d.Name() == "limits" || d.Name()[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if strings.HasSuffix(path, "_test.go") {
			tests.Write(text)
		} else {
			code.Write(text)
		}
		return err
	})
	assert.NilError(t, err)
	named := make(map[string]bool)
	for _, test := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`).FindAllStringSubmatch(tests.String(), -1) {
		named[test[1]] = true
	}
	for name, r := range rows {
		shown := counter.FindAllStringSubmatch(r.shows, -1)
		for _, c := range shown {
			metric, label, value := c[1], c[2], c[3]
			assert.Check(t, strings.Contains(string(metrics), "- `"+metric), "%s: no metric %s", name, metric)
			if label != "" {
				has := regexp.MustCompile("`" + metric + `\{[a-z,]*` + label).Match(metrics)
				assert.Check(t, has && strings.Contains(string(metrics), "`"+value+"`"), "%s: no %s %s of %s", name, label, value,
					metric)
			}
		}
		rest := counter.ReplaceAllString(r.shows, "")
		said := remark.FindAllStringSubmatch(rest, -1)
		for _, s := range said {
			assert.Check(t, strings.Contains(code.String(), s[1]), "%s: nothing says %q", name, s[1])
		}
		assert.Check(t, len(shown)+len(said) > 0 && r.bounds != "", "%s shows nothing", name)
		for test := range strings.SplitSeq(r.test, ", ") {
			assert.Check(t, named[test], "%s: there is no test %q", name, test)
		}
	}
}
