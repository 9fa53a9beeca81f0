package keep

import (
	"context"
	"errors"
	"sync"
	"time"

	"correlator/internal/host/metric"
	"correlator/internal/names/naming"
	"correlator/internal/out"
	"correlator/otlp/spantimes"
	"correlator/profile"
)

const (
	// tick is how often names are taken, and what is too old is forgotten.
	tick = 500 * time.Millisecond

	// DefaultBytes has room for ten minutes of some sixteen CPUs that are busy half of the time
	// (docs/benchmarks.md).
	DefaultBytes = 32 << 20

	// MinBytes has room for a sample of 500 frames with names of 700 bytes in each part.
	MinBytes = 8 << 20
)

// Config says what is kept.
type Config struct {
	For   time.Duration // 0: nothing
	Bytes int           // of memory
	Slow  []Rule        // of transactions that are forgotten last
}

// Enabled reports whether anything is kept.
func (c *Config) Enabled() bool { return c.For > 0 }

// MemoryBytes is the memory of the Go runtime that this may take, without that of the namer: twice what is
// kept, since near its limit the garbage collector would run all the time, and one answer.
func (c *Config) MemoryBytes() int64 {
	if !c.Enabled() {
		return 0
	}
	return 2*int64(c.Bytes) + answerMemory
}

// Keep keeps what an agent samples. It is a prometheus.Collector. Its methods may be called at the same
// time.
type Keep struct {
	metric.Unchecked

	about out.About
	store *Store
	namer *naming.Namer
	names *naming.Consumer // of which the store asks for the frames of a stack once, not with each sample

	answering sync.Mutex // held by Answer, which other calls do not wait for
	working   sync.Mutex // held by Answer and Glance

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open begins to keep samples; the caller must call Shutdown. A nil namer knows no names; it must not be
// closed before.
func Open(config Config, about out.About, namer *naming.Namer) *Keep {
	k := &Keep{about: about, store: NewStore(config.For, config.Bytes, config.Slow...), namer: namer}
	k.store.perSample = time.Second / time.Duration(max(about.SamplesPerSecond, 1))
	k.names = namer.NewConsumer(k.store.Named)
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.running.Go(func() { k.run(ctx) })
	return k
}

func (k *Keep) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.store.name(time.Now(), k.namer.Name)
			k.store.Expire(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// TakesSamples returns true.
func (k *Keep) TakesSamples() bool { return true }

// TakesUntraced returns false: nobody asks for them by an id.
func (k *Keep) TakesUntraced() bool { return false }

// Sampled keeps samples. It waits for a step of a query, or until a slice of 2 MiB is forgotten, at most. The
// sample stays the caller's.
func (k *Keep) Sampled(sample *profile.Sample) {
	if k.store.Add(sample, time.Now()) {
		k.names.Sampled(sample)
	}
}

// TakesAccounts returns true.
func (k *Keep) TakesAccounts() bool { return true }

// Accounted keeps an account. It waits as Sampled does.
func (k *Keep) Accounted(account *profile.Account) { k.store.AddAccount(account, time.Now()) }

// Waited keeps waits, as Sampled does samples.
func (k *Keep) Waited(sample *profile.Sample) { k.Sampled(sample) }

// Spans keeps when spans were that were received. It waits as Sampled does, once for all.
func (k *Keep) Spans(spans []spantimes.Span) { k.store.AddSpans(time.Now(), spans...) }

// ErrBusy: another query is being answered. Answers take memory, so there is one at a time.
var ErrBusy = errors.New("another query for samples is being answered: ask again")

// Answer calls use with the answer to a query, which must not be kept: until use returns, all other
// queries end with ErrBusy. Other errors are those of the query's expression, of the context, and of use.
func (k *Keep) Answer(ctx context.Context, q Query, use func(*Answer) error) error {
	if !k.answering.TryLock() {
		return ErrBusy
	}
	defer k.answering.Unlock()
	k.working.Lock()
	defer k.working.Unlock()
	return k.answer(ctx, q, use)
}

// Glance is Answer for those who ask again and again, and for little each time: only a query that has begun ends it
// with ErrBusy, and others wait for it.
func (k *Keep) Glance(ctx context.Context, q Query, use func(*Answer) error) error {
	if !k.working.TryLock() {
		return ErrBusy
	}
	defer k.working.Unlock()
	return k.answer(ctx, q, use)
}

func (k *Keep) answer(ctx context.Context, q Query, use func(*Answer) error) error {
	a, err := k.store.Answer(ctx, q, time.Now())
	if err != nil {
		return err
	}
	a.Host, a.SamplesPerSecond = k.about.HostName, k.about.SamplesPerSecond
	return use(a)
}

// Slow returns what is kept of slow transactions; nil: there is no rule for them.
func (k *Keep) Slow() *SlowStats {
	if len(k.store.slow.rules) == 0 {
		return nil
	}
	return new(k.store.Stats().Slow)
}

// Shutdown ends reading names.
func (k *Keep) Shutdown(context.Context) {
	now, cancel := context.WithCancel(context.Background())
	cancel() // there is nobody to ask for them
	k.names.Close(now)
	k.stop()
	k.running.Wait()
}
