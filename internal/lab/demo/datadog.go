package demo

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"correlator/internal/lab/testenv"
)

// DatadogContext is what a process publishes of itself by OpenTelemetry's process context, with a
// library of Datadog's.
type DatadogContext struct {
	Service     string `json:"service,omitempty"`
	Environment string `json:"environment,omitempty"`
	Version     string `json:"version,omitempty"`

	// What the library for Go cannot be told: it publishes an instance id of its own, and no schema.
	InstanceID string   `json:"instanceID,omitempty"`
	Schema     string   `json:"schema,omitempty"`
	Keys       []string `json:"keys,omitempty"` // with a schema; datadog.local_root_span_id precedes them
}

// DatadogOptions say how a process with an DatadogContext starts.
type DatadogOptions struct {
	Busy bool // it burns CPU, in a function "burn"
	Placement
}

// DatadogProcess is a process that publishes an DatadogContext with a library of Datadog's. Nothing is sent
// anywhere, and none of its threads has a context.
type DatadogProcess struct {
	*Process
	Published DatadogContext
	// Resource has the attributes that it publishes of it. Go's has more, whose values are not known:
	// service.instance.id, and container.id in a container.
	Resource map[string]string

	sdkName, language string
	sdkVersion        string // empty: not known
}

// StartDatadogGo starts a Go program that publishes a context with dd-trace-go (testdata/otel-go), which
// updates it in place. Its modules must be in the module cache or on a server that is reachable.
func StartDatadogGo(t testing.TB, c DatadogContext, o DatadogOptions) *DatadogProcess {
	t.Helper()
	source := filepath.Join(moduleRoot(t), "testdata", "otel-go")
	program := filepath.Join(moduleRoot(t), "testdata", "out", "otel-go")
	tool := testenv.NeedTool(t, "go")
	unlock := lock(t, filepath.Join(source, "main.go")) // the go command locks go.mod
	defer unlock()
	run := func(args ...string) ([]byte, error) {
		command := exec.Command(tool, args...)
		command.Dir = source
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off",
			"GOFLAGS=-mod=readonly -trimpath -buildvcs=false") // as releases, which share the standard library
		return command.CombinedOutput()
	}
	if output, err := run("build", "-o", program, "."); err != nil {
		if output, err := run("list", "-deps", "."); err != nil {
			testenv.Missing(t, "needs the modules of dd-trace-go: "+string(output))
		}
		t.Fatalf("building testdata/otel-go: %v\n%s", err, output)
	}
	l := newLauncher(t, o.Placement)
	w := &DatadogProcess{sdkName: "dd-trace-go", language: "go"}
	w.Process = l.start(t, append([]string{l.add(program, "otel-go", 0o755)}, o.arguments()...))
	w.PublishContext(c)
	return w
}

// StartDatadogNode starts a Node.js process that publishes a context with libdatadog
// (testdata/otel-node), each update with its payload elsewhere. The library must be in npm's cache or
// in a registry that is reachable.
func StartDatadogNode(t testing.TB, c DatadogContext, o DatadogOptions) *DatadogProcess {
	t.Helper()
	node := testenv.NeedTool(t, "node")
	dir := installDatadogNode(t)
	l := newLauncher(t, o.Placement)
	w := &DatadogProcess{sdkName: "libdatadog", language: "nodejs", sdkVersion: "1.0.0"}
	w.Process = l.start(t, append([]string{node, filepath.Join(dir, "main.js")}, o.arguments()...))
	w.PublishContext(c)
	return w
}

func (o DatadogOptions) arguments() []string {
	if o.Busy {
		return []string{"busy"}
	}
	return nil
}

// installDatadogNode returns a directory with the script and the package that it needs. Installing
// replaces the package, also below a process of another test, so it is done only where that is another
// version.
func installDatadogNode(t testing.TB) (dir string) {
	t.Helper()
	npm := testenv.NeedTool(t, "npm")
	source := filepath.Join(moduleRoot(t), "testdata", "otel-node")
	dir = filepath.Join(moduleRoot(t), "testdata", "out", "otel-node")
	unlock := lock(t, filepath.Join(source, "package.json"))
	defer unlock()
	wanted := testenv.ReadFile(t, filepath.Join(source, "package-lock.json"))
	done := filepath.Join(dir, "installed.json") // what of
	if have, err := os.ReadFile(done); err != nil || !bytes.Equal(have, wanted) {
		for _, name := range [...]string{"package.json", "package-lock.json"} {
			testenv.WriteFile(t, filepath.Join(dir, name), testenv.ReadFile(t, filepath.Join(source, name)))
		}
		command := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		command.Dir = dir
		if output, err := command.CombinedOutput(); err != nil {
			testenv.Missing(t, "needs the npm package of libdatadog: "+string(output))
		}
		testenv.WriteFile(t, done, wanted)
	}
	script := testenv.ReadFile(t, filepath.Join(source, "main.js"))
	if have, err := os.ReadFile(filepath.Join(dir, "main.js")); err != nil || !bytes.Equal(have, script) {
		testenv.WriteFile(t, filepath.Join(dir, "main.js"), script)
	}
	return dir
}

// PublishContext publishes another context instead.
func (w *DatadogProcess) PublishContext(c DatadogContext) {
	w.t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.must(nil, "publish", string(text))
	w.Published = c
	w.Resource = map[string]string{"telemetry.sdk.name": w.sdkName, "telemetry.sdk.language": w.language}
	for key, value := range map[string]string{
		"service.name": c.Service, "deployment.environment.name": c.Environment, "service.version": c.Version,
		"service.instance.id": c.InstanceID, "telemetry.sdk.version": w.sdkVersion,
	} {
		if value != "" {
			w.Resource[key] = value
		}
	}
	if w.language == "nodejs" {
		w.Resource["host.name"] = "demo"
	}
}
