package export

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"correlator/otlp"
	"correlator/otlp/metrics"
	"correlator/otlp/profiles"
	"correlator/otlp/receiver"
)

// About is the agent whose telemetry it is.
type About struct {
	Version          string
	HostID           string // may be empty
	SamplesPerSecond int    // of every CPU; 0: it takes none
}

// Export exports what an agent samples and counts, and what its receiver takes in. Methods are safe for
// concurrent use unless they say otherwise.
type Export struct {
	config   Config
	log      *zap.Logger
	exporter *otlp.Exporter
	receiver *receiver.Receiver // nil: none is configured
	samples  *samples           // nil: no destination takes profiles, or there are no samples
	metrics  *metrics.Encoder   // nil: no destination takes metrics
	counters counters

	stop    context.CancelFunc // of what Start began
	running sync.WaitGroup
}

// Open opens the exporter and the receiver, which begins to serve; the caller must call Shutdown, or Close. The
// configuration must be valid and enabled.
func Open(config Config, about About, log *zap.Logger) (*Export, error) {
	e := &Export{config: config, log: log, stop: func() {}}
	var err error
	e.exporter, err = otlp.Open(otlp.Options{
		Destinations: config.Destinations, QueueBytes: config.QueueBytes, Version: about.Version, Observe: e.observe,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the OTLP exporter: %w", err)
	}
	for i := range config.Destinations {
		d := &config.Destinations[i]
		log.Info("exporting OTLP", zap.String("destination", d.Name), zap.String("endpoint", d.Endpoint), zap.Bool("tls", d.Secure()),
			zap.Bool("profiles", d.Takes(otlp.Profiles) && about.SamplesPerSecond > 0), zap.Bool("metrics", d.Takes(otlp.Metrics)))
	}
	if config.Takes(otlp.Profiles) && about.SamplesPerSecond > 0 {
		e.samples = newSamples(profiles.Options{
			SamplesPerSecond: about.SamplesPerSecond, HostID: about.HostID, Version: about.Version,
			MaxBytes: config.maxRequestBytes(otlp.Profiles),
		}, e.exporter, &e.counters)
	}
	if config.Takes(otlp.Metrics) {
		e.metrics = metrics.NewEncoder(metrics.Options{
			Start: time.Now(), Version: about.Version, HostID: about.HostID, InstanceID: newInstanceID(),
			MaxBytes: config.maxRequestBytes(otlp.Metrics),
		})
	}
	if config.Receiver.Listen != "" {
		if e.receiver, err = receiver.Open(config.Receiver, e.exporter); err != nil {
			e.Close()
			return nil, fmt.Errorf("opening --otlp-listen: %w", err)
		}
		log.Info("receiving OTLP", zap.Stringer("address", e.receiver.Addr()))
	}
	return e, nil
}

// maxRequestBytes is what every destination of a signal takes.
func (c *Config) maxRequestBytes(signal otlp.Signal) int {
	limit := otlp.DefaultMaxRequestBytes
	for i := range c.Destinations {
		if d := &c.Destinations[i]; d.Takes(signal) {
			limit = min(limit, d.MaxRequestBytes)
		}
	}
	return limit
}

// agentMemory is what an agent takes of the Go runtime's memory without processes, and processMemory with each,
// twice: near the limit the garbage collector would run all the time. (15 KB of each are resident.)
const agentMemory, processMemory = 24 << 20, 30 << 10

// LimitMemory tells the Go runtime of an agent with at most so many processes to be sparing, as far as the environment
// does not say otherwise (GOGC, GOMEMLIMIT). Batches are large and soon garbage, of which there may be half as much as of
// what is in use; and there is a soft limit: when destinations are down and a large queue fills up, the garbage collector
// works more.
func (c *Config) LimitMemory(processes int) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(50)
	}
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	queue := c.QueueBytes
	if queue == 0 {
		queue = otlp.DefaultQueueBytes
	}
	limit := agentMemory + int64(processes)*processMemory + queue
	if c.Receiver.Listen != "" {
		limit += receiver.MemoryBytes(c.Receiver.MaxRequestBytes)
	}
	debug.SetMemoryLimit(limit)
}

// Start begins to export: samples that were added every Config.ProfilesInterval, and what is gathered every
// Config.MetricsInterval. It is called once, and not after Shutdown.
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

// every calls what each interval, and once more when ctx ends.
func (e *Export) every(ctx context.Context, interval time.Duration, what func()) {
	e.running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		defer what()
		for {
			select {
			case <-ticker.C:
				what()
			case <-ctx.Done():
				return
			}
		}
	})
}

// push offers what is gathered now.
func (e *Export) push(gatherer prometheus.Gatherer) {
	now := time.Now()
	families, err := gatherer.Gather() // with an error, all that could be gathered
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

// Close is Shutdown without waiting for anybody.
func (e *Export) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.Shutdown(ctx)
}

// Shutdown exports what was added and what was counted last, ends the receiver and waits for destinations to take
// what is queued, Config.ShutdownTimeout at most, or until ctx ends. No samples must be added any more.
func (e *Export) Shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.config.ShutdownTimeout)
	defer cancel()
	e.stop()
	e.running.Wait()
	if e.samples != nil {
		e.samples.end()
	}
	if e.receiver != nil {
		e.endReceiver(ctx)
	}
	e.exporter.Shutdown(ctx) // what is lost is an event
}

// endReceiver ends the receiver, in a quarter of the time at most: who sends slowly does not cost the destinations
// theirs. An error is that of ctx: what was in work is not acknowledged.
func (e *Export) endReceiver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.config.ShutdownTimeout/4)
	defer cancel()
	e.receiver.Shutdown(ctx)
}
