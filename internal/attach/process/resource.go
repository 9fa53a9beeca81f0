package process

import (
	"cmp"
	"strings"

	"correlator/internal/attach/processcontext"
	"correlator/internal/worker/access"
	"correlator/memread"
	"correlator/profile"
)

// This file is who a process is, for whom samples of it are shown: merged from all that tells of it.

// Keys of resource attributes (OpenTelemetry's semantic conventions 1.37). The last one is the former
// name of the one before it.
const (
	serviceName           = "service.name"
	serviceNamespace      = "service.namespace"
	serviceVersion        = "service.version"
	serviceInstanceID     = "service.instance.id"
	sdkName               = "telemetry.sdk.name"
	sdkLanguage           = "telemetry.sdk.language"
	sdkVersion            = "telemetry.sdk.version"
	deploymentEnvironment = "deployment.environment.name"
	formerEnvironment     = "deployment.environment"
)

// ServiceOf returns who a process is. Each field is of the first source that has it; what is empty is
// not there:
//
//   - context, what the process published by OpenTelemetry's process context; nil: nothing
//   - OTEL_SERVICE_NAME, then OTEL_RESOURCE_ATTRIBUTES, of env: the order in which SDKs prefer them.
//     If the latter cannot be parsed, all of it is ignored, as SDKs do
//   - storage, what the process published by Elastic's library: its zero value if it did not
//   - executable, the name of the program, for the name of the service alone
//
// The storage has one field for the environment. Elastic's agent for Java fills it with that, and its
// distribution of OpenTelemetry's (EDOT) with the namespace of the service. So a text that another
// source says is the namespace is taken for that, unless one says that it is the environment.
func ServiceOf(context *processcontext.Context, env access.Environment, storage memread.ProcessStorage,
	executable string) profile.Service {
	sources := [2][]processcontext.Attribute{}
	if context != nil {
		sources[0] = context.Resource
	}
	sources[1], _ = processcontext.ParseResourceAttributes(env.ResourceAttributes) // none with an error
	find := func(key string) string {
		return cmp.Or(processcontext.Value(sources[0], key), processcontext.Value(sources[1], key))
	}
	s := profile.Service{
		Name: firstText(processcontext.Value(sources[0], serviceName), env.ServiceName,
			processcontext.Value(sources[1], serviceName), storage.ServiceName, executable),
		Namespace:  find(serviceNamespace),
		Version:    find(serviceVersion),
		InstanceID: find(serviceInstanceID),
		SDKName:    find(sdkName), SDKLanguage: find(sdkLanguage), SDKVersion: find(sdkVersion),
	}
	for _, source := range sources {
		s.Environment = cmp.Or(s.Environment, processcontext.Value(source, deploymentEnvironment),
			processcontext.Value(source, formerEnvironment))
	}
	if storage.ServiceEnvironment != s.Namespace {
		s.Environment = cmp.Or(s.Environment, storage.ServiceEnvironment)
	}
	return s
}

// ignoredText says why something of the environment is ignored, nothing if it is not.
func ignoredText(env access.Environment) string {
	if env.IsLong {
		return "OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES is ignored: it has more than 40 KiB"
	}
	if _, err := processcontext.ParseResourceAttributes(env.ResourceAttributes); err != nil {
		reason := strings.TrimPrefix(err.Error(), "parsing OTEL_RESOURCE_ATTRIBUTES: ")
		return "OTEL_RESOURCE_ATTRIBUTES is ignored: " + reason
	}
	return ""
}

// firstText returns the first text that is not blank: a blank name of a service is none.
func firstText(texts ...string) string {
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}
