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
			if containers := object.Spec.Template.Spec.Containers; len(containers) != 1 {
				t.Fatalf("%d containers", len(containers))
			}
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
	if got := agent.capabilities(); !slices.Equal(got, all) ||
		!slices.Equal(security.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("the container gets %v, documented are %v", got, all)
	}
	if user := pod.SecurityContext.RunAsUser; user == nil || *user != 0 {
		t.Error("it runs as a user who is given no capabilities")
	}
	if security.Privileged || security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation ||
		!security.ReadOnlyRootFilesystem {
		t.Errorf("the container may too much: %+v", security)
	}
	if !pod.HostPID || pod.HostNetwork || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod shares too much, or too little: %+v", pod)
	}
	if grace := time.Duration(pod.Grace) * time.Second; grace < 2*export.DefaultShutdownTimeout {
		t.Errorf("the pod is killed after %v", grace)
	}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			t.Errorf("volume %s is a path of the host", volume.Name)
		}
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
	dir := buildAgent(t)
	config := "kubernetes/config.yaml"
	agent := set.Spec.Template.Spec.Containers[0]
	i := slices.Index(agent.Args, "--config")
	if i < 0 || filepath.Base(agent.Args[i+1]) != filepath.Base(config) {
		t.Fatalf("the agent is run as %v", agent.Args)
	}
	out, err := exec.Command(filepath.Join(dir, "correlator"),
		append(slices.Clone(agent.Args[:i]), "--config", config, "--print-config")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	port := set.Spec.Template.Metadata.Annotations["prometheus.io/port"]
	if !regexp.MustCompile(`(?m)^metrics-address: +"?:` + port + `"? `).Match(out) {
		t.Errorf("Prometheus scrapes port %q; the configuration is\n%s", port, out)
	}
	text := testenv.ReadFile(t, "kubernetes/correlator.yaml")
	if !regexp.MustCompile(`name: metrics\n +containerPort: ` + port + `\n`).Match(text) {
		t.Errorf("the container's port metrics is not %s", port)
	}

	var kustomization struct {
		ConfigMapGenerator []struct {
			Name  string
			Files []string
		} `yaml:"configMapGenerator"`
		Images []struct{ Name string }
	}
	text = testenv.ReadFile(t, "kubernetes/kustomization.yaml")
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	generated := kustomization.ConfigMapGenerator[0]
	if mounted := set.Spec.Template.Spec.Volumes[0].ConfigMap.Name; generated.Name != mounted ||
		generated.Files[0] != filepath.Base(config) {
		t.Errorf("made is %+v, mounted is %s", generated, mounted)
	}
	if kustomization.Images[0].Name != agent.Image {
		t.Errorf("the image %s is not replaced", agent.Image)
	}
}

// The command in the Dockerfile's head gives what the manifest gives.
func TestDockerCommand(t *testing.T) {
	text := testenv.ReadFile(t, "Dockerfile")
	var got []string
	for _, option := range regexp.MustCompile(`--cap-add ([A-Z_]+)`).FindAllStringSubmatch(string(text), -1) {
		got = append(got, "CAP_"+option[1])
	}
	slices.Sort(got)
	if want := readDaemonSet(t).Spec.Template.Spec.Containers[0].capabilities(); !slices.Equal(got, want) {
		t.Errorf("docker run gives %v, Kubernetes %v", got, want)
	}
	for _, option := range []string{"--pid host", "--cap-drop ALL", "--read-only", "--security-opt no-new-privileges"} {
		if !strings.Contains(string(text), option) {
			t.Errorf("docker run is not given %s", option)
		}
	}
}
