package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

var rules = flag.String("rules", "", "`file` to write the dashboard's expressions to, as recording rules for promtool")

// expression is PromQL of a file in deploy, with the texts that refer to labels of its result.
type expression struct {
	where, promql string
	texts         []string
}

var (
	// selector matches metrics of the correlator, the process and the runtime, with their matchers.
	selector = regexp.MustCompile(`\b((?:correlator|process|go)_[a-z_]+|up)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	inText   = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
)

// targetLabels are the labels that Prometheus adds.
var targetLabels = []string{"job", "instance"}

// The metrics, labels and label values that alerts and the dashboard use exist.
func TestExpressions(t *testing.T) {
	gathered := gather(t)
	for _, e := range slices.Concat(alerts(t), dashboard(t).expressions()) {
		if err := e.check(gathered); err != nil {
			t.Errorf("%s: %v: %s", e.where, err, e.promql)
		}
	}
}

// TestExpressions finds wrong expressions.
func TestExpressionsThatAreWrong(t *testing.T) {
	gathered := gather(t)
	for promql, want := range map[string]string{
		`correlator_nothing_total > 0`:                                           "no metric",
		`up > 0 and correlator_samples_sent == 0`:                                "no metric",
		`rate(correlator_samples_sent_total_bucket[1m])`:                         "no metric",
		`correlator_sample_to_socket_seconds > 0`:                                "a histogram",
		`correlator_processes{stat="error"}`:                                     "no label",
		`sum by (reason) (correlator_processes)`:                                 "no label",
		`correlator_processes{state="in error"}`:                                 "no value",
		`correlator_processes{state=~"error|nostorage"}`:                         "no value",
		`correlator_processes{state=~"error", instance!=""}`:                     "",
		`sum by (le) (rate(correlator_sample_to_socket_seconds_bucket[1m])) > 0`: "",
	} {
		err := (&expression{promql: promql}).check(gathered)
		assert.Check(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)),
			"%s: %v, want %q", promql, err, want)
	}
	text := expression{promql: "correlator_processes", texts: []string{"{{ $labels.reason }}"}}
	assert.Check(t, text.check(gathered) != nil, "a text may refer to labels that its expression does not have")
}

func (e *expression) check(gathered families) error {
	known := slices.Clone(targetLabels)
	for _, found := range selector.FindAllStringSubmatch(e.promql, -1) {
		name, matchers := found[1], found[2]
		family := &dto.MetricFamily{}
		if name != "up" {
			var err error
			if family, err = find(gathered, name); err != nil {
				return err
			}
		}
		labels := slices.Clone(targetLabels)
		if strings.HasSuffix(name, "_bucket") {
			labels = append(labels, "le")
		}
		for _, pair := range family.GetMetric() {
			for _, label := range pair.Label {
				labels = append(labels, label.GetName())
			}
		}
		known = append(known, labels...)
		for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
			label, operator, value := m[1], m[2], m[3]
			switch {
			case !slices.Contains(labels, label):
				return fmt.Errorf("%s has no label %s", name, label)
			case slices.Contains(targetLabels, label):
				continue
			}
			values := []string{value}
			if strings.HasSuffix(operator, "~") {
				values = strings.Split(value, "|")
			}
			for _, v := range values {
				if !slices.Contains(labelValues(family, label), v) {
					return fmt.Errorf("%s has no value %q of %s", name, v, label)
				}
			}
		}
	}
	for _, group := range grouping.FindAllStringSubmatch(e.promql, -1) {
		for label := range strings.SplitSeq(group[1], ",") {
			if label = strings.TrimSpace(label); label != "" && !slices.Contains(known, label) {
				return fmt.Errorf("no label %s", label)
			}
		}
	}
	for _, text := range e.texts {
		for _, m := range inText.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, m[1]) {
				return fmt.Errorf("no label %s for %q", m[1], text)
			}
		}
	}
	return nil
}

func find(gathered families, name string) (*dto.MetricFamily, error) {
	if f := gathered[name]; f != nil {
		if f.GetType() == dto.MetricType_HISTOGRAM {
			return nil, fmt.Errorf("%s is a histogram", name)
		}
		return f, nil
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && gathered[base].GetType() == dto.MetricType_HISTOGRAM {
			return gathered[base], nil
		}
	}
	return nil, fmt.Errorf("no metric %s", name)
}

func alerts(t *testing.T) (expressions []expression) {
	t.Helper()
	all, err := readAlerts("../../../../deploy/prometheus/alerts.yaml")
	assert.Check(t, err)
	for _, a := range all {
		expressions = append(expressions, expression{where: a.name, promql: a.promql,
			texts: []string{a.summary, a.description}})
	}
	return expressions
}

// The parts of Grafana's model of a dashboard that are checked.
type (
	grafanaDashboard struct {
		UID, Title    string
		SchemaVersion int
		Panels        []grafanaPanel
		Templating    struct{ List []grafanaVariable }
	}
	grafanaVariable struct {
		Name, Type string
		Datasource *grafanaDatasource
		Query      any
		AllValue   string
	}
	grafanaDatasource struct{ Type, UID string }
	grafanaPanel      struct {
		ID          int
		Type, Title string
		Description string
		Datasource  *grafanaDatasource
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct {
			RefID, Expr, LegendFormat string
			Datasource                *grafanaDatasource
		}
		FieldConfig struct{ Defaults struct{ Unit string } }
		Panels      []grafanaPanel
	}
)

func dashboard(t *testing.T) *grafanaDashboard {
	t.Helper()
	text := testenv.ReadFile(t, "../../../../deploy/grafana/correlator.json")
	d := &grafanaDashboard{}
	assert.NilError(t, json.Unmarshal(text, d))
	return d
}

func (d *grafanaDashboard) expressions() (expressions []expression) {
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expressions = append(expressions, expression{
				where: fmt.Sprintf("panel %q", p.Title), promql: target.Expr, texts: []string{target.LegendFormat},
			})
		}
	}
	for _, v := range d.Templating.List {
		if query, ok := v.Query.(map[string]any); ok {
			expressions = append(expressions,
				expression{where: "variable " + v.Name, promql: fmt.Sprint(query["query"])})
		}
	}
	return expressions
}

// The dashboard is valid, and its panels select the chosen correlators.
func TestDashboard(t *testing.T) {
	d := dashboard(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 { // the first with datasources by uid
		t.Errorf("uid %q, title %q, schema %d", d.UID, d.Title, d.SchemaVersion)
	}
	source := grafanaDatasource{Type: "prometheus", UID: "${datasource}"}
	variables := make(map[string]bool)
	for _, v := range d.Templating.List {
		// every target has up and process_…: All must select correlators only
		assert.Check(t, v.AllValue == "", "variable %s: All is %s", v.Name, v.AllValue)
		variables[v.Name] = true
		assert.Check(t, v.Type != "query" || v.Datasource != nil && *v.Datasource == source,
			"variable %s asks %v", v.Name, v.Datasource)
	}
	assert.Check(t, variables["datasource"] && variables["job"] && variables["instance"], "variables %v", variables)
	ids := make(map[int]string)
	taken := make(map[[2]int]string) // by cell
	for _, p := range d.Panels {
		if other, twice := ids[p.ID]; twice || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q has the id %d of %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		if g := p.GridPos; g.H < 1 || g.W < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
			t.Errorf("panel %q is at %+v", p.Title, g)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("panels %q and %q overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			assert.Check(t, len(p.Panels) == 0 && len(p.Targets) == 0,
				"row %q has panels inside, which are not checked", p.Title)
			continue
		}
		p.check(t, source)
	}
	if *rules != "" {
		writeRules(t, d.expressions())
	}
}

func (p *grafanaPanel) check(t *testing.T, source grafanaDatasource) {
	t.Helper()
	assert.Check(t, p.Description != "" && len(p.Targets) != 0 && p.Datasource != nil && *p.Datasource == source,
		"panel %q lacks a description or targets, or asks %v", p.Title, p.Datasource)
	assert.Check(t, p.Type == "heatmap" || p.FieldConfig.Defaults.Unit != "", "panel %q has no unit", p.Title)
	refs := make(map[string]bool)
	for _, target := range p.Targets {
		assert.Check(t, !refs[target.RefID] && target.RefID != "" && target.Expr != "" && target.Datasource != nil &&
			*target.Datasource == source,
			"panel %q: target %+v", p.Title, target)
		refs[target.RefID] = true
		for _, found := range selector.FindAllStringSubmatch(target.Expr, -1) {
			if !strings.HasPrefix(found[2], `job=~"$job", instance=~"$instance"`) {
				t.Errorf("panel %q is not of the selected correlators: %s", p.Title, found[0])
			}
		}
	}
}

// writeRules writes the expressions with Grafana's variables replaced.
func writeRules(t *testing.T, expressions []expression) {
	t.Helper()
	type rule struct{ Record, Expr string }
	type group struct {
		Name  string
		Rules []rule
	}
	all := group{Name: "dashboard"}
	for i, e := range expressions {
		if !strings.HasPrefix(e.promql, "label_values(") { // a function of Grafana
			promql := strings.NewReplacer("$__rate_interval", "5m", "$job", "(correlator|correlator-test)", "$instance",
				"(host-1|host-2)").Replace(e.promql)
			all.Rules = append(all.Rules, rule{fmt.Sprintf("dashboard:%d", i), promql})
		}
	}
	text, err := yaml.Marshal(map[string][]group{"groups": {all}})
	assert.NilError(t, err)
	testenv.WriteFile(t, *rules, text)
}
