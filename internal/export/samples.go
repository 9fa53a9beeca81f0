package export

import (
	"errors"
	"sync"
	"time"

	"correlator/otlp"
	"correlator/otlp/profiles"
	"correlator/profile"
)

// samples makes requests of samples.
type samples struct {
	counters *counters

	mu      sync.Mutex
	builder *profiles.Builder
	ended   bool // nothing is exported any more
}

func newSamples(options profiles.Options, exporter *otlp.Exporter, counters *counters) *samples {
	s := &samples{counters: counters}
	s.builder = profiles.NewBuilder(options, func(r profiles.Request) {
		exporter.Enqueue(otlp.NewProfilesBatch(r.Body, r.Samples, r.Profiles, time.Now()))
	})
	return s
}

func (s *samples) add(sample *profile.Sample) {
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

// errEnded: a process that made its goroutine hang lets go of its samples when the agent has ended.
var errEnded = errors.New("exporting has ended")

func (s *samples) build(sample *profile.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded
	}
	return s.builder.Add(sample)
}

// end puts what was added into a request, and takes nothing any more.
func (s *samples) end() {
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

// TakesSamples reports whether there is a use for samples.
func (e *Export) TakesSamples() bool { return e.samples != nil }

// TakesUntraced reports whether there is one for samples without a trace.
func (e *Export) TakesUntraced() bool { return e.TakesSamples() && e.config.Untraced }

// Sampled adds samples of a process to what is exported next; they stay the caller's. It does not wait for a
// destination. It must not be called unless it TakesSamples.
func (e *Export) Sampled(sample *profile.Sample) { e.samples.add(sample) }
