package process

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/processcontext"
	"correlator/internal/host/terminal"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/profile"
)

// attributes makes some of keys and values in turn.
func attributes(texts ...string) (list []processcontext.Attribute) {
	for pair := range slices.Chunk(texts, 2) {
		list = append(list, processcontext.Attribute{Key: pair[0], Value: pair[1]})
	}
	return list
}

// It is said of a process why its environment does not say who it is: too long, too many, or malformed.
func TestIgnoredEnvironment(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("a=b,", 257), ",")
	for want, env := range map[string]access.Environment{
		"": {ResourceAttributes: "a=b"},
		"OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES is ignored: it has more than 40 KiB": {IsLong: true},
		"OTEL_RESOURCE_ATTRIBUTES is ignored: more than 256 attributes":                     {ResourceAttributes: many},
		"OTEL_RESOURCE_ATTRIBUTES is ignored: an attribute without a value":                 {ResourceAttributes: "a=b,c"},
	} {
		got := ignoredText(env)
		assert.Check(t, got == want, "%q", got)
		if want != "" {
			lines := Advice([]View{{PID: 5, Ignored: got}, {PID: 6, Ignored: got}, {PID: 7}})
			assert.Check(t, len(lines) == 1 && strings.HasSuffix(lines[0], "5, 6: "+got), "%q", lines)
		}
	}
}

func TestServiceOf(t *testing.T) {
	all := attributes("service.name", "c-name", "service.namespace", "c-space", "service.version", "c-1",
		"service.instance.id", "c-id", "deployment.environment.name", "c-env", "telemetry.sdk.name", "c-sdk",
		"telemetry.sdk.language", "c-java", "telemetry.sdk.version", "c-2", "host.name", "c-host")
	const variable = "service.name=e-attribute,service.namespace=e-space,service.version=e-1,service.instance.id=e-id," +
		"deployment.environment.name=e-env,telemetry.sdk.name=e-sdk,telemetry.sdk.language=e-go,telemetry.sdk.version=e-2"
	storage := memread.ProcessStorage{ServiceName: "s-name", ServiceEnvironment: "s-env", SocketPath: "/s"}
	ofContext := profile.Service{Name: "c-name", Namespace: "c-space", Version: "c-1", InstanceID: "c-id",
		Environment: "c-env", SDKName: "c-sdk", SDKLanguage: "c-java", SDKVersion: "c-2"}
	ofVariable := profile.Service{Name: "e-attribute", Namespace: "e-space", Version: "e-1", InstanceID: "e-id",
		Environment: "e-env", SDKName: "e-sdk", SDKLanguage: "e-go", SDKVersion: "e-2"}
	named := func(s profile.Service, name string) profile.Service {
		s.Name = name
		return s
	}
	for _, test := range []struct {
		name       string
		context    []processcontext.Attribute
		env        access.Environment
		storage    memread.ProcessStorage
		executable string
		want       profile.Service
	}{
		{name: "nothing"},
		{name: "executable", executable: "java", want: profile.Service{Name: "java"}},
		{name: "storage", storage: storage, executable: "java",
			want: profile.Service{Name: "s-name", Environment: "s-env"}},
		{name: "variable", env: access.Environment{ResourceAttributes: variable}, storage: storage, executable: "java",
			want: ofVariable},
		{name: "both variables", env: access.Environment{ServiceName: "e-name", ResourceAttributes: variable},
			want: named(ofVariable, "e-name")},
		{name: "name alone", env: access.Environment{ServiceName: "e-name"}, storage: storage,
			want: profile.Service{Name: "e-name", Environment: "s-env"}},
		{name: "malformed variable",
			env:     access.Environment{ServiceName: "e-name", ResourceAttributes: variable + ",x"},
			storage: storage, want: profile.Service{Name: "e-name", Environment: "s-env"}},
		{name: "everything", context: all, env: access.Environment{ServiceName: "e-name", ResourceAttributes: variable},
			storage: storage, executable: "java", want: ofContext},
		{name: "each by itself", context: attributes("service.version", "c-1", "service.name", ""),
			env:     access.Environment{ResourceAttributes: "service.namespace=e-space,service.version=e-1"},
			storage: storage,
			want:    profile.Service{Name: "s-name", Namespace: "e-space", Version: "c-1", Environment: "s-env"}},
		{name: "empty texts", context: attributes("service.name", "", "deployment.environment.name", ""),
			env:        access.Environment{ResourceAttributes: "service.name=,deployment.environment.name="},
			executable: "java", want: profile.Service{Name: "java"}},
		{name: "blank names", context: attributes("service.name", " "), env: access.Environment{ServiceName: "\t"},
			storage: memread.ProcessStorage{ServiceName: " "}, executable: "java", want: profile.Service{Name: "java"}},
		{name: "a blank name before another", env: access.Environment{ServiceName: " "}, storage: storage,
			want: profile.Service{Name: "s-name", Environment: "s-env"}},
		{name: "former name", context: attributes("deployment.environment", "old"), storage: storage,
			want: profile.Service{Name: "s-name", Environment: "old"}},
		{name: "both names", context: attributes("deployment.environment", "old", "deployment.environment.name", "new"),
			want: profile.Service{Environment: "new"}},
		{name: "the context's former name comes before the variable", context: attributes("deployment.environment", "old"),
			env: access.Environment{ResourceAttributes: variable}, want: func() profile.Service {
				s := ofVariable
				s.Environment = "old"
				return s
			}()},

		{name: "namespace in the storage, by the context", context: attributes("service.namespace", "s-env"),
			storage: storage, want: profile.Service{Name: "s-name", Namespace: "s-env"}},
		{name: "namespace in the storage, by the variable",
			env:     access.Environment{ResourceAttributes: "service.namespace=s-env"},
			storage: storage, want: profile.Service{Name: "s-name", Namespace: "s-env"}},
		{name: "both are the same",
			env:     access.Environment{ResourceAttributes: "service.namespace=s-env,deployment.environment=s-env"},
			storage: storage, want: profile.Service{Name: "s-name", Namespace: "s-env", Environment: "s-env"}},
		{name: "namespace in the storage, another environment",
			env:     access.Environment{ResourceAttributes: "service.namespace=s-env,deployment.environment.name=e-env"},
			storage: storage, want: profile.Service{Name: "s-name", Namespace: "s-env", Environment: "e-env"}},
		{name: "another namespace", env: access.Environment{ResourceAttributes: "service.namespace=e-space"},
			storage: storage, want: profile.Service{Name: "s-name", Namespace: "e-space", Environment: "s-env"}},
		{name: "neither", storage: memread.ProcessStorage{ServiceName: "s-name"},
			want: profile.Service{Name: "s-name"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var context *processcontext.Context
			if test.context != nil {
				context = &processcontext.Context{Resource: test.context}
			}
			got := ServiceOf(context, test.env, test.storage, test.executable)
			assert.Check(t, got == test.want, "%+v, want %+v", got, test.want)
		})
	}
}

// What a process says of itself cannot control a terminal, nor fill it.
func TestAdviceEscapes(t *testing.T) {
	views := []View{{PID: 5, Ignored: "\x1b[2J is ignored"},
		{PID: 6, OTel: &OTelView{Schema: "x\n\x1b[1m" + strings.Repeat("y", 1000)}}}
	for _, line := range Advice(views) {
		assert.Check(t, terminal.Escape(line) == line && len(line) < 200, "%q", line)
	}
}
