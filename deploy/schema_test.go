//go:build release

package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// .ci/deploy-check, which has the schemas of Kubernetes' releases, renders what is validated.
var (
	releases = flag.String("kubernetes", "", "`directories` of the schemas of releases, separated by commas")
	rendered = flag.String("objects", "", "`files` with objects, separated by commas")
)

// schema is what an API server says of a value. There are no more keywords in those of what we deploy.
type schema struct {
	Ref                  string   `json:"$ref"`
	AllOf                []schema // one, which is a reference
	OneOf                []schema
	Type, Format         string
	Default              any
	Properties           map[string]schema
	AdditionalProperties *schema
	Items                *schema
	Required             []string
	Keys                 []string                                `json:"x-kubernetes-list-map-keys"`
	Kinds                []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// schemas are those of an API group, by their names.
type schemas map[string]schema

func (s schemas) resolve(in schema) schema {
	switch {
	case len(in.AllOf) > 0:
		return s.resolve(in.AllOf[0])
	case in.Ref != "":
		return s.resolve(s[path.Base(in.Ref)])
	}
	return in
}

// refusals returns why an API server refuses a value: strictly, as it warns of fields that it does not know.
func (s schemas) refusals(at string, by schema, value any) (why []string) {
	by = s.resolve(by)
	accepted := false
	switch v := value.(type) {
	case map[string]any:
		accepted = by.Type == "object"
		for _, name := range by.Required {
			if _, ok := v[name]; !ok {
				why = append(why, at+" has no "+name)
			}
		}
		for name, inner := range v {
			if property, ok := by.Properties[name]; ok {
				why = append(why, s.refusals(at+"."+name, property, inner)...)
			} else if by.AdditionalProperties != nil {
				why = append(why, s.refusals(at+"."+name, *by.AdditionalProperties, inner)...)
			} else {
				why = append(why, at+" has an unknown "+name)
			}
		}
	case []any:
		accepted = by.Type == "array"
		seen := map[string]bool{}
		for i, item := range v {
			if !accepted {
				break
			}
			why = append(why, s.refusals(fmt.Sprintf("%s[%d]", at, i), *by.Items, item)...)
			key := ""
			for _, name := range by.Keys {
				fields, _ := item.(map[string]any)
				field, ok := fields[name]
				if !ok {
					field = s.resolve(*by.Items).Properties[name].Default
				}
				key += fmt.Sprintf("%v ", field)
			}
			if seen[key] && key != "" {
				why = append(why, at+" has two of "+key)
			}
			seen[key] = true
		}
	case string:
		accepted = by.Type == "string"
	case bool:
		accepted = by.Type == "boolean"
	case int:
		accepted = by.Type == "number" ||
			by.Type == "integer" && (by.Format != "int32" || math.MinInt32 <= v && v <= math.MaxInt32)
	case float64:
		accepted = by.Type == "number"
	}
	for _, one := range by.OneOf {
		accepted = accepted || len(s.refusals(at, one, value)) == 0
	}
	if !accepted {
		why = append(why, fmt.Sprintf("%s may not be %#v", at, value))
	}
	return why
}

var (
	boolean    = regexp.MustCompile(`(?mi)[-:] +(y|yes|n|no|on|off) *$`) // in YAML 1.1, which Kubernetes reads
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	labelName  = regexp.MustCompile(`^([-a-z0-9.]+/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$`)
)

// refused returns why the API server of a release refuses one of the objects in a text.
func refused(t *testing.T, release string, text []byte) (why []string) {
	t.Helper()
	why = boolean.FindAllString(string(text), -1)
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return why
		} else if err != nil {
			return append(why, err.Error())
		}
		version, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		files, err := filepath.Glob(filepath.Join(release, "api*", version+".json"))
		assert.NilError(t, err)
		var group struct{ Components struct{ Schemas schemas } }
		for _, file := range files {
			assert.NilError(t, json.Unmarshal(testenv.ReadFile(t, file), &group))
		}
		found := false
		for _, by := range group.Components.Schemas {
			if len(by.Kinds) == 1 && by.Kinds[0].Kind == kind {
				found = true
				why = append(why, group.Components.Schemas.refusals(kind, by, object)...)
			}
		}
		metadata, _ := object["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		if !found || !objectName.MatchString(name) {
			why = append(why, fmt.Sprintf("it knows no %s %s that is called %q", version, kind, name))
		}
		labels, _ := metadata["labels"].(map[string]any)
		for name, value := range labels {
			if text, ok := value.(string); !ok || !labelName.MatchString(name) || !labelValue.MatchString(text) {
				why = append(why, fmt.Sprintf("%s has the label %s: %v", kind, name, value))
			}
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		for name := range annotations {
			if !labelName.MatchString(name) {
				why = append(why, fmt.Sprintf("%s has the annotation %s", kind, name))
			}
		}
	}
}

// The API servers accept all objects.
func TestAccepted(t *testing.T) {
	for release := range strings.SplitSeq(*releases, ",") {
		for file := range strings.SplitSeq(*rendered, ",") {
			why := refused(t, release, testenv.ReadFile(t, file))
			assert.Check(t, len(why) == 0, "%s is not valid for Kubernetes %s:\n%s", file, path.Base(release),
				strings.Join(why, "\n"))
		}
	}
}

// They accept no object with a mistake.
func TestRefused(t *testing.T) {
	text := string(testenv.ReadFile(t, *kustomizeFile))
	for right, wrong := range map[string]string{
		"apiVersion: apps/v1":          "apiVersion: apps/v1beta1",
		"kind: DaemonSet":              "kind: DemonSet",
		"\n  name: correlator\n":       "\n  name: Correlator\n",
		"kubernetes.io/name: ":         "kubernetes.io/name: -",
		"hostPID: true":                "hostPid: true",
		"privileged: false":            "privileged: \"\"",
		"cpu: \"1\"":                   "cpu: [1]",
		"cpu: 20m":                     "cpu: off",
		"runAsUser: 0":                 "runAsUser: \"0\"",
		"runAsGroup: 0":                "runAsGroup: 0.5",
		"containerPort: 9":             "containerPort: 9000000000",
		"port: metrics":                "port: true",
		"\n        name: correlator\n": "\n",
		"\n      hostPID: true":        "\n      hostPID: true\n      hostPID: true",
		"\n      containers:":          "\n      containers: {}\n      initContainers:",
		"env:":                         "env:\n        - name: GOMEMLIMIT",
		"ports:\n":                     "ports:\n        - {containerPort: 9464, protocol: TCP}\n",
		"SYS_PTRACE":                   "{SYS_PTRACE: true}",
	} {
		with := strings.Replace(text, right, wrong, 1)
		assert.Check(t, with != text, "%s has no %q", *kustomizeFile, right)
		for release := range strings.SplitSeq(*releases, ",") {
			why := refused(t, release, []byte(with))
			assert.Check(t, len(why) > 0, "Kubernetes %s accepts %q", path.Base(release), wrong)
		}
	}
}
