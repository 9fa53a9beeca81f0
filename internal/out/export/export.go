package export

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"correlator/internal/host/metric"
	"correlator/internal/names/naming"
	"correlator/internal/out"
	opencensus "correlator/opencensus/receiver"
	"correlator/opencensus/stats"
	"correlator/otlp"
	"correlator/otlp/metrics"
	"correlator/otlp/profiles"
	"correlator/otlp/receiver"
)

// Export exports what an agent samples and counts, and what its receivers accept. It is a
// prometheus.Collector of its own counters. Methods are safe for concurrent use unless noted.
type Export struct {
	metric.Unchecked

	config     Config
	log        *zap.Logger
	exporter   *otlp.Exporter
	receiver   *receiver.Receiver   // nil: none is configured
	openCensus *opencensus.Receiver // nil: there is no socket for it
	views      *stats.State         // of OpenCensus's clients; nil without openCensus
	samples    *samples             // nil: no destination takes profiles, or there are no samples
	metrics    *metrics.Encoder     // nil: no destination takes metrics
	namer      *naming.Namer        // nil: frames have the names that they come with
	counters   counters
	spans      spanReader

	stop    context.CancelFunc // of what Start began
	running sync.WaitGroup
}

// Open opens the exporter and the receiver, which begins to serve; the caller must call Shutdown or
// Close. The configuration must be valid and enabled. The namer may be nil, and must not be closed before.
func Open(config Config, about out.About, namer *naming.Namer, log *zap.Logger) (*Export, error) {
	e := &Export{config: config, log: log, spans: spanReader{tell: config.OnSpans}, stop: func() {}}
	var err error
	e.exporter, err = otlp.Open(otlp.Options{
		Destinations: config.Destinations, QueueBytes: config.QueueBytes, Version: about.Version, Observe: e.observe,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the OTLP exporter: %w", err)
	}
	for i := range config.Destinations {
		d := &config.Destinations[i]
		log.Info("exporting OTLP", zap.String("destination", d.Name), zap.String("endpoint", d.Endpoint),
			zap.Bool("tls", d.Secure()), zap.Bool("profiles", d.Takes(otlp.Profiles) && about.SamplesPerSecond > 0),
			zap.Bool("metrics", d.Takes(otlp.Metrics)))
	}
	if config.takes(otlp.Profiles) && about.SamplesPerSecond > 0 {
		if config.NamesFrames() {
			e.namer = namer
		}
		e.samples = newSamples(profiles.Options{
			SamplesPerSecond: about.SamplesPerSecond, HostID: about.HostID, HostName: about.HostName,
			Version:  about.Version,
			MaxBytes: config.maxRequestBytes(otlp.Profiles),
		}, e.namer, e.exporter, &e.counters)
	}
	if config.takes(otlp.Metrics) {
		e.metrics = metrics.NewEncoder(metrics.Options{
			Start: time.Now(), Version: about.Version, HostID: about.HostID, InstanceID: newInstanceID(),
			MaxBytes: config.maxRequestBytes(otlp.Metrics),
		})
	}
	if config.Receiver.Listen != "" {
		config.Receiver.OnPanic = e.observePanic
		if e.receiver, err = receiver.Open(config.Receiver, e.queue()); err != nil {
			e.Close()
			return nil, fmt.Errorf("opening --otlp-listen: %w", err)
		}
		log.Info("receiving OTLP", zap.Stringer("address", e.receiver.Addr()))
	}
	if config.OpenCensus.Receiver.Socket != "" {
		if err = e.openOpenCensus(&about); err != nil {
			e.Close()
			return nil, err
		}
	}
	return e, nil
}

// maxRequestBytes returns the size of requests that every destination of a signal accepts.
func (c *Config) maxRequestBytes(signal otlp.Signal) int {
	limit := otlp.DefaultMaxRequestBytes
	for i := range c.Destinations {
		if d := &c.Destinations[i]; d.Takes(signal) {
			limit = min(limit, d.MaxRequestBytes)
		}
	}
	return limit
}

// TakesProfiles reports whether a destination takes them.
func (c *Config) TakesProfiles() bool { return c.takes(otlp.Profiles) }

// NamesFrames reports whether a namer is of use.
func (c *Config) NamesFrames() bool { return c.Symbolize && c.takes(otlp.Profiles) }

// MemoryBytes is the memory that what waits to be exported, and what is received for that, may take,
// without that of the namer.
func (c *Config) MemoryBytes() int64 {
	sum := c.QueueMemory() + c.OpenCensus.MemoryBytes()
	if c.Receiver.Listen != "" {
		sum += receiver.MemoryBytes(c.Receiver.MaxRequestBytes)
	}
	return sum
}

// QueueMemory returns the sum of the quotas of all destinations.
func (c *Config) QueueMemory() (sum int64) {
	for _, quota := range otlp.Quotas(c.QueueBytes, c.Destinations) {
		sum += quota
	}
	return sum
}

// Start begins to export: samples that were added every Config.ProfilesInterval, and what is
// gathered every Config.MetricsInterval. It is called once, and not after Shutdown.
func (e *Export) Start(gatherer prometheus.Gatherer) {
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	if e.samples != nil {
		e.every(ctx, e.config.ProfilesInterval, e.samples.flush)
	}
	if e.metrics != nil {
		e.every(ctx, e.config.MetricsInterval, func() { e.push(gatherer) })
	}
}

// every calls f at each interval, and once more when ctx ends.
func (e *Export) every(ctx context.Context, interval time.Duration, f func()) {
	e.running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		defer f()
		for {
			select {
			case <-ticker.C:
				f()
			case <-ctx.Done():
				return
			}
		}
	})
}

// push gathers the metrics and queues them.
func (e *Export) push(gatherer prometheus.Gatherer) {
	now := time.Now()
	families, err := gatherer.Gather() // with an error, they are what could be gathered
	if err != nil {
		e.counters.gatherErrors.Add(1)
	}
	result, err := e.metrics.Encode(families, now)
	if err != nil {
		e.counters.gatherErrors.Add(1)
	}
	e.counters.metrics[metricNoValue].Add(uint64(result.Skipped))
	e.counters.metrics[metricTooLarge].Add(uint64(result.TooLarge))
	for _, r := range result.Requests {
		e.exporter.Enqueue(otlp.NewBatch(otlp.Metrics, r.Body, r.Points, now))
	}
}

// Close is Shutdown without waiting.
func (e *Export) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.Shutdown(ctx)
}

// Shutdown exports the last samples and metrics, ends the receivers, and waits for destinations to
// accept what is queued, at most Config.ShutdownTimeout or until ctx is done. No samples must be
// added any more.
func (e *Export) Shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.config.ShutdownTimeout)
	defer cancel()
	// All that is counted comes before the last metrics.
	if e.samples != nil {
		e.endSamples(ctx)
	}
	if e.receiver != nil {
		e.endReceiver(ctx)
	}
	if e.openCensus != nil {
		e.endOpenCensus(ctx)
	}
	e.stop()
	e.running.Wait()
	_ = e.exporter.Shutdown(ctx) // reports what is lost as an event
}

// endSamples exports the last samples, and has names of their frames come within a quarter of the time.
func (e *Export) endSamples(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.config.ShutdownTimeout/4)
	defer cancel()
	e.samples.end(ctx)
}

// endReceiver ends the receiver, in a quarter of the time at most: a slow sender must not use up
// the time of the destinations. An error is that of ctx: requests in work are not acknowledged.
func (e *Export) endReceiver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.config.ShutdownTimeout/4)
	defer cancel()
	_ = e.receiver.Shutdown(ctx)
}
