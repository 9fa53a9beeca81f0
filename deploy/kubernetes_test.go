package deploy

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/export"
)

// daemonSet has the fields of the manifest that are tested. The rest is for the schema
// (.ci/deploy-check).
type daemonSet struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				HostPID                      bool  `yaml:"hostPID"`
				Grace                        int   `yaml:"terminationGracePeriodSeconds"`
				HostNetwork                  bool  `yaml:"hostNetwork"`
				AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
				SecurityContext              struct {
					RunAsUser *int `yaml:"runAsUser"`
				} `yaml:"securityContext"`
				Containers []container
				Volumes    []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
					HostPath  any                   `yaml:"hostPath"`
				}
			}
		}
	}
}

type container struct {
	Image           string
	Args            []string
	Env             []struct{ Name, Value string }
	SecurityContext struct {
		Privileged               bool
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop, Add []string }
	} `yaml:"securityContext"`
	Resources struct{ Requests, Limits map[string]string }
}

func readDaemonSet(t *testing.T) daemonSet {
	t.Helper()
	text := testenv.ReadFile(t, "kubernetes/correlator.yaml")
	objects := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var object daemonSet
		if err := objects.Decode(&object); errors.Is(err, io.EOF) {
			t.Fatal("kubernetes/correlator.yaml has no DaemonSet")
		} else if err != nil {
			t.Fatal(err)
		}
		if object.Kind == "DaemonSet" {
			containers := object.Spec.Template.Spec.Containers
			assert.Assert(t, len(containers) == 1, "%d containers", len(containers))
			return object
		}
	}
}

// capabilities are those that a container gets, as the kernel calls them.
func (c container) capabilities() (names []string) {
	for _, name := range c.SecurityContext.Capabilities.Add {
		names = append(names, "CAP_"+name)
	}
	slices.Sort(names)
	return names
}

// A pod gets what the documentation lists as needed, and nothing else.
func TestDaemonSet(t *testing.T) {
	set := readDaemonSet(t)
	pod := set.Spec.Template.Spec
	agent := pod.Containers[0]
	security := agent.SecurityContext
	all, _ := documented(t)
	got := agent.capabilities()
	assert.Check(t, slices.Equal(got, all) && slices.Equal(security.Capabilities.Drop, []string{"ALL"}),
		"the container gets %v, documented are %v", got, all)
	user := pod.SecurityContext.RunAsUser
	assert.Check(t, user != nil && *user == 0, "it runs as a user who is given no capabilities")
	assert.Check(t, !security.Privileged && security.AllowPrivilegeEscalation != nil &&
		!*security.AllowPrivilegeEscalation && security.ReadOnlyRootFilesystem,
		"the container may too much: %+v", security)
	if !pod.HostPID || pod.HostNetwork || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod shares too much, or too little: %+v", pod)
	}
	grace := time.Duration(pod.Grace) * time.Second
	assert.Check(t, grace >= 2*export.DefaultShutdownTimeout, "the pod is killed after %v", grace)
	for _, volume := range pod.Volumes {
		assert.Check(t, volume.HostPath == nil, "volume %s is a path of the host", volume.Name)
	}
	if limit, of := agent.Env[0].Value, agent.Resources.Limits["memory"]; agent.Env[0].Name != "GOMEMLIMIT" ||
		bytesOf(t, limit) > bytesOf(t, of)*3/4 {
		t.Errorf("%s is %s of %s", agent.Env[0].Name, limit, of)
	}
}

// The agent takes the configuration, serves where Prometheus looks, and finds the file where the
// manifest says.
func TestDaemonSetConfiguration(t *testing.T) {
	set := readDaemonSet(t)
	config := "kubernetes/config.yaml"
	agent := set.Spec.Template.Spec.Containers[0]
	i := slices.Index(agent.Args, "--config")
	assert.Assert(t, i >= 0 && filepath.Base(agent.Args[i+1]) == filepath.Base(config),
		"the agent is run as %v", agent.Args)
	out, err := exec.Command(demo.Agent(t, t.TempDir()),
		append(slices.Clone(agent.Args[:i]), "--config", config, "--print-config")...).CombinedOutput()
	assert.NilError(t, err, "\n%s", out)
	port := set.Spec.Template.Metadata.Annotations["prometheus.io/port"]
	assert.Check(t, regexp.MustCompile(`(?m)^metrics-address: +"?:`+port+`"? `).Match(out),
		"Prometheus scrapes port %q; the configuration is\n%s", port, out)
	text := testenv.ReadFile(t, "kubernetes/correlator.yaml")
	assert.Check(t, regexp.MustCompile(`name: metrics\n +containerPort: `+port+`\n`).Match(text),
		"the container's port metrics is not %s", port)

	var kustomization struct {
		ConfigMapGenerator []struct {
			Name  string
			Files []string
		} `yaml:"configMapGenerator"`
		Images []struct{ Name string }
	}
	text = testenv.ReadFile(t, "kubernetes/kustomization.yaml")
	assert.NilError(t, yaml.Unmarshal(text, &kustomization))
	generated := kustomization.ConfigMapGenerator[0]
	mounted := set.Spec.Template.Spec.Volumes[0].ConfigMap.Name
	assert.Check(t, generated.Name == mounted && generated.Files[0] == filepath.Base(config),
		"made is %+v, mounted is %s", generated, mounted)
	assert.Check(t, kustomization.Images[0].Name == agent.Image, "the image %s is not replaced", agent.Image)
}

// The command in the Dockerfile's head gives what the manifest gives.
func TestDockerCommand(t *testing.T) {
	text := testenv.ReadFile(t, "Dockerfile")
	var got []string
	for _, option := range regexp.MustCompile(`--cap-add ([A-Z_]+)`).FindAllStringSubmatch(string(text), -1) {
		got = append(got, "CAP_"+option[1])
	}
	slices.Sort(got)
	want := readDaemonSet(t).Spec.Template.Spec.Containers[0].capabilities()
	assert.Check(t, slices.Equal(got, want), "docker run gives %v, Kubernetes %v", got, want)
	for _, option := range []string{"--pid host", "--cap-drop ALL", "--read-only", "--security-opt no-new-privileges"} {
		assert.Check(t, strings.Contains(string(text), option), "docker run is not given %s", option)
	}
}
