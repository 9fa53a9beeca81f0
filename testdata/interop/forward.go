package main

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/exporter/xexporter"
)

// consumers get what the receiver received.
type consumers struct {
	traces   consumer.Traces
	metrics  consumer.Metrics
	profiles xconsumer.Profiles
}

// forwarders are the collector's exporter of OTLP/HTTP for each signal, with the configuration that a
// collector has, but for where it sends to, and without a queue: a request is answered when it has
// been sent on.
func forwarders(ctx context.Context, endpoint string) (*consumers, []component.Component, error) {
	factory := otlphttpexporter.NewFactory().(xexporter.Factory)
	config := factory.CreateDefaultConfig().(*otlphttpexporter.Config)
	config.ClientConfig.Endpoint = endpoint
	config.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	settings := exporter.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: telemetry()}
	traces, err := factory.CreateTraces(ctx, settings, config)
	if err != nil {
		return nil, nil, err
	}
	metrics, err := factory.CreateMetrics(ctx, settings, config)
	if err != nil {
		return nil, nil, err
	}
	profiles, err := factory.CreateProfiles(ctx, settings, config)
	if err != nil {
		return nil, nil, err
	}
	return &consumers{traces, metrics, profiles}, []component.Component{traces, metrics, profiles}, nil
}
