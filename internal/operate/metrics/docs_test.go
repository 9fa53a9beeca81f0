package metrics

import (
	"correlator/internal/lab/testenv"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const docsPath = "../../../docs/metrics.md"

// docs/metrics.md is up to date.
func TestDocs(t *testing.T) {
	want := document(gatherAll(t))
	if *update {
		testenv.WriteFile(t, docsPath, want)
	}
	got := testenv.ReadFile(t, docsPath)
	if string(got) != want {
		t.Errorf("%s is not up to date: go test ./internal/operate/metrics -run TestDocs -update", docsPath)
	}
}

// The values of labels that are explained are those that there are.
func TestLabelMeanings(t *testing.T) {
	gathered := gatherAll(t)
	explained := make(map[string]bool)
	for _, w := range labelMeanings {
		var want []string
		for _, m := range w.meanings {
			want = append(want, m[0])
		}
		slices.Sort(want)
		for i, family := range w.families {
			explained[family+" "+w.label] = true
			got := labelValues(gathered["correlator_"+family], w.label)
			got = slices.DeleteFunc(got, func(value string) bool { return value == "" }) // the same as no label
			unknown := slices.ContainsFunc(got, func(value string) bool { return !slices.Contains(want, value) })
			if len(got) == 0 || unknown || i == 0 &&
				!slices.Equal(got, want) { // other families may have a part of them
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
	for _, section := range pageSections {
		for _, r := range section.rows {
			labels := strings.Split(r.labels, ", ")
			check(r.metric, slices.DeleteFunc(labels, func(label string) bool {
				return label == "" || slices.Contains(freeLabels, label)
			}))
		}
	}
}

// The metrics that other pages name exist. A name before a parenthesis is a C function of
// correlator.h.
func TestMetricsInDocs(t *testing.T) {
	gathered := gatherAll(t)
	name := regexp.MustCompile(metricName.String() + `\(?`)
	paths, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range append(paths, "../../../README.md") {
		text := testenv.ReadFile(t, path)
		for _, word := range name.FindAllString(string(text), -1) {
			if strings.HasSuffix(word, "(") {
				continue
			}
			found++
			if _, err := find(gathered, word); err != nil &&
				gathered[word] == nil { // texts name a histogram without a suffix
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if found == 0 {
		t.Error("no metric is documented")
	}
}

const introduction = `# Metrics

What ` + "`run --metrics-address`" + ` shows at ` + "`/metrics`" + `. This page is made from the code (` +
	"`go test ./internal/operate/metrics -run TestDocs -update`" + `).

Everything counts from the start of the correlator. No label is of a process, but for [those by service](#by-service),
which are off by default: the series are the same however many there are; which process it is that has a problem, ` + "`correlator status`" + ` and the log tell. The words of the labels are those of
the log's ` + "`reason`" + ` and of the counters that the log ends with and ` + "`status`" + ` shows, under the names in the second column.
The metrics ` + "`process_…` and `go_…`" + ` that every program in Go has are there, too.

[deploy/prometheus](../deploy/prometheus) has alerts and a scrape configuration,
[deploy/grafana](../deploy/grafana) a dashboard.

How samples add up, for each that the correlator takes itself:

    correlator_kernel_samples_total          every tick of the clock, by outcome
      └ correlated, unreadable, table_full   (and unsampled, with --unsampled) become
    correlator_samples_total                 by outcome; so do samples that are fed
      └ correlated                           become
    correlator_samples_queued_total          = sent + dropped + waiting

Counting goes on while these are read, so the two sides of a sum may differ by what came in between.
`

const otlpIntroduction = `
These are there while something is exported (` + "`--otlp-endpoint`" + `), those of the receiver, ` + "`…_receive…`" + `, while
something is received (` + "`--otlp-listen`" + `). An item is a span, a data point or a sample; ` + "`signal`" + ` is
traces, metrics or profiles. ` + "`destination`" + ` is what the file calls a destination, else its endpoint;
` + "`default`" + ` is that of the standard variables and of the first ` + "`--otlp-endpoint`" + `. The series are
the same as long as the destinations are.
How items add up, for each destination and signal, and for each signal that is received:

    correlator_otlp_accepted_items_total     = sent + dropped + queue_items + in_flight_items
    correlator_otlp_received_items_total     = passed on + rejected + refused

What is passed on is accepted by every destination that takes the signal. The two histograms count requests.
`

const openCensusIntroduction = `
These are there while spans and measurements of PHP's OpenCensus clients are received
(` + "`--opencensus-socket`" + `, [docs/php.md](php.md)). ` + "`type`" + ` is the type of a message; unknown is what is none that is
known, or no message. How messages, spans and measurements add up:

    correlator_opencensus_messages_total       = processed + dropped + waiting
    spans of processed trace exports           = exported + dropped + refused + those that are about to be exported
    correlator_opencensus_measurements_total   = aggregated + lost ("measurement")
`

const liveIntroduction = `
These are there while the live view is served (` + "`--live-listen`" + `) or published
(` + "`--live-connect`" + `), those of guests and of the connection only with the one or the other
([docs/live.md](live.md)).
`

const serviceIntroduction = `
These are there with ` + "`--metrics-services N`" + `: the first N names of services that the correlator has seen since it
started have series of their own, and all others together are ` + "`_other`" + `, since processes can publish any name.
Processes without one are ` + "`unknown_service`" + `. Names are cut after 128 bytes.
`

const keepIntroduction = `
These are there while samples are kept for ` + "`correlator explain`" + ` (` + "`--keep`" + `, [docs/explain.md](explain.md)):

    correlator_keep_samples_total            = correlator_keep_samples + evicted + expired
`

// pageRow is a metric on the page.
type pageRow struct {
	metric string // without "correlator_"
	keys   string // of its counters in logs, comma separated; "trouble_…" if the last label follows
	labels string // comma separated
}

// pageSections are the tables of the page.
var pageSections = []struct {
	title, introduction string
	rows                []pageRow
}{
	{"State", "", []pageRow{
		{"build_info", "", "version, revision, goversion, goarch"},
		{"config_samples_per_second", "", ""},
		{"config_samples_delay_seconds", "", ""},
		{"config_max_processes", "", ""},
		{"config_unwinder", "", "unwinder"},
		{"healthy", "", ""},
		{"ready", "", ""},
		{"processes", "", "state"},
		{"processes_in_error", "", "reason"},
		{"processes_publishing", "", "context"},
		{"processes_not_sampled", "", "reason"},
		{"processes_silent", "", "reason"},
		{"processes_without_place", "", "publishing"},
		{"samples_waiting", "", ""},
		{"live_events_up", "", ""},
		{"sweep_seconds_total", "", ""},
		{"stacks_held", "", ""},
		{"stacks_held_bytes", "", ""},
		{"http_connections", "", ""},
		{"http_refused_total", "", "reason"},
	}},
	{"Finding processes", "", []pageRow{
		{"sweeps_total", "sweeps", ""},
		{"sweeps_failed_total", "sweeps_failed", ""},
		{"live_events_failed_total", "events_failed", ""},
		{"live_events_lost_total", "events_lost", ""},
		{"live_looks_total", "live_looks", ""},
		{"context_looks_total", "context_looks", ""},
		{"context_looks_skipped_total", "context_looks_skipped", ""},
		{"process_looks_total", "looks", ""},
		{"jvm_looks_total", "jvm_looks", ""},
		{"jvm_looks_missed_total", "jvm_looks_missed", ""},
		{"lookout_hangs_total", "lookout_hangs", ""},
	}},
	{"Processes", "", []pageRow{
		{"processes_gone_total", "gone", ""},
		{"processes_filtered_total", "processes_filtered", ""},
		{"processes_denied_total", "processes_denied", ""},
		{"processes_refused_total", "processes_refused_…", "reason"},
		{"processes_evicted_total", "processes_evicted_…", "reason"},
		{"processes_truncated_total", "processes_truncated", ""},
		{"log_lines_dropped_total", "log_dropped_…", "reason"},
		{"process_errors_total", "trouble_…", "reason"},
		{"connections_total", "connected", ""},
		{"connections_withdrawn_total", "withdrawn", ""},
		{"connections_gone_total", "sockets_gone", ""},
		{"registrations_total", "registrations", ""},
		{"publications_throttled_total", "published_too_often", ""},
		{"process_contexts_total", "contexts_…", "schema"},
	}},
	{"Workers", "", []pageRow{
		{"workers_running", "", ""},
		{"workers_hung", "", ""},
		{"workers_started_total", "workers_started", ""},
		{"workers_ended_total", "workers_ended", ""},
		{"worker_timeouts_total", "worker_timeouts", ""},
		{"worker_requests_refused_total", "worker_requests_refused", ""},
	}},
	{"Sampling", "", []pageRow{
		{"kernel_samples_total", "kernel_…", "outcome"},
		{"sampling_ticks_missed_total", "samples_missed", ""},
		{"samples_total", "fed_…, sampled_…", "source, outcome"},
		{"samples_cut_total", "samples_cut", ""},
		{"samples_unnamed_total", "samples_unnamed", ""},
		{"samples_walked_total", "samples_walked", ""},
		{"sample_attributes_cut_total", "attributes_cut", ""},
		{"sample_attributes_unknown_key_total", "attributes_unknown_key", ""},
		{"sampling_drains_total", "drains", ""},
		{"sampling_errors_total", "sampling_troubles", ""},
		{"mappings_total", "mappings_…", "result"},
		{"mapping_looks_failed_total", "looks_failed", ""},
		{"frames_total", "frames_…, kernel_frames_…", "space, kind"},
		{"stacks_added_total", "stacks_added", ""},
		{"stacks_refused_total", "stacks_refused", ""},
		{"stacks_evicted_total", "stacks_evicted", ""},
	}},
	{"Unwinding", "", []pageRow{
		{"unwinding_up", "", ""},
		{"unwinding_processes", "", "stacks"},
		{"unwinding_processes_quarantined", "", ""},
		{"unwinding_workers_hung", "", ""},
		{"unwinding_workers_started_total", "unwinding_workers_started", ""},
		{"unwinding_workers_killed_total", "unwinding_workers_killed_…", "reason"},
		{"unwinding_synchronizations_total", "unwinding_synchronized_…", "result"},
		{"unwinding_requests_refused_total", "unwinding_requests_refused_…", "reason"},
		{"unwinding_quarantines_total", "unwinding_quarantined", ""},
		{"unwinding_files_skipped_total", "unwinding_files_skipped", ""},
		{"unwinding_table_errors_total", "unwinding_table_errors", ""},
		{"unwinding_stacks_named_total", "unwinding_stacks", ""},
		{"unwinding_stacks_cut_total", "unwinding_stacks_cut", ""},
		{"unwinding_frames_total", "unwinding_frames", ""},
		{"unwinding_frames_lacking_total", "unwinding_frames_lacking_…", "lacking"},
	}},
	{"By service", serviceIntroduction, []pageRow{
		{"service_processes", "", "service"},
		{"service_samples_total", "", "service, outcome"},
	}},
	{"Feed", "", []pageRow{
		{"feed_datagrams_total", "feed_datagrams", ""},
		{"feed_datagrams_refused_total", "feed_refused_…", "reason"},
		{"feed_samples_total", "samples_fed", ""},
	}},
	{"Delivery", "", []pageRow{
		{"sample_to_socket_seconds", "", ""},
		{"samples_queued_total", "samples_added", ""},
		{"samples_sent_total", "samples_sent", ""},
		{"samples_dropped_total", "samples_dropped_…", "reason"},
		{"samples_delay_missed_total", "samples_delay_missed_…", "reason"},
		{"messages_sent_total", "messages", ""},
		{"send_waits_total", "waits_for_room", ""},
		{"send_pauses_total", "pauses", ""},
	}},
	{"OTLP", otlpIntroduction, []pageRow{
		{"otlp_profile_samples_total", "", ""},
		{"otlp_profile_samples_lost_total", "", "reason"},
		{"otlp_profile_samples_unnamed_total", "", "reason"},
		{"otlp_symbolizer_requests_total", "", ""},
		{"otlp_symbolizer_failures_total", "", "reason"},
		{"otlp_symbolizer_evicted_total", "", ""},
		{"otlp_symbolizer_bytes", "", ""},
		{"otlp_metrics_lost_total", "", "reason"},
		{"otlp_metrics_errors_total", "", ""},
		{"otlp_accepted_items_total", "", "destination, signal"},
		{"otlp_sent_items_total", "", "destination, signal"},
		{"otlp_dropped_items_total", "", "destination, signal, reason, code"},
		{"otlp_attempts_total", "", "destination, signal, code"},
		{"otlp_retries_total", "", "destination, signal"},
		{"otlp_throttled_total", "", "destination, signal"},
		{"otlp_throttled_seconds_total", "", "destination, signal"},
		{"otlp_maybe_duplicated_batches_total", "", "destination, signal"},
		{"otlp_bad_response_total", "", "destination, signal"},
		{"otlp_queue_bytes", "", "destination, signal"},
		{"otlp_queue_limit_bytes", "", "destination, signal"},
		{"otlp_queue_batches", "", "destination, signal"},
		{"otlp_queue_items", "", "destination, signal"},
		{"otlp_queue_oldest_seconds", "", "destination, signal"},
		{"otlp_in_flight", "", "destination, signal"},
		{"otlp_in_flight_items", "", "destination, signal"},
		{"otlp_request_seconds", "", "destination, signal"},
		{"otlp_request_bytes", "", "destination, signal"},
		{"otlp_state", "", "destination, signal, state"},
		{"otlp_received_items_total", "", "signal"},
		{"otlp_received_refused_items_total", "", "signal, reason"},
		{"otlp_received_rejected_items_total", "", "signal, reason"},
		{"otlp_received_ignored_fields_total", "", "signal, reason"},
		{"otlp_received_requests_total", "", "signal, code"},
		{"otlp_receiver_connections", "", ""},
		{"otlp_receiver_refused_connections_total", "", "reason"},
		{"otlp_receiver_accept_errors_total", "", ""},
		{"otlp_receiver_refused_requests_total", "", "reason"},
		{"otlp_receiver_requests_in_work", "", ""},
	}},
	{"OpenCensus", openCensusIntroduction, []pageRow{
		{"opencensus_connections", "", ""},
		{"opencensus_connections_total", "", ""},
		{"opencensus_closed_connections_total", "", "reason"},
		{"opencensus_accept_errors_total", "", ""},
		{"opencensus_messages_total", "", "type"},
		{"opencensus_processed_messages_total", "", "type"},
		{"opencensus_dropped_messages_total", "", "type, reason"},
		{"opencensus_payload_bytes_total", "", "type"},
		{"opencensus_skipped_bytes_total", "", ""},
		{"opencensus_client_lost_messages_total", "", ""},
		{"opencensus_client_lost_traces_total", "", ""},
		{"opencensus_latency_seconds", "", ""},
		{"opencensus_waiting_messages", "", "queue"},
		{"opencensus_buffered_bytes", "", ""},
		{"opencensus_exported_spans_total", "", ""},
		{"opencensus_dropped_spans_total", "", "reason"},
		{"opencensus_refused_spans_total", "", "reason"},
		{"opencensus_lost_attributes_total", "", ""},
		{"opencensus_lost_events_total", "", ""},
		{"opencensus_lost_links_total", "", ""},
		{"opencensus_invalid_parents_total", "", ""},
		{"opencensus_unknown_zones_total", "", ""},
		{"opencensus_measurements_total", "", ""},
		{"opencensus_aggregated_measurements_total", "", ""},
		{"opencensus_lost_stats_total", "", "what, reason"},
		{"opencensus_registered_views_total", "", "result"},
		{"opencensus_definitions", "", "what"},
		{"opencensus_stats_bytes", "", ""},
		{"opencensus_exported_points_total", "", ""},
		{"opencensus_refused_points_total", "", "reason"},
		{"opencensus_panics_total", "", ""},
	}},
	{"Live view", liveIntroduction, []pageRow{
		{"live_guests", "", ""},
		{"live_connections_total", "", ""},
		{"live_connections_closed_total", "", "reason"},
		{"live_objects", "", ""},
		{"live_bytes", "", ""},
		{"live_sent_bytes_total", "", ""},
		{"live_connected", "", ""},
		{"live_connection_failures_total", "", ""},
		{"live_changes_refused_total", "", ""},
		{"live_samples_untracked_total", "", "of"},
		{"live_threads_untracked_total", "", ""},
		{"live_samples_unnamed_total", "", "reason"},
	}},
	{"Kept samples", keepIntroduction, []pageRow{
		{"keep_samples_total", "", ""},
		{"keep_samples", "", ""},
		{"keep_samples_evicted_total", "", ""},
		{"keep_samples_expired_total", "", ""},
		{"keep_samples_lost_total", "", "reason"},
		{"keep_samples_unnamed_total", "", "reason"},
		{"keep_transactions", "", ""},
		{"keep_bytes", "", ""},
	}},
}

// freeLabels are the labels whose values depend on the configuration, or are explained in the text.
var freeLabels = []string{"version", "revision", "goversion", "goarch", "destination", "signal", "type", "queue",
	"service"}

// The page has every metric, with all of its labels.
func TestPageIsComplete(t *testing.T) {
	gathered := gatherAll(t)
	for _, section := range pageSections {
		for _, r := range section.rows {
			name := "correlator_" + r.metric
			if gathered[name] == nil {
				t.Errorf("%s is on the page and not gathered, or on the page twice", name)
				continue
			}
			labels := slices.Sorted(strings.SplitSeq(r.labels, ", "))
			if got := labelNames(gathered[name]); strings.Join(got, ", ") != strings.Join(labels, ", ") {
				t.Errorf("%s has the labels %q, on the page are %q", name, got, labels)
			}
			delete(gathered, name)
		}
	}
	for name := range gathered {
		if strings.HasPrefix(name, "correlator_") {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// document returns the page.
func document(gathered map[string]*dto.MetricFamily) string {
	var b strings.Builder
	b.WriteString(introduction)
	for _, section := range pageSections {
		fmt.Fprintf(&b, "\n## %s\n%s\n| metric | in logs | type | labels | |\n|---|---|---|---|---|\n", section.title,
			section.introduction)
		for _, r := range section.rows {
			f := gathered["correlator_"+r.metric]
			var keys string
			if r.keys != "" {
				keys = "`" + strings.ReplaceAll(r.keys, ", ", "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.GetName(), keys,
				strings.ToLower(f.GetType().String()), r.labels,
				strings.ReplaceAll(f.GetHelp(), "|", `\|`))
		}
	}
	b.WriteString("\n## Labels\n")
	for _, w := range labelMeanings {
		fmt.Fprintf(&b, "\n### %s of %s\n\n| %s | |\n|---|---|\n", w.label, strings.Join(w.families, ", "), w.label)
		for _, m := range w.meanings {
			fmt.Fprintf(&b, "| `%s` | %s |\n", m[0], m[1])
		}
	}
	return b.String()
}
