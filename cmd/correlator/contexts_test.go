package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/operate/inspect"
)

// scan and inspect show what a process publishes by OpenTelemetry's standards.
func TestScanOTel(t *testing.T) {
	testenv.NeedRoot(t)
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 1, Schema: "tls_v1"})
	silent := demo.StartOTel(t, demo.OTelOptions{Hold: true})
	out := command(t, "", "scan", "-o", "json")
	var views []process.View
	assert.NilError(t, json.Unmarshal(out, &views))
	i := slices.IndexFunc(views, func(v process.View) bool { return v.PID == w.PID })
	assert.Assert(t, i >= 0 && !slices.ContainsFunc(views, func(v process.View) bool { return v.PID == silent.PID }),
		"%s", out)
	view := views[i]
	if view.State != process.StateReady || view.ServiceName != "checkout" || view.ServiceEnvironment != "prod" ||
		!slices.Equal(view.Contexts, []string{"opentelemetry"}) || view.SocketPath != "" || view.OTel == nil ||
		view.OTel.Schema != "tls_v1" || !slices.Equal(view.OTel.Keys, demo.OTelKeys()) || view.OTel.TLS != "static" {
		t.Errorf("%+v, %+v", view, view.OTel)
	}

	pid := strconv.Itoa(w.PID)
	out = command(t, "", "inspect", pid, "-o", "json")
	var inspection inspect.Inspection
	assert.NilError(t, json.Unmarshal(out, &inspection))
	if len(inspection.Threads) != 2 || inspection.Threads[1].Reason != "read_while_sampled" || inspection.OTel == nil {
		t.Errorf("%s", out)
	}
	out = command(t, "", "inspect", pid)
	for _, want := range []string{
		"opentelemetry", "tls_v1", "datadog.local_root_span_id, http.route", "(read_while_sampled)",
	} {
		assert.Check(t, strings.Contains(string(out), want), "%q is not in %s", want, out)
	}
	assert.Check(t, !strings.Contains(string(out), "unresolved") && view.TLS == "", "no library is mapped: %s", out)
}

// Contexts of threads whose schema is not read are said to be so, wherever no trace is seen for that reason.
func TestUnreadSchema(t *testing.T) {
	testenv.NeedRoot(t)
	installed(t)
	w := demo.StartOTel(t, demo.OTelOptions{Threads: 1, Schema: "nodejs_v1_dev"})
	bare := demo.StartOTel(t, demo.OTelOptions{NoThreads: true})
	w.Busy(1, true)
	pid := strconv.Itoa(w.PID)
	out := string(command(t, "", "scan"))
	line := pid + ": contexts of threads are not read: their schema is nodejs_v1_dev"
	assert.Check(t, strings.Contains(out, "\n"+line) && !strings.Contains(out, strconv.Itoa(bare.PID)+": "), out)
	out = string(command(t, "", "inspect", pid))
	assert.Check(t, strings.Contains(out, "(schema_not_read)") &&
		strings.Contains(out, "nodejs_v1_dev (not read)"), out)
	out = string(command(t, "", "inspect", strconv.Itoa(bare.PID)))
	assert.Check(t, strings.Contains(out, "(no_thread_contexts)"), out)
	hint := "hint: samples of checkout (" + pid + ") have no trace, as contexts of threads by the schema nodejs_v1_dev"
	recordUntil(t, nil, func(_, stderr string) bool {
		assert.Check(t, strings.Contains(stderr, hint), "%s", stderr)
		return true
	}, "--pid", pid, "--unwinder", "frame-pointers", "-o", filepath.Join(t.TempDir(), "profile"))
}
