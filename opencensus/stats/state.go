package stats

import (
	"cmp"
	"hash/maphash"
	"sync"
	"time"

	"correlator/opencensus/wire"
)

// Options has what does not change.
type Options struct {
	// The resource of the metrics. Empty attributes are left out; without ServiceName it is
	// "unknown_service:php".
	ServiceName, HostID, HostName string

	// MaxBytes limits a request. 0: 1 MiB.
	MaxBytes int

	// 0 means the default for each of these.
	MaxMemory     int // bytes of all measures, views, series and exemplars: 64 MiB
	MaxMeasures   int // of a user: 10,000
	MaxViews      int // of a user: 10,000
	MaxSeries     int // of a view, without the one for overflow: 2,000
	MaxBoundaries int // of a view: 4,096

	// NonMonotonicSums exports sums of floats as not monotonic (gauges in Prometheus). Otherwise
	// they are monotonic, and negative values are not added.
	NonMonotonicSums bool
}

// Status is what a State holds.
type Status struct {
	Measures, Views int
	Series          int // of these views, overflow included
	Memory          int // bytes that are taken of Options.MaxMemory
}

// State has all measures and views. It is safe for concurrent use.
type State struct {
	options       Options
	seed          maphash.Seed
	encoder       encoder
	periodChanged chan struct{}

	mu        sync.Mutex // guards all that follows
	latest    time.Time  // of all times so far
	memory    budget
	measures  map[string]*measure
	views     map[string]*view // by their names as UTF-8
	ended     []*view          // dropped, to be encoded once more
	ordinal   uint64           // of the view that was registered last
	records   uint64           // so far
	period    time.Duration
	series    int // of views
	conflicts conflicts
	counts    Counts
	update    Update
	looked    time.Time // for what is unused
}

// New returns a State without measures and views.
func New(o Options) *State {
	o.ServiceName = cmp.Or(o.ServiceName, "unknown_service:php")
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	o.MaxMeasures = cmp.Or(o.MaxMeasures, defaultMaxMeasures)
	o.MaxViews = cmp.Or(o.MaxViews, DefaultMaxViews)
	o.MaxSeries = cmp.Or(o.MaxSeries, DefaultMaxSeries)
	o.MaxBoundaries = cmp.Or(o.MaxBoundaries, defaultMaxBoundaries)
	s := &State{
		options: o, seed: maphash.MakeSeed(), encoder: newEncoder(&o),
		periodChanged: make(chan struct{}, 1), period: defaultPeriod,
		memory:   newBudget(o.MaxMemory),
		measures: make(map[string]*measure), views: make(map[string]*view),
		conflicts: conflicts{users: make(map[uint32]struct{})},
	}
	s.update.s = s
	return s
}

// Update is a State while it is changed. Its methods copy what they keep.
type Update struct {
	s    *State
	now  time.Time
	uid  uint32
	user *user // with that uid; nil: not looked up yet

	definition definition // scratch, as all that follows
	tags       []tag
	identity   []byte
	exemplar   exemplarParts
	updates    int // by the record so far

	conflicts []Conflict // so far
}

// Update calls f once, for messages that were received at that time. The Update is valid during the
// call, which must not use the State otherwise; everything else of it waits. It returns conflicts
// for a log: of each user one a minute, of all users 60, and the same one only once.
func (s *State) Update(now time.Time, f func(*Update)) []Conflict {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &s.update
	u.now, u.uid, u.user, u.conflicts = s.time(now), 0, nil, nil
	f(u)
	return u.conflicts
}

// time returns a time that is not before any other so far. What is received is processed later,
// perhaps after an export, and clocks are set back; but a series must not go back in time, nor
// begin before the end of another one with its name.
func (s *State) time(now time.Time) time.Time {
	if now.After(s.latest) {
		s.latest = now
	}
	return s.latest
}

// SetUser says which user sent what follows. Until then it is charged to user 0.
func (u *Update) SetUser(uid uint32) {
	if u.uid != uid {
		u.uid, u.user = uid, nil
	}
}

// owner returns the user to charge.
func (u *Update) owner() *user {
	if u.user == nil {
		u.user = u.s.memory.user(u.uid)
	}
	return u.user
}

// Counts returns a copy of all counts, of one moment.
func (s *State) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Status returns what there is at present.
func (s *State) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{Measures: len(s.measures), Views: len(s.views), Series: s.series, Memory: s.memory.Used()}
}

// isNumber reports whether a measure of this type has values.
func isNumber(t wire.MeasureType) bool { return t == wire.Int || t == wire.Float }
