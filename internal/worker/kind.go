package worker

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
	"correlator/internal/host/resident"
)

const (
	// processName is the first argument of a worker, as ps shows it; its kind and the proc root follow.
	processName = "correlator-worker"

	// channel is the descriptor of a worker's channel.
	channel = 3

	// trimDelay is after how long what its start has used of the program is unmapped, which costs up to an eighth of
	// a start. Most workers wait for requests in vain before, and end.
	trimDelay = idleTime + 5*time.Second

	// defaultDescriptors is what a worker may have open: a request needs a handful.
	defaultDescriptors = 256

	// exitWrongKind is the exit code of a worker that does not know its kind, or could not be
	// confined.
	exitWrongKind = 3
)

// Kind is a kind of worker.
type Kind struct {
	Name string
	// Capabilities are CAP_…, which a worker keeps if the agent has them. Without CAP_SETUID, its user is not root.
	Capabilities []int
	Calls        []uint32 // system calls that it makes, besides those that each worker does
	MemoryBytes  uint64   // that a worker may take beyond what it has at its start
	Descriptors  uint64   // that a worker may have open; 0: 256. Less where the agent may have less
	Busy         int      // requests that a Pool serves at a time, at least 2, half of them of one user; 0: see maxBusy
	Raised       bool     // workers have a higher priority than the agent, where that is permitted
	Single       bool     // a worker serves one request at a time, on one goroutine
	// Serve is called in the worker, with the proc root that NewSpawner was given. The worker ends
	// when Serve returns, or the agent ends.
	Serve func(procRoot string, conn *Conn)
}

// Early runs a worker and does not return if this process was started as one of a kind. The package of a
// kind calls it in an init function: Go initializes packages in the order of their paths, but for those that
// others need, so that a worker begins without most of the program's. That takes half the time and memory.
func Early(kind Kind) {
	if isWorker() && kind.Name == os.Args[1] {
		go run(kind) // this goroutine may only run on the first thread until main
		select {}
	}
}

// Main does not return if this process was started as a worker; it runs one of the kinds. A program that uses
// workers calls it first thing. Kinds that call Early need not be given.
func Main(kinds ...Kind) {
	if !isWorker() {
		return
	}
	for _, kind := range kinds {
		if kind.Name == os.Args[1] {
			run(kind)
		}
	}
	os.Exit(exitWrongKind)
}

func isWorker() bool { return len(os.Args) == 3 && os.Args[0] == processName }

// run runs a worker and exits.
func run(kind Kind) {
	// The agent's end, and nothing else, is a worker's.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	if confine(kind, os.Args[2]) != nil {
		os.Exit(exitWrongKind)
	}
	time.AfterFunc(trimDelay, func() { _ = resident.Trim(os.Args[2]) })
	conn, err := newConn(channel)
	if err != nil || restrictCalls(os.Args[2], kind.Calls) != nil {
		os.Exit(exitWrongKind)
	}
	kind.Serve(os.Args[2], conn)
	os.Exit(0)
}

// confine bounds what the worker can take. The Spawner has taken away capabilities and descriptors.
func confine(kind Kind, procRoot string) error {
	// Where memory is short, the kernel is to kill workers before the agent. It may refuse to be
	// told. This is root's to do later.
	_ = os.WriteFile(path.Join(procRoot, "self/oom_score_adj"), []byte("1000"), 0)
	// Other processes of the user, root in a container for example, may not trace the worker.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// A worker has a deadline, and needs no huge pages. Where all processes get them, khugepaged, which
	// has the lowest priority, makes them later, too. While it copies pages, it locks the worker's memory
	// map, on which every page fault waits then: for seconds where CPUs are scarce. The kernel may refuse.
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	data, err := dataBytes(procRoot)
	if err != nil {
		return err
	}
	var descriptors unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors); err != nil {
		return err
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_FSIZE:  0, // it writes no files
		unix.RLIMIT_NOFILE: min(cmp.Or(kind.Descriptors, defaultDescriptors), descriptors.Max),
		unix.RLIMIT_DATA:   data + kind.MemoryBytes,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("setting limit %d: %w", resource, err)
		}
	}
	return nil
}

// dataBytes returns the size of this process's private writable memory, to which RLIMIT_DATA
// applies. The Go runtime has reserved much of it already (the race detector, gigabytes).
func dataBytes(procRoot string) (uint64, error) {
	size, err := procdir.Status(path.Join(procRoot, "self"), "VmData")
	if err != nil || len(size) == 0 {
		return 0, err
	}
	kilobytes, err := strconv.ParseUint(size[0], 10, 54)
	return kilobytes << 10, err
}
