package metrics

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"correlator/internal/agent"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const docsPath = "../../docs/metrics.md"

// docs/metrics.md is what the code says.
func TestDocs(t *testing.T) {
	want := document(gather(t, crowded(), exporting(t)))
	if *update {
		if err := os.WriteFile(docsPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not up to date: go test ./internal/metrics -run TestDocs -update", docsPath)
	}
}

// Every value that a label can have is explained, and none that it cannot have.
func TestWords(t *testing.T) {
	gathered := gather(t, crowded(), exporting(t))
	explained := make(map[string]bool)
	for _, w := range words {
		var want []string
		for _, m := range w.meanings {
			want = append(want, m[0])
		}
		slices.Sort(want)
		for i, family := range w.families {
			explained[family+" "+w.label] = true
			got := labelValues(gathered["correlator_"+family], w.label)
			got = slices.DeleteFunc(got, func(value string) bool { return value == "" }) // as if there were no label
			unknown := slices.ContainsFunc(got, func(value string) bool { return !slices.Contains(want, value) })
			if len(got) == 0 || unknown || i == 0 && !slices.Equal(got, want) { // others may have some of them
				t.Errorf("%s has %s %q, explained are %q", family, w.label, got, want)
			}
		}
	}
	check := func(family string, labels []string) {
		for _, label := range labels {
			if !explained[family+" "+label] {
				t.Errorf("%s: values of %s are not explained", family, label)
			}
		}
	}
	for _, f := range families() {
		check(f.name, f.labels)
	}
	for _, f := range exportFamilies() {
		labels := slices.DeleteFunc(slices.Clone(f.Labels), func(label string) bool {
			return label == "destination" || label == "signal" // the page says what they are
		})
		check(exportPrefix+f.Name, labels)
	}
}

// Whatever else the documentation says of metrics is so, too. What is called like a function is none.
func TestMetricsInDocs(t *testing.T) {
	gathered := gather(t, crowded(), exporting(t))
	name := regexp.MustCompile(metricName.String() + `\(?`)
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range append(paths, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range name.FindAllString(string(text), -1) {
			if strings.HasSuffix(word, "(") {
				continue
			}
			found++
			if _, err := find(gathered, word); err != nil && gathered[word] == nil { // a histogram has its own name in texts
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if found == 0 {
		t.Error("no metric is documented")
	}
}

// The metrics beside the agent's own reasons are those of the counters.
func TestReasonsInOperations(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\nOf the agent itself, in the `reason` of log lines")
	if !found {
		t.Fatal("no table of the agent's own reasons")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	counters := make(map[string]bool)
	new(agent.Counters).Each(func(name string, _ uint64) { counters[name] = true })
	places, rows := newPlaces(families()), 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		metric := strings.Trim(cells[2], " `")
		for _, reason := range quoted.FindAllStringSubmatch(cells[1], -1) {
			desc, _, ok := places.find(reason[1])
			if !ok || !counters[reason[1]] {
				t.Errorf("%s is no counter", reason[1])
				continue
			}
			name, _, _ := strings.Cut(metric, "{")
			if !strings.Contains(desc.String(), fmt.Sprintf("fqName: %q", name)) {
				t.Errorf("%s has the metric %s: %v", reason[1], metric, desc)
			}
		}
	}
	if rows == 0 {
		t.Error("the table is empty")
	}
}

const introduction = `# Metrics

What ` + "`run --metrics-address`" + ` shows at ` + "`/metrics`" + `. This page is made from the code (` + "`go test ./internal/metrics -run TestDocs -update`" + `).

Everything counts from the start of the correlator. No label is of a process: the series are the same however many there
are; which process it is that has a problem, ` + "`correlator status`" + ` and the log tell. The words of the labels are those of
the log's ` + "`reason`" + ` and of the counters that the log ends with and ` + "`status`" + ` shows, under the names in the second column.
The metrics ` + "`process_…` and `go_…`" + ` that every program in Go has are there, too.

[deploy/prometheus](../deploy/prometheus) has alerts and a scrape configuration, [deploy/grafana](../deploy/grafana) a dashboard.

How samples add up, for each that the correlator takes itself:

    correlator_kernel_samples_total          every tick of the clock, by outcome
      └ correlated, unreadable, table_full   (and unsampled, with --unsampled) become
    correlator_samples_total                 by outcome; so do samples that are fed
      └ correlated                           become
    correlator_samples_queued_total          = sent + dropped + waiting

Counting goes on while these are read, so the two sides of a sum may differ by what came in between.
`

const exportIntroduction = `
## OTLP

These are there while something is exported (` + "`--otlp-endpoint`" + `), those of the receiver, ` + "`…_receive…`" + `, while
something is received (` + "`--otlp-listen`" + `). An item is a span, a data point or a sample; ` + "`signal`" + ` is
traces, metrics or profiles. ` + "`destination`" + ` is what the file calls a destination, else its endpoint;
` + "`default`" + ` is that of the standard variables and of the first ` + "`--otlp-endpoint`" + `. The series are
the same as long as the destinations are.
How items add up, for each destination and signal, and for each signal that is received:

    correlator_otlp_accepted_items_total     = sent + dropped + queue_items + in_flight_items
    correlator_otlp_received_items_total     = passed on + rejected + refused

What is passed on is accepted by every destination that takes the signal. The two histograms count requests.

| metric | in logs | type | labels | |
|---|---|---|---|---|
`

// document is the page.
func document(gathered map[string]*dto.MetricFamily) string {
	var b strings.Builder
	b.WriteString(introduction)
	section := func(title string) {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | in logs | type | labels | |\n|---|---|---|---|---|\n", title)
	}
	row := func(name, logged string, labels []string) {
		f := gathered["correlator_"+name]
		if len(labels) == 0 {
			labels = []string{""}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.GetName(), logged, strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "), strings.ReplaceAll(f.GetHelp(), "|", `\|`))
	}
	section("State")
	for _, r := range readings() {
		row(r.name, "", r.labels)
	}
	for _, s := range []struct {
		title    string
		families []family
	}{
		{"Finding processes", discoveryFamilies}, {"Processes", processFamilies}, {"Sampling", samplingFamilies},
		{"Feed", feedFamilies}, {"Delivery", deliveryFamilies},
	} {
		section(s.title)
		if s.title == "Delivery" {
			row("sample_to_socket_seconds", "", nil)
		}
		for _, f := range s.families {
			row(f.name, loggedAs(f), f.labels)
		}
	}
	b.WriteString(exportIntroduction)
	for _, f := range exportFamilies() {
		row(exportPrefix+f.Name, "", f.Labels)
	}
	b.WriteString("\n## Labels\n")
	for _, w := range words {
		fmt.Fprintf(&b, "\n### %s of %s\n\n| %s | |\n|---|---|\n", w.label, strings.Join(w.families, ", "), w.label)
		for _, m := range w.meanings {
			fmt.Fprintf(&b, "| `%s` | %s |\n", m[0], m[1])
		}
	}
	return b.String()
}

// loggedAs is how logs call the counters of a family.
func loggedAs(f family) string {
	var names []string
	for from := range f.from {
		if len(f.labels) > 0 {
			from += "…"
		}
		names = append(names, "`"+from+"`")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
