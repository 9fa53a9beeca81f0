package javaagent

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestParseJar(t *testing.T) {
	for file, want := range map[string]Agent{
		"/opt/elastic-apm-agent-1.55.0.jar":             {Kind: Classic, Version: "1.55.0"},
		"elastic-apm-agent.jar":                         {Kind: Classic},
		"/x/elastic-apm-agent-java8-1.50.0.jar":         {Kind: Classic, Version: "1.50.0"},
		"/x/elastic-apm-agent-1.x.jar":                  {Kind: Classic},
		"/x/elastic-apm-agent-1.55.1-SNAPSHOT.jar":      {Kind: Classic},
		"/tmp/elastic-apm-agent-root-0123456789abc.jar": {Kind: Classic},
		"/x/elastic-otel-javaagent-1.4.1.jar":           {Kind: EDOT, Version: "1.4.1"},
		"/x/\x1b[31m/elastic-otel-javaagent.jar":        {Kind: EDOT},
		"/x/elastic-apm-agent-99999.9.jar":              {Kind: Classic},
		"/x/elastic-apm-agent-\x1b[31m.jar":             {},
		"/x/elastic-apm-agents.jar":                     {},
		"/x/apm-agent-attach-cli-1.55.0.jar":            {},
		"/x/opentelemetry-javaagent.jar":                {},
		"/x/elastic-apm-agent-1.55.0.jar.part":          {},
		"/x/elastic-apm-agent-1.55.0.jar/other":         {},
		"":                                              {},
	} {
		got := parseJar(file)
		if got == nil {
			got = new(Agent)
		}
		assert.Check(t, got.Kind == want.Kind && got.Version == want.Version, "%q: %+v", file, got)
	}
}

func TestAsked(t *testing.T) {
	for line, want := range map[string]string{
		"java -javaagent:/x/elastic-apm-agent-1.2.0.jar -jar a.jar":       "elastic-apm-agent 1.2.0",
		"java -javaagent:/x/elastic-otel-javaagent.jar=a=b -jar a.jar":    "elastic-otel-javaagent",
		"java -javaagent:/x/other.jar -javaagent:elastic-apm-agent.jar A": "elastic-apm-agent",
		"java -javaagent:/x/other.jar=elastic-apm-agent.jar A":            "",
		"java -cp /x/elastic-apm-agent.jar A":                             "",
		"":                                                                "",
	} {
		got := ""
		if agent := asked(strings.Fields(line)); agent != nil {
			got = agent.String()
		}
		assert.Check(t, got == want, "%q: %q", line, got)
	}
}

func TestOwnOptions(t *testing.T) {
	for argument, want := range map[string]bool{
		"-javaagent:/x/elastic-apm-agent-1.52.0.jar=c=/tmp/a": true, "-javaagent:/x/elastic-apm-agent.jar=": false,
		"-javaagent:/x/elastic-apm-agent-1.52.0.jar": false, "-javaagent:/x/other.jar=a=b": false, "-Da=b": false,
	} {
		assert.Check(t, hasOwnOptions([]string{"java", argument}) == want, argument)
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		jar, line   string
		environment map[string]string
		want        []Reason
	}{
		{"elastic-apm-agent-1.49.0.jar", "", nil, []Reason{TooOld}},
		{"elastic-apm-agent-0.7.1.jar", "", nil, []Reason{TooOld}},
		{"elastic-apm-agent-1.50.0.jar", "", nil, []Reason{OptionNotSet}},
		{"elastic-apm-agent-2.0.0.jar", "", nil, []Reason{OptionNotSet}},
		{"elastic-apm-agent.jar", "-Delastic.apm.universal_profiling_integration_enabled=true", nil, nil},
		{"elastic-apm-agent.jar", "-Delastic.apm.universal_profiling_integration_enabled=False", nil, []Reason{OptionOff}},
		{"elastic-apm-agent.jar", "-Delastic.apm.universal_profiling_integration_enabled=false " +
			"-Delastic.apm.universal_profiling_integration_enabled=true", nil, nil},
		{"elastic-apm-agent.jar", "", map[string]string{"ELASTIC_APM_UNIVERSAL_PROFILING_INTEGRATION_ENABLED": "true"}, nil},
		{"elastic-apm-agent.jar", "-Delastic.apm.universal_profiling_integration_enabled=true",
			map[string]string{"ELASTIC_APM_UNIVERSAL_PROFILING_INTEGRATION_ENABLED": "false"}, nil},
		{"elastic-otel-javaagent-1.0.0.jar", "", nil, []Reason{NoServiceName}},
		{"elastic-otel-javaagent-1.0.0.jar", "-Dotel.service.name=a", nil, nil},
		{"elastic-otel-javaagent-1.0.0.jar", "", map[string]string{"OTEL_SERVICE_NAME": " "}, []Reason{NoServiceName}},
		{"elastic-otel-javaagent-1.0.0.jar", "", map[string]string{"OTEL_SERVICE_NAME": "a"}, nil},
		{"elastic-otel-javaagent-1.0.0.jar", "",
			map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=c"}, nil},
		{"elastic-otel-javaagent-1.0.0.jar", "", map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "service.name="},
			[]Reason{NoServiceName}},
		{"elastic-otel-javaagent-1.0.0.jar", "", map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "service.name=%20,a=b"},
			[]Reason{NoServiceName}},
		{"elastic-otel-javaagent-1.0.0.jar", "", map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "my.service.name=a"},
			[]Reason{NoServiceName}},
		{"elastic-otel-javaagent-1.0.0.jar", "-Dotel.resource.attributes=service%2Ename=%61", nil, nil},
		{"elastic-otel-javaagent-1.0.0.jar", "-Dotel.resource.attributes=service.name=a%6", nil,
			[]Reason{NoServiceName}},
		{"elastic-otel-javaagent-1.0.0.jar", "-Dotel.resource.attributes=service.name=%zz", nil,
			[]Reason{NoServiceName}},
		{"elastic-otel-javaagent-1.0.0.jar", "-Delastic.otel.universal.profiling.integration.enabled=false",
			map[string]string{"OTEL_SERVICE_NAME": "a"}, []Reason{OptionOff}},
	} {
		agent := parseJar(c.jar)
		agent.explain(strings.Fields(c.line), c.environment, false)
		assert.Check(t, slices.Equal(agent.Reasons, c.want),
			"%s %s %v: %q", c.jar, c.line, c.environment, agent.Reasons)
		agent.Reasons = nil
		agent.explain(strings.Fields(c.line), c.environment, true)
		assert.Check(t, !slices.Contains(agent.Reasons, OptionNotSet) && !slices.Contains(agent.Reasons, NoServiceName),
			"%s %s: %q, though options are unread", c.jar, c.line, agent.Reasons)
	}
}

// Each reason has an advice of its own, and what comes from a worker is checked.
func TestReasons(t *testing.T) {
	seen := make(map[string]Reason)
	for _, reason := range Reasons() {
		advice := reason.Advice(EDOT)
		other, known := seen[advice]
		assert.Check(t, !known || reason == OptionNotSet && other == OptionOff, "%s and %s: %q", other, reason, advice)
		seen[advice] = reason
		if agent := (Agent{Classic, "1.50.0", []Reason{reason}}); !agent.IsValid() {
			t.Errorf("%+v is not valid", agent)
		}
	}
	for _, agent := range []Agent{
		{Classic, "", nil}, {"other", "", []Reason{Unknown}}, {Classic, "\x1b[31m", []Reason{Unknown}},
		{Classic, "1", []Reason{Unknown}}, {EDOT, "1.0", []Reason{"\x1b[31m"}}, {"", "", []Reason{Unknown}},
		{EDOT, "", slices.Repeat([]Reason{Musl}, 100)},
	} {
		assert.Check(t, !agent.IsValid(), "%+v is valid", agent)
	}
}

// Whatever a process has as its arguments, what is made of it is one that is valid.
func FuzzExplain(f *testing.F) {
	f.Add("-javaagent:/x/elastic-apm-agent-1.49.0.jar=a\x00-Delastic.apm.universal_profiling_integration_enabled=false", "true")
	f.Add("-javaagent:elastic-otel-javaagent-java8-1.4.jar\x00-Dotel.resource.attributes=service.name=", "false")
	f.Fuzz(func(t *testing.T, line, value string) {
		r := optionReader{file: func(string) (string, error) { return value, nil }}
		arguments := r.jvmOptions(strings.Split(line, "\x00"), map[string]string{"JDK_JAVA_OPTIONS": value})
		agent := asked(arguments)
		if agent == nil {
			return
		}
		agent.explain(arguments, map[string]string{
			"ELASTIC_APM_UNIVERSAL_PROFILING_INTEGRATION_ENABLED": value, "OTEL_RESOURCE_ATTRIBUTES": value,
		}, r.unread)
		assert.Check(t, len(agent.Reasons) == 0 || agent.IsValid(), "%q: %+v", line, agent)
	})
}
