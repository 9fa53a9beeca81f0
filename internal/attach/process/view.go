package process

import (
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/host/self"
	"correlator/memread"
	"correlator/procscan"
	"correlator/procscan/javaagent"
	"correlator/profile"
	"correlator/tlsdesc"
)

// State is where a process is in its life. The names are an interface: `scan` and `status` print
// them.
type State string

const (
	StateNoStorage  State = "no-storage" // maps the library or a process context, publishes nothing (yet)
	StateReady      State = "ready"      // publishes a storage and a socket that accepts us, or a process context
	StateRegistered State = "registered" // attached: was registered with, or is recorded
	StateAttached   State = "attached"   // the same without a socket: publishes a process context alone
	StateFiltered   State = "filtered"   // left out by the Filter
	StateError      State = "error"      // cannot be served, see Reason; tried again with backoff
	StateGone       State = "gone"       // ended, or no longer maps the library
	StateSilent     State = "silent"     // a JVM with an agent that has not loaded its library, see Silent
)

// OBI is the name of contexts that OpenTelemetry eBPF Instrumentation has of a process, in tables and JSON.
const OBI = "obi"

// SetOBI says whether the program that runs had any.
func (t *Target) SetOBI(has bool) { t.ofOBI = has }

// View is one process that takes part, or would but for the filter, as `scan` prints it. Texts are
// what the process itself published, and paths that it may have named: anything.
type View struct {
	ID        procscan.ProcessID `json:"-"`
	PID       int                `json:"pid"`
	StartTime time.Time          `json:"start_time"` // in steps of 10 ms
	State     State              `json:"state"`
	// Reason is a Reason's name with StateError, javaagent's with StateSilent.
	Reason string `json:"reason,omitempty"`

	ServiceName        string   `json:"service_name"`
	ServiceEnvironment string   `json:"service_environment"`
	Contexts           []string `json:"contexts"`    // elastic, opentelemetry and go_labels, by what it publishes; obi
	SocketPath         string   `json:"socket_path"` // as the process itself sees it
	Library            string   `json:"library"`     // path in the process's mount namespace
	Libc               string   `json:"libc"`        // glibc or musl; empty while not known
	TLS                string   `json:"tls"`         // static, dynamic, dtpmod or unresolved; empty without a library

	OTel  *OTelView        `json:"opentelemetry,omitempty"` // nil without a process context
	Agent *javaagent.Agent `json:"agent,omitempty"`         // of StateSilent alone

	// Ignored says why a part of the environment is ignored that says who the process is; empty: it is not.
	Ignored string `json:"ignored,omitempty"`

	ContainerID string `json:"container_id"` // empty without a container; see procscan.Cgroup
	CgroupPath  string `json:"cgroup_path"`  // see procscan.Cgroup
}

// OTelView is what a process publishes by OpenTelemetry's standards.
type OTelView struct {
	ServiceNamespace  string `json:"service_namespace,omitempty"`
	ServiceVersion    string `json:"service_version,omitempty"`
	ServiceInstanceID string `json:"service_instance_id,omitempty"`
	SDK               string `json:"sdk,omitempty"` // name, language and version

	Schema string   `json:"schema,omitempty"` // threadlocal.schema_version; empty: threads publish nothing
	Keys   []string `json:"attribute_keys,omitempty"`
	TLS    string   `json:"tls,omitempty"` // of otel_thread_ctx_v1, as View.TLS; empty if threads publish none
}

// StateText returns the state, with the reason of an error.
func (v View) StateText() string {
	if v.Reason == "" {
		return string(v.State)
	}
	return string(v.State) + " (" + v.Reason + ")"
}

// ServiceText returns the name of the service, or of the agent that publishes none.
func (v View) ServiceText() string {
	if v.Agent != nil {
		return "(" + v.Agent.String() + ")"
	}
	return v.ServiceName
}

// ShortContainerID returns as much of the container's id as engines print in their own tables.
func (v View) ShortContainerID() string { return v.ContainerID[:min(len(v.ContainerID), 12)] }

// TLSText returns how threads have what they work on: by Elastic's library, else by OpenTelemetry's
// variable; empty for a process with neither.
func (v View) TLSText() string {
	if v.OTel != nil && v.OTel.TLS != "" && v.SocketPath == "" {
		return v.OTel.TLS
	}
	return v.TLS
}

// ContextsText returns by which standards the process publishes.
func (v View) ContextsText() string { return strings.Join(v.Contexts, ", ") }

// Describe puts what is known into a view.
func (t *Target) Describe(view *View) {
	view.ServiceName, view.ServiceEnvironment = t.service.Name, t.service.Environment
	view.Ignored = ignoredText(t.program.environment)
	view.SocketPath = t.storage.SocketPath
	view.ContainerID, view.CgroupPath = t.cgroup.ContainerID, t.cgroup.Path
	view.Contexts = []string{}
	if t.HasStorage() {
		view.Contexts = append(view.Contexts, profile.ElasticContext.String())
	}
	view.Library, view.Libc, view.TLS = "", "", ""
	if len(t.mappings) > 0 {
		view.Library = t.mappings[0].Path
	}
	if t.publishing != nil {
		view.Library = t.publishing.mapping.Path
	}
	if view.Library != "" {
		view.TLS = t.elastic.kind()
	}
	view.OTel = nil
	if t.HasContext() {
		view.Contexts = append(view.Contexts, profile.OTelContext.String())
		view.OTel = t.describeContext()
	}
	if t.HasLabels() {
		view.Contexts = append(view.Contexts, GoLabels)
	}
	if t.ofOBI {
		view.Contexts = append(view.Contexts, OBI)
	}
	for _, v := range []*variable{&t.otel.variable, &t.elastic} {
		if v.file != nil && v.err == nil && v.rule.Libc != tlsdesc.LibcUnknown {
			view.Libc = v.rule.Libc.String()
		}
	}
}

func (t *Target) describeContext() *OTelView {
	s, context := &t.service, t.otel.context
	view := &OTelView{
		ServiceNamespace: s.Namespace, ServiceVersion: s.Version, ServiceInstanceID: s.InstanceID,
		SDK:    strings.Join(strings.Fields(s.SDKName+" "+s.SDKLanguage+" "+s.SDKVersion), " "),
		Schema: context.Schema, Keys: context.Keys,
	}
	if context.HasThreadContexts() {
		view.TLS = t.otel.variable.kind()
	}
	return view
}

// kind returns how threads have the variable, in a word.
func (v *variable) kind() string {
	if v.file == nil || v.err != nil {
		return unresolved
	}
	return v.rule.Kind.String()
}

// ticksPerSecond is the unit of start times, the same on every architecture that we run on (USER_HZ
// of the kernel).
const ticksPerSecond = 100

// NewView returns the view of a process of which nothing is known yet.
func NewView(id procscan.ProcessID) View {
	return View{ID: id, PID: id.PID, StartTime: startTime(id.StartTime), Contexts: []string{}}
}

// unresolved is the TLS of a process whose rule is not known yet, or that none fits.
const unresolved = "unresolved"

// clockLeeway is how much the time of a file may be before that of the start of the process that
// has written it: the latter is counted from the boot, and the clock may have been set in between.
const clockLeeway = time.Second

// WrittenSince returns a time before which a process has written no file.
func WrittenSince(id procscan.ProcessID) time.Time { return startTime(id.StartTime).Add(-clockLeeway) }

// startTime turns ticks since boot into a time of day, as exact as the ticks are.
func startTime(ticks uint64) time.Time {
	const tick = time.Second / ticksPerSecond
	booted := time.Now().Add(-self.Clock(unix.CLOCK_BOOTTIME))
	return booted.Add(time.Duration(ticks) * tick).Round(tick).UTC()
}

// StateOf returns the state of a process whose last probe ended with an error, and with StateError
// the name of its reason. A process that takes no part has no state.
func StateOf(err error) (State, string) {
	switch {
	case errors.Is(err, memread.ErrNotPublished):
		return StateNoStorage, ""
	case IsFiltered(err):
		return StateFiltered, ""
	case errors.Is(err, ErrNotTarget):
		return "", ""
	case IsGone(err):
		return StateGone, ""
	}
	return StateError, ReasonOf(err).String()
}

// IsGone reports whether there is nothing left to serve.
func IsGone(err error) bool {
	return errors.Is(err, procscan.ErrGone) || errors.Is(err, memread.ErrGone) || errors.Is(err, bpf.ErrGone) ||
		errors.Is(err, ErrUnmapped)
}
