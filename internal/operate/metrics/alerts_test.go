package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"correlator/internal/lab/testenv"
)

const alertsPath = "../../../docs/alerts.md"

// alert is an alert of deploy/prometheus.
type alert struct {
	name, promql, wait, severity, summary, description string
}

// readAlerts returns the alerts, which must all have a severity, a summary, a description and the
// address of their section of docs/alerts.md.
func readAlerts(t *testing.T) (all []alert) {
	t.Helper()
	text := testenv.ReadFile(t, "../../../deploy/prometheus/alerts.yaml")
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			a := alert{rule.Alert, rule.Expr, rule.For, rule.Labels["severity"], rule.Annotations["summary"],
				rule.Annotations["description"]}
			if names[a.name] || !slices.Contains([]string{"critical", "warning", "info"}, a.severity) ||
				a.summary == "" || a.description == "" {
				t.Errorf("alert is there twice, or not as it should be: %+v", a)
			}
			if got, want := rule.Annotations["runbook_url"], "docs/alerts.md#"+strings.ToLower(a.name); got != want {
				t.Errorf("runbook_url of %s is %q, not %q", a.name, got, want)
			}
			names[a.name] = true
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

// alertLinks are the sections of other pages that help with an alert, by the beginning of its name.
// The longest counts.
var alertLinks = map[string][]string{
	"Correlator":                    {"operations.md#verify-that-it-works"},
	"CorrelatorNotReady":            {"operations.md#in-a-container", "operations.md#many-processes"},
	"CorrelatorUnhealthy":           {"operations.md#sizing"},
	"CorrelatorRestarting":          {"operations.md#sizing"},
	"CorrelatorSamples":             {"operations.md#reasons", "metrics.md#reason-of-samples_dropped_total"},
	"CorrelatorSamplesDelayMissed":  {"operations.md#sizing", "metrics.md#reason-of-samples_delay_missed_total"},
	"CorrelatorSamplesLostInKernel": {"metrics.md#outcome-of-kernel_samples_total"},
	"CorrelatorReceiversNotReading": {"operations.md#reasons"},
	"CorrelatorProcess": {"operations.md#why-is-there-no-data-for-my-service",
		"metrics.md#reason-of-processes_in_error-process_errors_total"},
	"CorrelatorProcessesRefused":  {"operations.md#many-processes", "metrics.md#reason-of-processes_refused_total"},
	"CorrelatorNothingRegistered": {"operations.md#why-is-there-no-data-for-my-service"},
	"CorrelatorUnwinderDown":      {"java.md", "operations.md#what-it-needs"},
	"CorrelatorLiveEvents":        {"operations.md#what-it-needs"},
	"CorrelatorSweepsFail":        {"operations.md#what-it-needs"},
	"CorrelatorFeedRefused":       {"feeding.md", "metrics.md#reason-of-feed_datagrams_refused_total"},
	"CorrelatorOTLP":              {"operations.md#when-nothing-arrives", "operations.md#what-is-lost-and-when"},
	"CorrelatorOTLPReceiverRefuses": {"operations.md#receiving-otlp",
		"metrics.md#reason-of-otlp_received_refused_items_total",
		"metrics.md#reason-of-otlp_receiver_refused_requests_total"},
	"CorrelatorOpenCensus": {"php.md"},
	"CorrelatorKeep":       {"explain.md#what-it-costs"},
	"CorrelatorLiveView":   {"live.md"},
}

// links returns the sections that help with an alert.
func (a *alert) links() []string {
	longest := ""
	for prefix := range alertLinks {
		if strings.HasPrefix(a.name, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return alertLinks[longest]
}

const alertsIntroduction = `# Alerts

What each alert of [deploy/prometheus/alerts.yaml](../deploy/prometheus/alerts.yaml) means and what to do. This page is
made from that file (` + "`go test ./internal/operate/metrics -run TestAlertsPage -update`" + `), where ` + "`runbook_url`" + ` of each
alert is its section here. Critical: nothing of a host arrives. Warning: part of it does not. Info: something is not as
it should be, and costs little.
`

// braces are references of texts to labels and values.
var braces = regexp.MustCompile(`\{\{\s*\$?(?:labels\.)?(\w+)[^}]*\}\}`)

// alertsPage returns docs/alerts.md.
func alertsPage(all []alert) string {
	var b strings.Builder
	b.WriteString(alertsIntroduction)
	for _, a := range all {
		when := a.severity
		if a.wait != "" {
			when += ", after " + a.wait
		}
		fmt.Fprintf(&b, "\n## %s\n\n*%s* %s\n\n%s\n", a.name, strings.ToUpper(when[:1])+when[1:]+".",
			braces.ReplaceAllString(a.summary, "*$1*"), strings.TrimSpace(a.description))
		var see []string
		for _, link := range a.links() {
			see = append(see, "["+link+"]("+link+")")
		}
		fmt.Fprintf(&b, "\nSee %s. It fires while this is so:\n\n", strings.Join(see, ", "))
		for line := range strings.SplitSeq(strings.TrimSpace(a.promql), "\n") {
			b.WriteString(strings.TrimRight("    "+line, " ") + "\n")
		}
	}
	return b.String()
}

// docs/alerts.md is up to date, and what it refers to exists.
func TestAlertsPage(t *testing.T) {
	all := readAlerts(t)
	want := alertsPage(all)
	if *update {
		testenv.WriteFile(t, alertsPath, want)
	}
	if got := testenv.ReadFile(t, alertsPath); string(got) != want {
		t.Errorf("%s is not up to date: go test ./internal/operate/metrics -run TestAlertsPage -update", alertsPath)
	}
	for _, a := range all {
		if len(a.links()) == 0 {
			t.Errorf("%s: no link", a.name)
		}
		for _, link := range a.links() {
			file, anchor, _ := strings.Cut(link, "#")
			there := anchors(string(testenv.ReadFile(t, "../../../docs/"+file)))
			if anchor != "" && !slices.Contains(there, anchor) {
				t.Errorf("%s: %s does not exist", a.name, link)
			}
		}
	}
	for prefix := range alertLinks {
		if !slices.ContainsFunc(all, func(a alert) bool { return strings.HasPrefix(a.name, prefix) }) {
			t.Errorf("links for %s, which is no alert", prefix)
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
