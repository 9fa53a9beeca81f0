package export

import (
	"context"
	"errors"
	"sync"
	"time"

	"correlator/internal/names/naming"
	"correlator/otlp"
	"correlator/otlp/profiles"
	"correlator/profile"
)

// samples puts samples into requests.
type samples struct {
	counters *counters
	names    *naming.Consumer

	mu      sync.Mutex
	builder *profiles.Builder
	waits   *profiles.Builder // nil: there were none yet
	ended   bool              // the last request has been made

	newBuilder func() *profiles.Builder
}

// newSamples returns samples, on which end must be called.
func newSamples(options profiles.Options, namer *naming.Namer, exporter *otlp.Exporter, counters *counters) *samples {
	s := &samples{counters: counters}
	s.names, options.Name = namer.NewPatientConsumer(s.put), namer.Name
	s.newBuilder = func() *profiles.Builder {
		return profiles.NewBuilder(options, func(r profiles.Request) {
			exporter.Enqueue(otlp.NewProfilesBatch(r.Body, r.Samples, r.Profiles, time.Now()))
		})
	}
	s.builder = s.newBuilder()
	return s
}

func (s *samples) put(sample *profile.Sample) {
	c := &s.counters.samples
	if sample.Wait != nil {
		c = &s.counters.waits
	}
	err := s.build(sample)
	switch {
	case errors.Is(err, errEnded):
		c.lost[lostShutdown].Add(sample.Count)
	case err == nil:
		c.put.Add(sample.Count)
	case sample.Stack == nil || len(sample.Stack.Frames) == 0:
		c.lost[lostNoStack].Add(sample.Count)
	case errors.Is(err, profiles.ErrTooLarge):
		c.lost[lostTooLarge].Add(sample.Count)
	default:
		c.lost[lostInvalid].Add(sample.Count)
	}
}

// errEnded means that the last request has been made. A process whose goroutine hung may release
// samples after that.
var errEnded = errors.New("exporting has ended")

func (s *samples) build(sample *profile.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded
	}
	if sample.Wait == nil {
		return s.builder.Add(sample)
	}
	// A backend that takes CPU samples only may refuse the whole request: so waits have their own.
	if s.waits == nil {
		s.waits = s.newBuilder()
	}
	return s.waits.Add(sample)
}

// end makes the last request, which waits for names until ctx ends; samples added later are lost.
func (s *samples) end(ctx context.Context) {
	s.names.Close(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushLocked()
	s.ended = true
}

func (s *samples) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushLocked()
}

func (s *samples) flushLocked() {
	s.builder.Flush()
	if s.waits != nil {
		s.waits.Flush()
	}
}

// TakesSamples reports whether samples are exported.
func (e *Export) TakesSamples() bool { return e.samples != nil }

// TakesUntraced reports whether samples without a trace are exported.
func (e *Export) TakesUntraced() bool { return e.TakesSamples() && e.config.Untraced }

// TakesAccounts reports whether waits are exported; accounts are not.
func (e *Export) TakesAccounts() bool { return e.TakesSamples() }

// Accounted does nothing.
func (e *Export) Accounted(*profile.Account) {}

// Sampled adds samples to the next request. The caller keeps ownership of sample. It does not wait
// for a destination. It must only be called if TakesSamples.
func (e *Export) Sampled(sample *profile.Sample) { e.samples.names.Sampled(sample) }

// Waited adds waits to the next request, as Sampled does.
func (e *Export) Waited(sample *profile.Sample) { e.samples.names.Sampled(sample) }
