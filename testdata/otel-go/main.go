// Otel-go is a process that publishes OpenTelemetry's process context with Datadog's tracer for Go,
// which updates it in place. It is driven by package internal/lab/demo:
//
//	otel-go [busy]
//
// Commands are lines of standard input, at whose end it ends:
//
//	publish {"service":"shop","environment":"production","version":"1"}
//
// Each is answered by a line of JSON. With busy, one thread burns CPU.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
)

type settings struct{ Service, Environment, Version string }

func main() {
	// Nothing is sent: there is no Datadog agent.
	for _, setting := range [...]string{"DD_INSTRUMENTATION_TELEMETRY_ENABLED", "DD_REMOTE_CONFIGURATION_ENABLED",
		"DD_TRACE_STARTUP_LOGS", "DD_RUNTIME_METRICS_ENABLED", "DD_TRACE_STATS_COMPUTATION_ENABLED"} {
		os.Setenv(setting, "false")
	}
	if len(os.Args) > 1 && os.Args[1] == "busy" {
		go burn()
	}
	fmt.Printf("{\"event\":\"ready\",\"pid\":%d}\n", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := do(lines.Text()); err != nil {
			text, _ := json.Marshal(err.Error())
			fmt.Printf("{\"event\":\"error\",\"reply\":true,\"error\":%s}\n", text)
			continue
		}
		fmt.Println(`{"event":"published","reply":true}`)
	}
	tracer.Stop()
}

func do(line string) error {
	text, ok := strings.CutPrefix(line, "publish ")
	if !ok {
		return fmt.Errorf("unknown command %q", line)
	}
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	return tracer.Start(tracer.WithService(s.Service), tracer.WithEnv(s.Environment), tracer.WithServiceVersion(s.Version),
		tracer.WithLogger(silent{}), tracer.WithAgentAddr("127.0.0.1:1"))
}

type silent struct{}

func (silent) Log(string) {}

//go:noinline
func burn() {
	for {
	}
}
