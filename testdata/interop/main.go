// Interop is a collector as small as it gets: the OTLP receiver of the OpenTelemetry Collector at a
// Unix socket for gRPC and at another for HTTP, and behind it consumers that print what they got, one
// JSON object per line.
//
//	interop SOCKET [ENDPOINT]
//
// The socket of HTTP is SOCKET.http. With an ENDPOINT, the collector's exporter of OTLP/HTTP sends
// everything there instead. The first line is {"ready":true}. It ends at the end of its standard input.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: interop SOCKET [ENDPOINT]")
		os.Exit(2)
	}
	if err := run(os.Args[1], strings.Join(os.Args[2:], "")); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(socket, endpoint string) error {
	ctx := context.Background()
	to, components, err := printers()
	if endpoint != "" {
		to, components, err = forwarders(ctx, endpoint)
	}
	if err != nil {
		return err
	}
	first, err := receivers(ctx, socket, to)
	if err != nil {
		return err
	}
	components = append(components, first...) // all of first are one receiver, which starts once
	for _, c := range components {
		if err := c.Start(ctx, host{}); err != nil {
			return err
		}
	}
	fmt.Println(`{"ready":true}`)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for _, c := range slices.Backward(components) {
		if err := c.Shutdown(ctx); err != nil {
			return err
		}
	}
	return nil
}

// printers print.
func printers() (*consumers, []component.Component, error) {
	p := &printer{lines: json.NewEncoder(os.Stdout)}
	traces, err := consumer.NewTraces(p.traces)
	if err != nil {
		return nil, nil, err
	}
	metrics, err := consumer.NewMetrics(p.metrics)
	if err != nil {
		return nil, nil, err
	}
	profiles, err := xconsumer.NewProfiles(p.profiles)
	if err != nil {
		return nil, nil, err
	}
	return &consumers{traces, metrics, profiles}, nil, nil
}

func telemetry() component.TelemetrySettings {
	return component.TelemetrySettings{
		Logger: zap.NewNop(), TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(),
		Resource: pcommon.NewResource(),
	}
}

// receivers are the OTLP receiver for each signal, with the configuration that a collector has
// without one, but for where it listens.
func receivers(ctx context.Context, socket string, to *consumers) ([]component.Component, error) {
	factory := otlpreceiver.NewFactory().(xreceiver.Factory)
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	at := func(socket string) confignet.AddrConfig {
		return confignet.AddrConfig{Endpoint: socket, Transport: confignet.TransportTypeUnix}
	}
	grpc := configgrpc.NewDefaultServerConfig()
	grpc.NetAddr = at(socket)
	config.Protocols.GRPC = configoptional.Some(grpc)
	http := config.Protocols.HTTP.GetOrInsertDefault()
	http.ServerConfig.NetAddr = at(socket + ".http")
	settings := receiver.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: telemetry()}
	forTraces, err := factory.CreateTraces(ctx, settings, config, to.traces)
	if err != nil {
		return nil, err
	}
	forMetrics, err := factory.CreateMetrics(ctx, settings, config, to.metrics)
	if err != nil {
		return nil, err
	}
	forProfiles, err := factory.CreateProfiles(ctx, settings, config, to.profiles)
	if err != nil {
		return nil, err
	}
	return []component.Component{forTraces, forMetrics, forProfiles}, nil
}

// host is a collector without extensions.
type host struct{}

func (host) GetExtensions() map[component.ID]component.Component { return nil }

// printer prints one object for each span, point and sample, then one for the request: its bytes,
// as the collector's own exporter would send them on.
type printer struct {
	mu    sync.Mutex // requests come side by side
	lines *json.Encoder
}

// object is what is printed.
type object map[string]any

func (p *printer) print(signal string, items []object, request []byte, err error) error {
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, item := range items {
		item["signal"] = signal
		if err := p.lines.Encode(item); err != nil {
			return err
		}
	}
	return p.lines.Encode(object{"signal": signal, "request": request})
}

func (p *printer) traces(_ context.Context, td ptrace.Traces) error {
	var items []object
	for _, r := range td.ResourceSpans().All() {
		for _, scope := range r.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				items = append(items, object{
					"resource": r.Resource().Attributes().AsRaw(), "name": s.Name(),
					"attributes": s.Attributes().AsRaw(),
					"trace_id":   s.TraceID().String(), "span_id": s.SpanID().String(),
				})
			}
		}
	}
	request, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	return p.print("traces", items, request, err)
}

func (p *printer) metrics(_ context.Context, md pmetric.Metrics) error {
	var items []object
	for _, r := range md.ResourceMetrics().All() {
		for _, scope := range r.ScopeMetrics().All() {
			for _, m := range scope.Metrics().All() {
				items = append(items, points(m)...)
			}
		}
	}
	request, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
	return p.print("metrics", items, request, err)
}

// points are the points of a metric, each with its name.
func points(m pmetric.Metric) (items []object) {
	add := func(attributes pcommon.Map, start, at pcommon.Timestamp, more object) {
		more["name"], more["unit"], more["type"] = m.Name(), m.Unit(), m.Type().String()
		more["attributes"], more["start"], more["time"] = attributes.AsRaw(), start, at
		items = append(items, more)
	}
	numbers := func(points pmetric.NumberDataPointSlice) {
		for _, n := range points.All() {
			add(n.Attributes(), n.StartTimestamp(), n.Timestamp(), object{"value": n.DoubleValue()})
		}
	}
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		numbers(m.Gauge().DataPoints())
	case pmetric.MetricTypeSum:
		if m.Sum().IsMonotonic() && m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityCumulative {
			numbers(m.Sum().DataPoints())
		}
	case pmetric.MetricTypeHistogram:
		for _, h := range m.Histogram().DataPoints().All() {
			add(h.Attributes(), h.StartTimestamp(), h.Timestamp(), object{
				"count": h.Count(), "sum": h.Sum(), "bounds": h.ExplicitBounds().AsRaw(),
				"counts": h.BucketCounts().AsRaw(),
			})
		}
	case pmetric.MetricTypeSummary:
		for _, s := range m.Summary().DataPoints().All() {
			add(s.Attributes(), s.StartTimestamp(), s.Timestamp(), object{"count": s.Count(), "sum": s.Sum()})
		}
	}
	return items
}

func (p *printer) profiles(_ context.Context, pd pprofile.Profiles) error {
	var items []object
	dictionary := pd.Dictionary()
	for _, r := range pd.ResourceProfiles().All() {
		for _, scope := range r.ScopeProfiles().All() {
			for _, profile := range scope.Profiles().All() {
				for _, s := range profile.Samples().All() {
					item, err := sample(dictionary, s)
					if err != nil {
						return err
					}
					item["resource"] = r.Resource().Attributes().AsRaw()
					items = append(items, item)
				}
			}
		}
	}
	request, err := (&pprofile.ProtoMarshaler{}).MarshalProfiles(pd)
	return p.print("profiles", items, request, err)
}
