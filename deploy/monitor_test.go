package deploy

import (
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// podMonitor has what determines how its targets are called.
type podMonitor struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		JobLabel            string `yaml:"jobLabel"`
		PodMetricsEndpoints []struct {
			Relabelings []struct {
				SourceLabels []string `yaml:"sourceLabels"`
				TargetLabel  string   `yaml:"targetLabel"`
				Replacement  string
			}
		} `yaml:"podMetricsEndpoints"`
	}
}

// labels returns the labels of a target on the node n1. Without relabeling, the operator calls the job
// by the name of the object (PodMonitorSpec.jobLabel), and Prometheus the instance by its address.
func (m podMonitor) labels() map[string]string {
	labels := map[string]string{"job": m.Metadata.Namespace + "/" + m.Metadata.Name, "instance": "10.0.0.1:9464",
		"__meta_kubernetes_pod_node_name": "n1"}
	for _, relabeling := range m.Spec.PodMetricsEndpoints[0].Relabelings {
		value := relabeling.Replacement
		for _, source := range relabeling.SourceLabels {
			value += labels[source]
		}
		labels[relabeling.TargetLabel] = value
	}
	return labels
}

// However Prometheus finds correlators, their job is the one that alerts select, and their instance in
// Kubernetes is the node.
func TestScrapedLabels(t *testing.T) {
	selected := map[string]bool{}
	for _, found := range regexp.MustCompile(`job="([^"]*)"`).FindAllSubmatch(
		testenv.ReadFile(t, "prometheus/alerts.yaml"), -1) {
		selected[string(found[1])] = true
	}
	var config struct {
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	assert.NilError(t, yaml.Unmarshal(testenv.ReadFile(t, "prometheus/prometheus.yaml"), &config))
	job := config.ScrapeConfigs[0].JobName
	assert.Assert(t, len(selected) == 1 && selected[job], "alerts select %v, scraped is %s", selected, job)
	verify := func(path string, text []byte) {
		var monitor podMonitor
		assert.NilError(t, yaml.Unmarshal(text, &monitor))
		if labels := monitor.labels(); !selected[labels["job"]] || labels["instance"] != "n1" {
			t.Errorf("by %s, targets have the labels %v; alerts select the job %v", path, labels, selected)
		}
	}
	const path = "kubernetes/pod-monitor/pod-monitor.yaml"
	verify(path, testenv.ReadFile(t, path))
	if *chartFile != "" {
		verify(*chartFile, []byte(marshal(t, objects(t, *chartFile)["PodMonitor"])))
	}
}
