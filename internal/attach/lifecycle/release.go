package lifecycle

import (
	"runtime/debug"
	"time"
)

const (
	// releaseAfter is how many processes must have ended before memory is released: of each about
	// 20 KB are left, so 5 MB of all.
	releaseAfter = 256

	// releaseInterval is how often that happens at most. It takes a collection of all garbage and
	// returns what is free, 20 to 50 ms of CPU time, so 0.5 % of a CPU when processes come and go by
	// the thousands.
	releaseInterval = 10 * time.Second
)

// releaser returns memory to the kernel when many processes have ended. Left to itself the runtime
// does not for as long as it is: an agent with few processes allocates so little that it takes hours
// to the next collection but the forced one every two minutes, and that keeps a part as reserve.
type releaser struct {
	most     int // processes since memory was released
	before   int // at the last call
	released time.Time
}

// check releases memory if many processes have ended since it was last released, and no more of
// them do just now. It is called once a second.
func (r *releaser) check(processes int) {
	r.most = max(r.most, processes)
	falling := processes < r.before
	r.before = processes
	if falling || r.most-processes < releaseAfter || time.Since(r.released) < releaseInterval {
		return
	}
	debug.FreeOSMemory()
	r.most, r.released = processes, time.Now()
}
