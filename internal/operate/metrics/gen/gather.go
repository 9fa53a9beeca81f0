package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"correlator/internal/operate/metrics"
	"correlator/internal/out"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/internal/out/keep"
	"correlator/internal/out/live"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker/cost"
	"correlator/otlp"
)

type families map[string]*dto.MetricFamily

// gatherAll returns every family that the correlator can have, with every series that does not depend
// on traffic.
func gatherAll() (families, error) {
	dir, err := os.MkdirTemp("", "metrics")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ended, end := context.WithCancel(context.Background())
	end()

	exporter, err := export.Open(exportConfig(dir), out.About{SamplesPerSecond: 20}, nil, zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer exporter.Close()
	view, err := live.Open(live.Config{Listen: []string{"uds:" + filepath.Join(dir, "live")}, Connect: "uds:/nowhere"},
		out.About{}, nil, zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer view.Shutdown(ended)
	kept := keep.Open(keep.Config{For: time.Minute, Bytes: keep.MinBytes}, out.About{}, nil)
	defer kept.Shutdown(ended)
	server, err := metrics.Open("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer server.Close()

	gathered, err := metrics.NewGatherer(metrics.Build{Version: "v1.2.3", Revision: "0123abcd"},
		agent.NewCollector(idleAgent{}), exporter, view, kept, server).Gather()
	if err != nil {
		return nil, err
	}
	byName := make(families)
	for _, f := range gathered {
		byName[f.GetName()] = f
	}
	return byName, nil
}

// exportConfig has both receivers, and a destination that does not exist.
func exportConfig(dir string) export.Config {
	config := export.DefaultConfig()
	config.Destinations = []otlp.Destination{otlp.NewDestination("unix:" + filepath.Join(dir, "none.sock"))}
	config.Receiver.Listen = "unix:" + filepath.Join(dir, "otlp.sock")
	config.OpenCensus.Receiver.Socket = filepath.Join(dir, "opencensus.sock")
	return config
}

type idleAgent struct{}

func (idleAgent) Config() agent.Config                 { return agent.Config{} }
func (idleAgent) Counters() *agent.Counters            { return new(agent.Counters) }
func (idleAgent) Census() agent.Census                 { return agent.Census{} }
func (idleAgent) NotSampled() map[string]int           { return nil }
func (idleAgent) Services() []agent.ServiceCounts      { return []agent.ServiceCounts{{Name: "shop"}} }
func (idleAgent) Health() error                        { return nil }
func (idleAgent) Ready() error                         { return nil }
func (idleAgent) Unwinding() *sampling.UnwindingStatus { return nil }
func (idleAgent) Waits() *sampling.WaitsStatus         { return new(sampling.WaitsStatus) }
func (idleAgent) Cost() cost.Cost                      { return cost.Cost{PSSBytes: 1} }

func labelNames(f *dto.MetricFamily) []string {
	names := make(map[string]bool)
	for _, m := range f.GetMetric() {
		for _, pair := range m.Label {
			names[pair.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func labelValues(f *dto.MetricFamily, label string) []string {
	values := make(map[string]bool)
	for _, m := range f.GetMetric() {
		for _, pair := range m.Label {
			if pair.GetName() == label {
				values[pair.GetValue()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(values))
}
