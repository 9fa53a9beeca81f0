package demo

import "time"

// Times named Ns are CLOCK_MONOTONIC in nanoseconds, as the process reads it.

// Loaded says where the library is in the process.
type Loaded struct {
	Path           string
	Base           uint64 // load address
	StoragePointer uint64 `json:"storage_pointer"` // address of the exported pointer, 0 in a library without
	MappedNs       uint64 `json:"time_ns"`         // when loading began
}

// Publication says what the exported pointer was set to.
type Publication struct {
	Storage uint64 // 0: withdrawn
	Socket  string
	TimeNs  uint64 `json:"time_ns"` // just before
	LateNs  uint64 `json:"late_ns"` // how late the process came to do it, with PublishAfter and PublishWithin
}

// Forked is a process that was forked off, and executed nothing.
type Forked struct{ Child int }

// Registration is a registration message that the process has read.
type Registration struct {
	SamplesDelayMillis uint32 `json:"samples_delay_ms"`
	HostID             string `json:"host_id"`
	SentNs             uint64 `json:"sent_ns"` // by the kernel's stamp
	ReadNs             uint64 `json:"read_ns"`
}

// Thread is a thread of the process. Thread 0 is the main thread.
type Thread struct {
	Index         int
	Kind          string // main, busy, idle, untouched
	Name          string // as the kernel knows it
	TID           int
	ThreadPointer uint64 `json:"thread_pointer"`
	Variable      uint64 // address of its thread-local variable, 0 while it has not touched it
	Slot          uint64 // what that holds
}

// Context is the transaction that a thread was told to begin.
type Context struct {
	Kind          string
	TraceID       TraceID       `json:"trace_id"`
	SpanID        SpanID        `json:"span_id"`
	TransactionID TransactionID `json:"transaction_id"`
	Thread        Thread
}

// Wait is a transaction in which a thread waited once, and how long by its own clock.
type Wait struct {
	TraceID       TraceID       `json:"trace_id"`
	SpanID        SpanID        `json:"span_id"`
	TransactionID TransactionID `json:"transaction_id"`
	Waited        time.Duration `json:"waited_ns"`
	Took          time.Duration `json:"took_ns"` // of a JVM: the transaction
	TID           int
}

// Accounted is a transaction in which a thread burnt CPU time, waited for a lock that another transaction held, and
// for a socket, and slept, and how long each took by its own clocks.
type Accounted struct {
	TraceID       TraceID       `json:"trace_id"`
	TransactionID TransactionID `json:"transaction_id"`
	CPU           time.Duration `json:"cpu_ns"`   // at least 60 ms
	Lock          time.Duration `json:"lock_ns"`  // 80 ms
	Net           time.Duration `json:"net_ns"`   // 50 ms
	Sleep         time.Duration `json:"sleep_ns"` // 30 ms
	Wall          time.Duration `json:"wall_ns"`
}

// Report is what the process knows about itself and about what it was sent. Every message is
// counted once: Messages = Registrations + InTime + Late + Torn + Foreign + Malformed.
type Report struct {
	SamplesDelayMillis uint32 `json:"samples_delay_ms"` // of the last registration
	HostID             string `json:"host_id"`

	Messages      uint64
	Registrations uint64
	InTime        uint64 `json:"in_time"` // correlations that count
	Late          uint64 // read after the agent gave their transaction away
	Torn          uint64 // ids that do not belong together
	Foreign       uint64 // of a trace that this process never made
	Malformed     uint64 // the sum of the next five
	BadType       uint64 `json:"bad_type"`
	BadMinor      uint64 `json:"bad_minor"`
	BadLength     uint64 `json:"bad_length"`
	BadCount      uint64 `json:"bad_count"`
	Truncated     uint64 // longer than the agent's buffer

	Samples        uint64 // sum of the counts of InTime
	LateSamples    uint64 `json:"late_samples"`
	TornSamples    uint64 `json:"torn_samples"`
	ForeignSamples uint64 `json:"foreign_samples"`

	Unregistered uint64 // correlations on a socket before a registration; also in the above
	Rewrites     uint64 // slots written by rewriting threads

	TransactionsBegun uint64        `json:"transactions_begun"`
	CPUInTransactions time.Duration `json:"cpu_in_transactions_ns"` // of those that have ended
	CPUInGaps         time.Duration `json:"cpu_in_gaps_ns"`
	Transactions      []Transaction // the newest 1024 of each thread
}

// Transaction is one transaction of the process, and what was said about it.
type Transaction struct {
	Thread        int
	Kind          string        // checkout, search, browse: each burns CPU with a stack of its own
	TraceID       TraceID       `json:"trace_id"`
	TransactionID TransactionID `json:"transaction_id"`
	BeginNs       uint64        `json:"begin_ns"`
	EndNs         uint64        `json:"end_ns"` // 0 while it runs
	CPU           time.Duration `json:"cpu_ns"` // 0 while it runs
	Samples       uint64
	LateSamples   uint64            `json:"late_samples"`
	Stacks        map[string]uint64 // samples in time by stack-trace-id in base64-url, at most 1024
}

// Transaction finds a transaction by its trace.
func (r Report) Transaction(id TraceID) (Transaction, bool) {
	for _, transaction := range r.Transactions {
		if transaction.TraceID == id {
			return transaction, true
		}
	}
	return Transaction{}, false
}
