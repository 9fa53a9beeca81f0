package keep

import (
	"time"

	"correlator/profile"
)

// Query says what of the samples is wanted.
type Query struct {
	// ID is the id of a trace or a transaction, or else of a span, or how one begins, as
	// ids.Parse returns it; empty: those of any. Of a span the answer is the transactions that it
	// is in.
	ID string
	// Service is a regular expression that a service's name matches as a whole; empty: any.
	Service string
	// Since leaves out transactions that were sampled last before; zero: none.
	Since time.Time
	// Order says which transactions come first, and Most how many are wanted at most: 0 is MaxTransactions.
	Order Order
	Most  int
	// Only is the one transaction that is wanted, which all processes of an owner may have; nil: see ID.
	Only *Only
}

// Only is a transaction of an owner of processes.
type Only struct {
	Owner       string // as that of profile.Resource
	Trace       [16]byte
	Transaction [8]byte // zero: not known
}

// Order is one of transactions.
type Order string

// The orders.
const (
	Busiest Order = "busiest" // by CPU time
	Slowest Order = "slowest" // by the time of the span, or from the first to the last of what is known of it
	Fastest Order = "fastest" // the other way round: those of which it is known how long they were go first
)

// MaxTransactions is how many transactions an answer has at most.
const MaxTransactions = 1000

// Answer is what is kept of transactions. Processes, files, frames and stacks are named by their place.
type Answer struct {
	At               time.Time     `json:"at"`
	Host             string        `json:"host,omitempty"`     // empty: see Process.Host
	From             string        `json:"from,omitempty"`     // the backend that answered, which keeps sums alone; empty: an agent
	SamplesPerSecond int           `json:"samples_per_second"` // of every CPU
	Keep             time.Duration `json:"keep"`               // how long samples are kept at most
	Oldest           time.Time     `json:"oldest"`             // since when there are any; zero: there are none
	Complete         time.Time     `json:"complete"`           // since when all are there; zero: nothing was forgotten
	Kept             uint64        `json:"kept_samples"`
	Evicted          uint64        `json:"evicted_samples"` // for lack of room, since the agent began

	Transactions []Transaction `json:"transactions"`
	More         int           `json:"more"` // transactions that are wanted, too, and left out

	Processes []Process  `json:"processes"`
	Files     []File     `json:"files"`
	Frames    []Frame    `json:"frames"`
	Stacks    [][]uint32 `json:"stacks"` // frames, leaf first
	Samples   []Sample   `json:"samples"`
	// LeftOut is how many samples are in a Sample without a stack, one for each transaction, since the answer
	// would be too large: those of which there are fewest.
	LeftOut uint64 `json:"left_out_samples,omitempty"`

	Waits []Wait `json:"waits,omitempty"`
	// LeftOutSeries is how many series of a backend are not in an answer, since it would be too large.
	LeftOutSeries int `json:"left_out_series,omitempty"`
	// LeftOutWaits is how many waits are in no Wait, since the answer would be too large.
	LeftOutWaits uint64 `json:"left_out_waits,omitempty"`
	// UnknownWaits is what the agent does not know of waits, and why; it is for who hands on the answer to say.
	UnknownWaits string `json:"unknown_waits,omitempty"`

	// Spans are those below the transactions whose times are known, as far as there is room.
	Spans []Span `json:"spans,omitempty"`

	// Ambiguous are the ids that begin so; then there is nothing else.
	Ambiguous []string `json:"ambiguous,omitempty"`
	// Filtered is how many transactions have the id, and are left out by Service or Since.
	Filtered int `json:"filtered,omitempty"`
	// Gone says of an id in full what is known of samples of it that are not there: "expired", "evicted",
	// "no_stack", "too_large", and when the last ones were lost; else empty. Others may be there.
	Gone   string    `json:"gone,omitempty"`
	GoneAt time.Time `json:"gone_at,omitzero"`
}

// Transaction is a transaction of a process. Ids are lower-case hexadecimal digits.
type Transaction struct {
	Trace      string            `json:"trace_id"`
	ID         string            `json:"transaction_id,omitempty"` // empty: not known
	Process    int               `json:"process"`
	Context    string            `json:"context"`
	Attributes map[string]string `json:"attributes,omitempty"`
	First      time.Time         `json:"first"`
	Last       time.Time         `json:"last"`
	Samples    uint64            `json:"samples"`
	Earlier    uint64            `json:"earlier_samples,omitempty"` // that are no longer kept
	KeptFrom   time.Time         `json:"kept_from"`                 // First, or since when all of them are kept
	Gone       string            `json:"gone,omitempty"`            // as in Answer
	Account    *Account          `json:"account,omitempty"`         // nil: there is none
	Span       *Interval         `json:"span,omitempty"`            // when its span was; nil: that is not known
}

// Interval is a time.
type Interval struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Account is what the threads of a transaction did: see profile.Account.
type Account struct {
	First time.Time                                  `json:"first"`
	Last  time.Time                                  `json:"last"`
	Times map[profile.ThreadState]profile.StateTimes `json:"times"` // those that there are
	// WholeTrace: it is of all that the process did in the trace, since its threads did not say in which
	// transaction.
	WholeTrace bool `json:"whole_trace,omitempty"`
	// Partial: an earlier part was forgotten.
	Partial bool `json:"partial,omitempty"`
}

// Process is a process of samples.
type Process struct {
	Host        string `json:"host,omitempty"` // of a backend's answer
	PID         int    `json:"pid"`
	StartTime   uint64 `json:"start_time"` // in clock ticks since boot
	Service     string `json:"service"`
	Environment string `json:"environment,omitempty"`
	ContainerID string `json:"container_id,omitempty"`
}

// File is a file of frames.
type File struct {
	ID      profile.FileID `json:"id"`
	Kind    profile.Kind   `json:"kind"`
	BuildID string         `json:"build_id,omitempty"`
	Path    string         `json:"path"`
}

// Frame is a frame of stacks of one process.
type Frame struct {
	Kind     profile.Kind `json:"k"`
	File     *int         `json:"f,omitempty"` // nil: none
	Address  uint64       `json:"a"`
	Function string       `json:"n,omitempty"` // empty: not known
	System   string       `json:"y,omitempty"` // profile.Function.SystemName
	Source   string       `json:"s,omitempty"`
	Line     uint32       `json:"l,omitempty"`
}

// LeftOutStack is the stack of samples that there is no room for in an answer.
const LeftOutStack = -1

// Sample is how often a thread was seen with a stack, in one span of a transaction.
type Sample struct {
	Transaction int    `json:"t"`
	Stack       int    `json:"s"`           // LeftOutStack: left out, as are thread and span
	Several     bool   `json:"m,omitempty"` // of several threads and spans, which are left out
	Span        string `json:"p,omitempty"`
	TID         int    `json:"i"`
	Thread      string `json:"n,omitempty"`
	Count       uint64 `json:"c"`
	// Moments are when they were taken, as far as that is known.
	Moments []Moment `json:"at,omitempty"`
}

// Moment is when samples were taken that were counted together, or when one wait was.
type Moment struct {
	First int64  `json:"f"` // in ns since 1970: of the first sample; when the wait began
	Last  int64  `json:"l"` // of the last sample; when the wait ended
	Count uint64 `json:"c"`
	Sum   int64  `json:"s,omitempty"` // the time that a wait stands for, with shorter ones, in ns
}

// Span is when a span was that samples or waits of a transaction are in.
type Span struct {
	Transaction int    `json:"t"`
	ID          string `json:"id"`
	Interval
}

// Wait is waits of a thread with one stack and one cause, in one span of a transaction: see profile.Wait.
type Wait struct {
	Transaction int                 `json:"t"`
	Stack       int                 `json:"s"`
	Span        string              `json:"p,omitempty"`
	TID         int                 `json:"i"`
	Thread      string              `json:"n,omitempty"`
	State       profile.ThreadState `json:"k"`
	profile.StateTimes
	Last time.Time `json:"last"` // when the last one ended
	// Moments are when they were, as far as that is known.
	Moments []Moment `json:"at,omitempty"`
	Peer    string   `json:"peer,omitempty"`
	Path    string   `json:"path,omitempty"`
	Futex   uint64   `json:"futex,omitempty"`
	Waker   *Waker   `json:"waker,omitempty"` // nil: not known
}

// Waker is who ended waits. Only a thread has more than Source.
type Waker struct {
	Source  profile.WakerKind `json:"source"`
	PID     int               `json:"pid,omitempty"`
	TID     int               `json:"tid,omitempty"`
	Thread  string            `json:"thread,omitempty"`
	Service string            `json:"service,omitempty"`
	Trace   string            `json:"trace_id,omitempty"` // empty: it worked on none that is known
	ID      string            `json:"transaction_id,omitempty"`
}
