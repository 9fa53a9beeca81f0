package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func gather(t *testing.T) families {
	t.Helper()
	gathered, err := gatherAll()
	assert.NilError(t, err)
	return gathered
}

// The page can be made: it has every metric, and explains every value of a label, and no others.
func TestMetricsPage(t *testing.T) {
	gathered := gather(t)
	text, err := metricsPage(gathered)
	assert.NilError(t, err)
	for name, f := range gathered {
		assert.Check(t, (!strings.HasPrefix(name, "correlator_") || strings.Contains(text, "- `"+name)) &&
			(strings.Contains(text, f.GetHelp()) || !strings.HasPrefix(name, "correlator_")),
			"the page lacks %s", name)
	}
	delete(gathered, "correlator_healthy")
	_, err = metricsPage(gathered)
	assert.Check(t, err != nil, "a page with a metric that is not gathered can be made")
	gathered = gather(t)
	gathered["correlator_other"] = &dto.MetricFamily{}
	_, err = metricsPage(gathered)
	assert.Check(t, err != nil, "a page without a metric can be made")
	gathered = gather(t)
	label := gathered["correlator_processes"].Metric[0].Label[0]
	value := "other"
	label.Value = &value
	_, err = metricsPage(gathered)
	assert.Check(t, err != nil, "a page that does not explain the value of a label can be made")
}

// The pages that are committed are those of the metrics, with their names, labels, types and help, and of
// the alerts.
func TestPagesAreUpToDate(t *testing.T) {
	const root = "../../../.."
	dir := t.TempDir()
	deploy, err := filepath.Abs(filepath.Join(root, "deploy"))
	assert.NilError(t, err)
	assert.NilError(t, os.Symlink(deploy, filepath.Join(dir, "deploy")))
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "docs"), 0o755))
	assert.NilError(t, run(dir))
	for _, page := range []string{"docs/metrics.md", "docs/alerts.md"} {
		got, want := testenv.ReadFile(t, filepath.Join(root, page)), testenv.ReadFile(t, filepath.Join(dir, page))
		assert.Check(t, bytes.Equal(got, want), "%s is not up to date: make generate", page)
	}
}

// metricName matches the names of the correlator's metrics.
var metricName = regexp.MustCompile(`\bcorrelator_[a-z_]+\b`)

// The metrics that other pages name exist. A name before a parenthesis is a C function of
// correlator.h.
func TestMetricsInDocs(t *testing.T) {
	gathered := gather(t)
	name := regexp.MustCompile(metricName.String() + `\(?`)
	paths, err := filepath.Glob("../../../../docs/*.md")
	assert.NilError(t, err)
	found := 0
	for _, path := range append(paths, "../../../../README.md") {
		text := testenv.ReadFile(t, path)
		for _, word := range name.FindAllString(string(text), -1) {
			if strings.HasSuffix(word, "(") {
				continue
			}
			found++
			// texts name a histogram without a suffix
			_, err := find(gathered, word)
			assert.Check(t, err == nil || gathered[word] != nil, "%s: %v", path, err)
		}
	}
	assert.Check(t, found != 0, "no metric is documented")
}

func TestLint(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(slices.Collect(maps.Values(gather(t)))).Lint()
	assert.NilError(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Help texts are sentences, and the metrics that they refer to exist.
func TestHelp(t *testing.T) {
	gathered := gather(t)
	for name, f := range gathered {
		if !strings.HasPrefix(name, "correlator_") {
			continue
		}
		if !strings.HasSuffix(f.GetHelp(), ".") || strings.Contains(f.GetHelp(), "\n") {
			t.Errorf("%s: %q", name, f.GetHelp())
		}
		for _, other := range metricName.FindAllString(f.GetHelp(), -1) {
			assert.Check(t, gathered[other] != nil, "%s refers to %s", name, other)
		}
	}
}

// What the alerts' sections refer to exists.
func TestAlertLinks(t *testing.T) {
	for prefix, links := range alertLinks {
		for _, link := range links {
			file, anchor, _ := strings.Cut(link, "#")
			there := anchors(string(testenv.ReadFile(t, "../../../../docs/"+file)))
			assert.Check(t, anchor == "" || slices.Contains(there, anchor), "%s: %s does not exist", prefix, link)
		}
	}
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchors returns the anchors of the headings of a page, as GitHub and GitLab make them.
func anchors(page string) (all []string) {
	for line := range strings.SplitSeq(page, "\n") {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return all
}
