package deploy

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// .ci/deploy-check renders both.
var (
	chartFile     = flag.String("chart", "", "`file` with the objects of the Helm chart, to compare")
	kustomizeFile = flag.String("kustomize", "", "`file` with the objects of deploy/kubernetes, to compare")
)

// newestRelease is the version of the newest release in CHANGELOG.md.
func newestRelease(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^## (\d\S*)`).FindSubmatch(testenv.ReadFile(t, "../CHANGELOG.md"))
	assert.Assert(t, found != nil, "CHANGELOG.md has no release")
	return string(found[1])
}

// The chart has the version of the release, and is the same as deploy/kubernetes but for what each
// tool adds.
func TestChart(t *testing.T) {
	version := newestRelease(t)
	var chart struct{ Version string }
	var kustomization struct {
		Images []struct {
			NewName string `yaml:"newName"`
			NewTag  string `yaml:"newTag"`
		}
	}
	var values struct{ Image struct{ Repository string } }
	for path, into := range map[string]any{"helm/correlator/Chart.yaml": &chart,
		"helm/correlator/values.yaml": &values, "kubernetes/kustomization.yaml": &kustomization} {
		assert.NilError(t, yaml.Unmarshal(testenv.ReadFile(t, path), into))
	}
	image := kustomization.Images[0]
	if chart.Version != version || image.NewTag != version || image.NewName != values.Image.Repository {
		t.Errorf("released is %s, the chart is %+v of %s, deploy/kubernetes has the image %+v", version, chart,
			values.Image.Repository, image)
	}

	if *chartFile == "" && *kustomizeFile == "" {
		return
	}
	byHelm, byKustomize := objects(t, *chartFile), objects(t, *kustomizeFile)
	delete(byKustomize, "Namespace") // helm's --create-namespace
	for kind, want := range byKustomize {
		if !reflect.DeepEqual(byHelm[kind], want) {
			t.Errorf("the chart's %s is\n%s\nand that of kustomize\n%s", kind, marshal(t, byHelm[kind]),
				marshal(t, want))
		}
	}
	assert.Check(t, len(byHelm) == len(byKustomize) && byHelm["PodMonitor"] != nil,
		"the chart has %d kinds of objects, kustomize %d", len(byHelm), len(byKustomize))
}

// objects reads objects by kind, without what Helm and kustomize add to what they are given.
func objects(t *testing.T, path string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	decoder := yaml.NewDecoder(bytes.NewReader(testenv.ReadFile(t, path)))
	for {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		kind, _ := object["kind"].(string)
		assert.Assert(t, kind != "" && found[kind] == nil, "%s has another %q", path, kind)
		if metadata, ok := object["metadata"].(map[string]any); ok {
			delete(metadata, "labels")
		}
		if data, ok := object["data"].(map[string]any); ok {
			var config any // without comments, in any order
			assert.NilError(t, yaml.Unmarshal([]byte(data["config.yaml"].(string)), &config))
			data["config.yaml"] = config
		}
		found[kind] = reduce(object).(map[string]any)
	}
}

// hashed is a name that kustomize makes of the content of a ConfigMap.
var hashed = regexp.MustCompile(`^correlator-[0-9a-z]{10}$`)

func reduce(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			label, _ := strings.CutPrefix(key, "app.kubernetes.io/")
			switch {
			case label == "instance", label == "version", label == "managed-by", key == "helm.sh/chart",
				key == "checksum/config":
				delete(value, key)
			default:
				value[key] = reduce(inner)
			}
		}
	case []any:
		for i, inner := range value {
			value[i] = reduce(inner)
		}
	case string:
		if hashed.MatchString(value) {
			return "correlator"
		}
	}
	return value
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	assert.NilError(t, err)
	return string(text)
}
