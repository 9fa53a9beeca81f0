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
	ended   bool // the last request has been made
}

// newSamples returns samples, on which end must be called.
func newSamples(options profiles.Options, namer *naming.Namer, exporter *otlp.Exporter, counters *counters) *samples {
	s := &samples{counters: counters}
	s.names, options.Name = namer.NewConsumer(s.put), namer.Name
	s.builder = profiles.NewBuilder(options, func(r profiles.Request) {
		exporter.Enqueue(otlp.NewProfilesBatch(r.Body, r.Samples, r.Profiles, time.Now()))
	})
	return s
}

func (s *samples) put(sample *profile.Sample) {
	err := s.build(sample)
	switch {
	case errors.Is(err, errEnded):
		s.counters.lost[lostShutdown].Add(sample.Count)
	case err == nil:
		s.counters.samples.Add(sample.Count)
	case sample.Stack == nil || len(sample.Stack.Frames) == 0:
		s.counters.lost[lostNoStack].Add(sample.Count)
	case errors.Is(err, profiles.ErrTooLarge):
		s.counters.lost[lostTooLarge].Add(sample.Count)
	default:
		s.counters.lost[lostInvalid].Add(sample.Count)
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
	return s.builder.Add(sample)
}

// end makes the last request, which waits for names until ctx ends; samples added later are lost.
func (s *samples) end(ctx context.Context) {
	s.names.Close(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.builder.Flush()
	s.ended = true
}

func (s *samples) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.builder.Flush()
}

// TakesSamples reports whether samples are exported.
func (e *Export) TakesSamples() bool { return e.samples != nil }

// TakesUntraced reports whether samples without a trace are exported.
func (e *Export) TakesUntraced() bool { return e.TakesSamples() && e.config.Untraced }

// TakesAccounts returns false.
func (e *Export) TakesAccounts() bool { return false }

// Accounted does nothing.
func (e *Export) Accounted(*profile.Account) {}

// Waited does nothing.
func (e *Export) Waited(*profile.Sample) {}

// Sampled adds samples to the next request. The caller keeps ownership of sample. It does not wait
// for a destination. It must only be called if TakesSamples.
func (e *Export) Sampled(sample *profile.Sample) { e.samples.names.Sampled(sample) }
