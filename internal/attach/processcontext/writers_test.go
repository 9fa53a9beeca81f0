package processcontext_test

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	peer "go.opentelemetry.io/ebpf-profiler/processcontext"
	"gotest.tools/v3/assert"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/remotememory"

	"correlator/internal/attach/processcontext"
	"correlator/internal/lab/demo"
	"correlator/memread"
)

const localRoot = "datadog.local_root_span_id"

// Contexts of libraries that applications use are read, before and after updates, and the reader of
// OpenTelemetry's profiler finds the same.
func TestLibraries(t *testing.T) {
	first := demo.DatadogContext{Service: "checkout", Environment: "production", Version: "1.2"}
	second := demo.DatadogContext{Service: "checkout-with-a-longer-name", Version: "1.3"}
	t.Run("Go", func(t *testing.T) {
		unknown := map[string]bool{"service.instance.id": true, "telemetry.sdk.version": true, "container.id": true}
		w := demo.StartDatadogGo(t, first, demo.DatadogOptions{})
		before := check(t, w.PID, w.Resource, unknown)
		if before.HasThreadContexts() || before.Keys != nil {
			t.Errorf("%+v", before)
		}
		w.PublishContext(second)
		after := check(t, w.PID, w.Resource, unknown)
		if before.PublishedAt >= after.PublishedAt || before.Header == after.Header ||
			before.Value("service.instance.id") != after.Value("service.instance.id") {
			t.Errorf("%+v, then %+v", before, after)
		}
	})
	t.Run("Node.js", func(t *testing.T) {
		first, second := first, second
		first.InstanceID = "123d8444-2c7e-46e3-89f6-6217880f7123"
		first.Schema, first.Keys = processcontext.SchemaTLSDescDev, []string{"http.route"}
		second.Schema, second.Keys = processcontext.SchemaTLS, []string{"http.route", "enduser.id"}
		w := demo.StartDatadogNode(t, first, demo.DatadogOptions{})
		before := check(t, w.PID, w.Resource, nil)
		if before.Schema != first.Schema || !before.HasThreadContexts() ||
			!slices.Equal(before.Keys, []string{localRoot, "http.route"}) {
			t.Errorf("%+v", before)
		}
		w.PublishContext(second)
		after := check(t, w.PID, w.Resource, nil)
		if after.Schema != second.Schema || before.Schema == after.Schema ||
			!slices.Equal(after.Keys, []string{localRoot, "http.route", "enduser.id"}) ||
			before.PublishedAt >= after.PublishedAt || before.Header == after.Header {
			t.Errorf("%+v, then %+v", before, after)
		}
		second.Schema = ""
		w.PublishContext(second)
		if c := check(t, w.PID, w.Resource, nil); c.HasThreadContexts() || c.Keys != nil {
			t.Errorf("%+v", c)
		}
	})
}

// check reads the context of a process, and compares it with the resource that it published, besides
// attributes whose values are not known, and with what the peer reads.
func check(t *testing.T, pid int, published map[string]string, unknown map[string]bool) processcontext.Context {
	t.Helper()
	addr := contextOf(t, pid)
	memory := memread.Open("/proc", pid)
	defer memory.Close()
	c, err := processcontext.Read(memory, addr)
	assert.NilError(t, err)
	theirs, err := peer.Read(libpf.Address(addr), remotememory.NewProcessVirtualMemory(libpf.PID(pid)), 0, 0)
	assert.NilError(t, err)
	resource := make(map[string]string)
	for _, a := range c.Resource {
		resource[a.Key] = a.Value
	}
	theirResource := make(map[string]string)
	for _, kv := range theirs.Context.GetResource().GetAttributes() {
		theirResource[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	schema, keys := "", []string(nil)
	for _, kv := range theirs.Context.GetAttributes() {
		switch kv.GetKey() {
		case "threadlocal.schema_version":
			schema = kv.GetValue().GetStringValue()
		case "threadlocal.attribute_key_map":
			for _, key := range kv.GetValue().GetArrayValue().GetValues() {
				keys = append(keys, key.GetStringValue())
			}
		}
	}
	assert.Check(t, maps.Equal(resource, theirResource) && c.Schema == schema && slices.Equal(c.Keys, keys) &&
		c.PublishedAt == theirs.PublishedAtNs,
		"%+v, the peer reads %v", c, theirs)
	maps.DeleteFunc(resource, func(key, _ string) bool { return unknown[key] })
	assert.Check(t, maps.Equal(resource, published), "%v, published %v", resource, published)
	return c
}

// contextOf returns the address of the only context of a process.
func contextOf(t *testing.T, pid int) (addr uint64) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	assert.NilError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		start, rest, _ := strings.Cut(lines.Text(), "-")
		if !strings.Contains(rest, "OTEL_CTX") {
			continue
		}
		if addr != 0 || !strings.Contains(rest, " rw-p ") {
			t.Fatalf("a second context, or one that is executable: %s", lines.Text())
		}
		addr, err = strconv.ParseUint(start, 16, 64)
		assert.NilError(t, err)
	}
	assert.Assert(t, addr != 0, "no context")
	return addr
}
