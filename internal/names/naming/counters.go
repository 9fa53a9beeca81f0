package naming

import (
	"sync/atomic"

	"correlator/internal/worker"
)

// reason is why a sample was emitted although names of its frames may be missing.
type reason int

// The reasons.
const (
	unnamedLate     reason = iota // they did not come in time
	unnamedFull                   // too many samples wait, or too many names are asked for
	unnamedMemory                 // the names that are in use leave no room for more
	unnamedShare                  // its owner has had more than its share
	unnamedTimeout                // a worker took too long because of the process, and it is not asked for a while
	unnamedFailed                 // asking, or reading a file, has failed, and is not repeated for a while
	unnamedGone                   // the process had ended, or ran another program
	unnamedShutdown               // the agent ended
	numReasons                    // none are missing
)

var reasonNames = [numReasons]string{
	unnamedLate: "late", unnamedFull: "full", unnamedMemory: "memory", unnamedShare: "share",
	unnamedTimeout: "timeout", unnamedFailed: "failed", unnamedGone: "gone", unnamedShutdown: "shutdown",
}

// failure is why names could not be read, or kept.
type failure int

// The failures: first those of requests, then those of single files, and of single names.
const (
	failedGone       failure = iota // the process has ended, or runs another program
	failedTimeout                   // the worker did not answer in time
	failedRefused                   // workers hang because of the process, or of others of its owner
	failedWorker                    // there was none, it ended, or its answer made no sense
	failedNotMapped                 // the process maps no such file (any more)
	failedFileSystem                // it maps files on file systems that may never answer
	failedUnreadable                // the file cannot be read, or is not what it should be
	failedPerfMap                   // the perf map is not of this program and user, or cannot be read
	failedKernel                    // the kernel's symbols cannot be read
	failedMemory                    // there was no room for the name
	numFailures                     // none
)

var failureNames = [numFailures]string{
	failedGone: "gone", failedTimeout: "timeout", failedRefused: "refused", failedWorker: "worker",
	failedNotMapped: "not_mapped", failedFileSystem: "file_system", failedUnreadable: "unreadable",
	failedPerfMap: "perf_map", failedKernel: "kernel", failedMemory: "memory",
}

// Counters is what a Namer counts, for all consumers together. They may be read at any time.
type Counters struct {
	failures [numFailures]atomic.Uint64
	Requests atomic.Uint64 // for names of a process
	Evicted  atomic.Uint64 // names that were forgotten because there were too many
	Bytes    atomic.Int64  // of names now
	Workers  worker.Counters
}

// Failures yields, by reason, how often names could not be read, of a process, of a file, or of the
// kernel, or not be kept.
func (c *Counters) Failures(yield func(reason string, times uint64) bool) {
	for f := range c.failures {
		if !yield(failureNames[f], c.failures[f].Load()) {
			return
		}
	}
}
