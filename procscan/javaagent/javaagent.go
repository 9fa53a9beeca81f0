// Package javaagent finds Elastic's agents for Java in JVMs that have not loaded the agent's native
// library, and says why that probably is so. It looks at one process, and takes part in no protocol.
package javaagent

import (
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"correlator/procscan"
)

// Kind is which agent it is.
type Kind string

const (
	Classic Kind = "elastic-apm-agent"      // Elastic's APM agent for Java
	EDOT    Kind = "elastic-otel-javaagent" // Elastic's distribution of OpenTelemetry's
)

// Agent is an agent that a JVM has loaded, or was told to load.
type Agent struct {
	Kind    Kind     `json:"kind"`
	Version string   `json:"version,omitempty"` // by the name of its file; empty: that has none
	Reasons []Reason `json:"reasons"`           // why its library is not loaded, the likeliest first; at least one
}

// String returns the agent's name and version.
func (a *Agent) String() string { return strings.TrimSpace(string(a.Kind) + " " + a.Version) }

// IsValid reports whether it can be what Find returns.
func (a *Agent) IsValid() bool {
	file := string(a.Kind)
	if a.Version != "" {
		file += "-" + a.Version
	}
	named, known := parseJar(file+".jar"), Reasons()
	return named != nil && named.Kind == a.Kind && named.Version == a.Version &&
		len(a.Reasons) > 0 && len(a.Reasons) <= len(known) &&
		!slices.ContainsFunc(a.Reasons, func(r Reason) bool { return !slices.Contains(known, r) })
}

// Reason is why the native library of an agent is probably not loaded.
type Reason string

// The reasons, in the order of their likelihood.
const (
	Starting      Reason = "starting"        // the process is younger than the agent takes to start
	TooOld        Reason = "agent_too_old"   // the agent has no such library
	OptionOff     Reason = "option_off"      // it is told not to load it
	OptionNotSet  Reason = "option_not_set"  // it is not told to, and does not by default
	NoExec        Reason = "noexec"          // the file system that it writes the library to forbids mapping it
	NoTempDir     Reason = "no_temp_dir"     // there is no such directory
	NoServiceName Reason = "no_service_name" // it is not told its service's name, without which it does not
	Musl          Reason = "musl"            // the JVM is one for musl, the library perhaps not
	Unknown       Reason = "unknown"         // none of these
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		Starting, TooOld, OptionOff, OptionNotSet, NoExec, NoTempDir, NoServiceName, Musl, Unknown,
	}
}

// Advice says what to do, in a sentence for the operator of the service.
func (r Reason) Advice(kind Kind) string {
	switch r {
	case Starting:
		return "it started less than a minute ago: look again"
	case TooOld:
		return "use version 1.50 or later of the agent"
	case OptionOff, OptionNotSet:
		if kind == EDOT {
			return "set ELASTIC_OTEL_UNIVERSAL_PROFILING_INTEGRATION_ENABLED=true"
		}
		return "set ELASTIC_APM_UNIVERSAL_PROFILING_INTEGRATION_ENABLED=true (the default is false; elasticapm.properties " +
			"and Kibana's settings are not seen from here)"
	case NoExec:
		return "its temporary directory is mounted noexec: start it with -Djava.io.tmpdir= of another one"
	case NoTempDir:
		return "its temporary directory does not exist: create it, or set -Djava.io.tmpdir="
	case NoServiceName:
		return "set OTEL_SERVICE_NAME: without, EDOT does not begin"
	case Musl:
		return "the JVM is for musl (Alpine): use a version of the agent whose jar has elastic-jvmti/linux-musl-*.so"
	}
	return "see the agent's log of its start"
}

// Advice says that the library is not loaded, and what to do about each reason.
func (a *Agent) Advice() string {
	advice := make([]string, 0, len(a.Reasons))
	for _, reason := range a.Reasons {
		advice = append(advice, reason.Advice(a.Kind))
	}
	return a.String() + " has not loaded its native library: " + strings.Join(advice, "; ")
}

// options are those that decide, by their system properties and environment variables.
var options = map[Kind]struct{ property, variable string }{
	Classic: {"elastic.apm.universal_profiling_integration_enabled",
		"ELASTIC_APM_UNIVERSAL_PROFILING_INTEGRATION_ENABLED"},
	EDOT: {"elastic.otel.universal.profiling.integration.enabled",
		"ELASTIC_OTEL_UNIVERSAL_PROFILING_INTEGRATION_ENABLED"},
}

// firstClassic is the first minor version 1.x of the classic agent with the integration: tag
// added[1.50.0] of its option.
const firstClassic = 50

// Find looks for an agent in a JVM; nil: there is none. It reads the command line, the environment
// and open files of the process, and the file system of its temporary directory, and may block as
// long as the process likes.
func Find(h *procscan.Handle) (*Agent, error) {
	arguments, err := h.CommandLine()
	isLong := errors.Is(err, procscan.ErrLong)
	if err != nil && !isLong {
		return nil, err
	}
	environment, err := h.Environment(append([]string{
		options[Classic].variable, options[EDOT].variable, "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	}, optionVariables...)...)
	isLong = isLong || errors.Is(err, procscan.ErrLong)
	if err != nil && !errors.Is(err, procscan.ErrLong) {
		return nil, err
	}
	options := optionReader{file: h.OptionFile, unread: isLong}
	arguments = options.jvmOptions(arguments, environment)
	agent := asked(arguments)
	if agent == nil {
		err := h.OpenFiles(func(file string) bool {
			agent = parseJar(strings.TrimSuffix(file, " (deleted)"))
			return agent == nil
		})
		if err != nil || agent == nil {
			return nil, err
		}
	}
	agent.explain(arguments, environment, options.unread || hasOwnOptions(arguments))
	agent.look(h, arguments)
	if len(agent.Reasons) == 0 {
		agent.Reasons = []Reason{Unknown}
	}
	return agent, nil
}

// asked returns the agent that the options of a JVM ask for.
func asked(arguments []string) *Agent {
	for _, argument := range arguments {
		if jar, ok := strings.CutPrefix(argument, "-javaagent:"); ok {
			jar, _, _ = strings.Cut(jar, "=") // its own options
			if agent := parseJar(jar); agent != nil {
				return agent
			}
		}
	}
	return nil
}

// hasOwnOptions reports whether options of an agent follow its jar, as the name of a file with them that Elasticsearch
// gives, which are not read.
func hasOwnOptions(arguments []string) bool {
	return slices.ContainsFunc(arguments, func(argument string) bool {
		value, is := strings.CutPrefix(argument, "-javaagent:")
		jar, own, _ := strings.Cut(value, "=")
		return is && own != "" && parseJar(jar) != nil
	})
}

// parseJar returns the agent in a file of that path, nil if its name is that of none. Releases have their version at
// the end of their name.
func parseJar(file string) *Agent {
	name, isJar := strings.CutSuffix(path.Base(file), ".jar")
	for _, kind := range []Kind{Classic, EDOT} {
		rest, found := strings.CutPrefix(name, string(kind))
		if !isJar || !found || rest != "" && rest[0] != '-' || strings.ContainsFunc(rest, isUnusual) {
			continue
		}
		agent := &Agent{Kind: kind}
		if version := rest[strings.LastIndexByte(rest, '-')+1:]; isVersion(version) {
			agent.Version = version
		}
		return agent
	}
	return nil
}

// isUnusual reports whether a character is in no name of a release, or of what is made of one.
func isUnusual(c rune) bool {
	return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("_.-", c)
}

// isVersion reports whether a text is two to four numbers of up to four digits.
func isVersion(text string) bool {
	numbers := strings.Split(text, ".")
	for _, number := range numbers {
		if number == "" || len(number) > 4 || strings.Trim(number, "0123456789") != "" {
			return false
		}
	}
	return len(numbers) >= 2 && len(numbers) <= 4
}

// explain adds the reasons that the configuration tells. What is not set is not known if options are
// unread.
func (a *Agent) explain(arguments []string, environment map[string]string, unread bool) {
	if a.tooOld() {
		a.Reasons = append(a.Reasons, TooOld)
		return
	}
	option := options[a.Kind]
	value, set := property(arguments, option.property)
	if !set {
		value, set = environment[option.variable], environment[option.variable] != ""
	}
	switch {
	case set && strings.EqualFold(value, "false"):
		a.Reasons = append(a.Reasons, OptionOff)
	case !set && a.Kind == Classic && !unread:
		a.Reasons = append(a.Reasons, OptionNotSet)
	}
	if a.Kind == EDOT && !namesService(arguments, environment) && !unread {
		a.Reasons = append(a.Reasons, NoServiceName)
	}
}

// look adds the reasons that the system tells.
func (a *Agent) look(h *procscan.Handle, arguments []string) {
	temporary, set := property(arguments, "java.io.tmpdir")
	if !set {
		temporary = "/tmp"
	}
	switch noExec, err := h.NoExec(temporary); {
	case err == nil && noExec:
		a.Reasons = append(a.Reasons, NoExec)
	case errors.Is(err, os.ErrNotExist):
		a.Reasons = append(a.Reasons, NoTempDir)
	}
	if len(a.Reasons) > 0 {
		return
	}
	mappings, _ := h.ExecutableMappings() // those before an error
	for _, m := range mappings {
		if strings.HasPrefix(path.Base(m.Path), "ld-musl-") {
			a.Reasons = append(a.Reasons, Musl)
			break
		}
	}
}

func (a *Agent) tooOld() bool {
	major, rest, ok := strings.Cut(a.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return a.Kind == Classic && ok && err == nil && (major == "0" || major == "1" && n < firstClassic)
}

// namesService reports whether the resource of OpenTelemetry's SDK has a service name.
func namesService(arguments []string, environment map[string]string) bool {
	name, _ := property(arguments, "otel.service.name")
	attributes, _ := property(arguments, "otel.resource.attributes")
	return strings.TrimSpace(name+environment["OTEL_SERVICE_NAME"]) != "" || hasServiceName(attributes) ||
		hasServiceName(environment["OTEL_RESOURCE_ATTRIBUTES"])
}

// hasServiceName reports whether resource attributes, KEY=VALUE,KEY=VALUE with percent-encoding, have a
// name that is not blank.
func hasServiceName(attributes string) bool {
	for pair := range strings.SplitSeq(attributes, ",") {
		key, value, _ := strings.Cut(pair, "=")
		key, keyErr := unescape(strings.TrimSpace(key))
		value, valueErr := unescape(value)
		if keyErr == nil && valueErr == nil && key == "service.name" && strings.TrimSpace(value) != "" {
			return true
		}
	}
	return false
}

// unescape decodes percent-encoding. Workers that need this package would wait for net/url.
func unescape(text string) (string, error) {
	parts := strings.Split(text, "%")
	for i, part := range parts[1:] {
		if len(part) < 2 {
			return "", strconv.ErrSyntax
		}
		char, err := strconv.ParseUint(part[:2], 16, 8)
		if err != nil {
			return "", err
		}
		parts[i+1] = string([]byte{byte(char)}) + part[2:]
	}
	return strings.Join(parts, ""), nil
}

// property returns the system property that the last of the options of a JVM sets.
func property(arguments []string, name string) (value string, set bool) {
	for _, argument := range arguments {
		if rest, ok := strings.CutPrefix(argument, "-D"+name+"="); ok {
			value, set = rest, true
		}
	}
	return value, set
}
