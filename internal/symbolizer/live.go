package symbolizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/symbols"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// liveTimeout is how long a worker may take for a request: a perf map of the largest size that is read
	// takes two seconds.
	liveTimeout = 3 * time.Second

	// MaxLiveFiles and MaxLiveAddrs bound a request of a Live: its answer is one message.
	MaxLiveFiles = 16
	MaxLiveAddrs = 500

	// maxLivePathBytes bounds a path of a request, which is only a hint.
	maxLivePathBytes = 1 << 10
)

// Live has workers name frames of processes as they go on running. Each request is served by a worker
// that serves no other meanwhile: it opens what it takes, reads, and closes it, so nothing of one
// process is used for another. It is safe for concurrent use.
type Live struct{ pool *worker.Pool }

// OpenLive returns a Live, which the caller must close. procRoot is a procfs of our own pid namespace.
// The program's main function must call worker.Main with Kind.
func OpenLive(procRoot string, counters *worker.Counters) (*Live, error) {
	pool, err := worker.NewPool(procRoot, Kind, counters)
	if err != nil {
		return nil, err
	}
	return &Live{pool}, nil
}

// Close ends all workers without waiting for them. Requests under way fail.
func (l *Live) Close() { l.pool.Close() }

// EndIdle ends the workers that have waited for requests for so long.
func (l *Live) EndIdle(idle time.Duration) { l.pool.EndIdle(idle) }

// Stats returns how many workers there are.
func (l *Live) Stats() worker.Stats { return l.pool.Stats() }

// LiveRequest says what is to be named of a process.
type LiveRequest struct {
	ID      procscan.ProcessID
	Started time.Time
	User    worker.User // to whom it is charged

	Files map[File][]uint64 // addresses in files, at most MaxLiveFiles of them
	Code  []uint64          // in no file. All together there are at most MaxLiveAddrs addresses
}

// LiveNames is what was read for a LiveRequest. What is not in it did not fit: it can be asked for
// again.
type LiveNames struct {
	Files map[profile.FileID][]LiveName
	Code  []LiveName
	// PerfMap is the version of the perf map: another one when it has changed, empty when there is none
	// that may be read.
	PerfMap string
	Spent   time.Duration // CPU time that it took
}

// LiveName is the name of a range of addresses, empty if they have none.
type LiveName struct {
	symbols.Range
	Name string
}

// Name names frames of a process, and returns the version of its perf map. It waits for seconds at
// most, a dozen when others of its user hang. The error is procscan.ErrGone when the process has
// ended, otherwise one of worker.Pool.
func (l *Live) Name(r LiveRequest) (*LiveNames, error) {
	message := request{Op: opName, ID: r.ID, Started: r.Started, Code: r.Code}
	for f, addrs := range r.Files {
		message.Files = append(message.Files, file{f.ID, []byte(f.Path[:min(len(f.Path), maxLivePathBytes)]), addrs})
	}
	encoded, err := json.Marshal(&message)
	if err != nil {
		return nil, err
	}
	var names *LiveNames
	owner := worker.Owner{PID: r.ID.PID, User: r.User}
	err = l.pool.Call(owner, liveTimeout, encoded, func(answer []byte, fd int) error {
		if fd >= 0 {
			unix.Close(fd)
			return errAnswer
		}
		names, err = decodeLive(answer, &r)
		return err
	})
	return names, err
}

// liveAnswer is the answer to opName.
type liveAnswer struct {
	Gone    bool
	Files   []liveFile
	Code    []liveName
	PerfMap string
	Spent   time.Duration
}

type liveFile struct {
	ID    profile.FileID
	Names []liveName
}

type liveName struct {
	Start, End uint64
	Name       []byte
}

// decodeLive checks an answer: a worker has read hostile files.
func decodeLive(message []byte, r *LiveRequest) (*LiveNames, error) {
	var a liveAnswer
	if err := json.Unmarshal(message, &a); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if a.Gone {
		return nil, procscan.ErrGone
	}
	names := &LiveNames{Files: make(map[profile.FileID][]LiveName), PerfMap: a.PerfMap, Spent: max(a.Spent, 0)}
	asked := make(map[profile.FileID]bool)
	for f := range r.Files {
		asked[f.ID] = true
	}
	for _, f := range a.Files {
		if !asked[f.ID] {
			return nil, errAnswer
		}
		names.Files[f.ID] = appendLive(names.Files[f.ID], f.Names)
	}
	names.Code = appendLive(nil, a.Code)
	return names, nil
}

func appendLive(to []LiveName, names []liveName) []LiveName {
	for _, n := range names {
		to = append(to, LiveName{symbols.Range{Start: n.Start, End: n.End}, string(n.Name)})
	}
	return to
}

// liveBudget bounds the memory of names that a worker reads for one request; an answer has much less.
const liveBudget = 8 << 20

// CPUTime returns the CPU time of the calling process or thread (unix.RUSAGE_…).
func CPUTime(who int) time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(who, &usage) != nil {
		return 0 // impossible
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// name serves opName.
func (s *server) name(r *request) *liveAnswer {
	began := CPUTime(unix.RUSAGE_SELF)
	answer := s.readAlone(r)
	answer.Spent = CPUTime(unix.RUSAGE_SELF) - began // nothing else is served
	return answer
}

// readAlone reads names for one request. It shares nothing with others.
func (s *server) readAlone(r *request) *liveAnswer {
	alone := newServer(s.opener.ProcRoot, nil)
	alone.ranges, alone.budget = true, symbols.NewBudget(liveBudget)
	p := alone.process(r)
	defer alone.close(p)
	p.budget = symbols.NewBudget(liveBudget)
	if alone.learn(p, nil, nil) != nil {
		return &liveAnswer{Gone: true}
	}
	w := liveWriter{answer: liveAnswer{PerfMap: alone.perfMapVersion(p)}} // before it is read
	if len(r.Files)+len(r.Code) == 0 {
		return &w.answer
	}
	alone.openHost()
	p.asked, p.askedCode = r.Files, r.Code
	for _, f := range r.Files {
		alone.addrs[f.ID] = append(alone.addrs[f.ID], f.Addrs...) // several files may have one id
	}
	n := alone.readProcess(p)
	for _, f := range r.Files {
		w.answer.Files = append(w.answer.Files, liveFile{ID: f.ID, Names: w.names(f.Addrs, n.native[f.ID])})
	}
	if len(r.Code) > 0 {
		w.answer.Code = w.names(r.Code, []*symbols.Query{n.jit})
	}
	return &w.answer
}

// perfMapVersion returns what changes with the perf map of a process.
func (s *server) perfMapVersion(p *process) string {
	if s.findPerfMap(p) != nil {
		return ""
	}
	var stat unix.Stat_t
	if unix.Fstat(int(p.perfMap.Fd()), &stat) != nil {
		return ""
	}
	return fmt.Sprint(stat.Dev, stat.Ino, stat.Size, stat.Mtim)
}

// close closes what was opened for a process.
func (s *server) close(p *process) {
	for _, source := range s.files {
		source.file.Close()
	}
	p.root.Close() // nil is allowed, as for the others
	p.perfMap.Close()
	s.host.Close()
}

// liveWriter bounds an answer.
type liveWriter struct {
	answer liveAnswer
	bytes  int
}

// names returns the names of addresses, that of the first query that has one, as far as they fit.
func (w *liveWriter) names(addrs []uint64, queries []*symbols.Query) (names []liveName) {
	slices.Sort(addrs)
	for _, addr := range addrs {
		if n := len(names); n > 0 && addr < names[n-1].End {
			continue
		}
		name, around := "", symbols.Range{End: math.MaxUint64}
		for _, q := range queries {
			around = around.Intersect(q.Range(addr))
			if name = q.Name(addr); name != "" {
				break
			}
		}
		if w.bytes += len(name); w.bytes > maxAnswerBytes {
			return names
		}
		names = append(names, liveName{around.Start, around.End, []byte(name)})
	}
	return names
}
