package symbolizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
	"correlator/internal/names/symbols"
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
// that serves no other meanwhile: it opens what it takes, reads, and closes it, so nothing that one
// process controls is used for another. It is safe for concurrent use.
type Live struct{ pool *worker.Pool }

// OpenLive returns a Live, which the caller must close. procRoot is a procfs of our own pid namespace.
// The program's main function must call worker.Main.
func OpenLive(procRoot string, counters *worker.Counters) (*Live, error) {
	pool, err := worker.NewPool(procRoot, LiveKind, counters)
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
	ID    procscan.ProcessID
	Image procscan.Image // the program that it ran; zero: not known
	Since time.Time      // when that may have written its perf map, at the earliest
	User  worker.User    // to whom it is charged

	Files   map[File][]uint64 // addresses in files, at most MaxLiveFiles of them
	Code    []uint64          // in no file. All together there are at most MaxLiveAddrs addresses
	PerfMap bool              // the version of its perf map is wanted; with Code it is, too
}

// LiveNames is what was read for a LiveRequest.
type LiveNames struct {
	Files   map[profile.FileID]LiveFile
	Code    LiveFile
	PerfMap PerfMap       // its version, if that is wanted
	Spent   time.Duration // CPU time that it took
}

// LiveFile are the names of addresses in a file, or in none. What is missing did not fit, and can
// be asked for again, unless there is a Failure.
type LiveFile struct {
	Names   []LiveName
	Failure Failure
	View    profile.View
}

// PerfMap is the version of a perf map: another one when it has changed, zero when there is none.
type PerfMap struct {
	Dev, Ino                   uint64
	Size, Seconds, Nanoseconds int64
}

// Failure is why addresses in a file could not be named, although they may have names.
type Failure uint8

const (
	NoFailure      Failure = iota
	NotMapped              // the process maps no file with the id (any more)
	FileSystem             // it maps files that may never be read: procscan.ErrFileSystem
	Unreadable             // the file, its format, or its size; or a debug file, for now
	PerfMapRefused         // it is another user's, an earlier program's, or cannot be read
	numFailures
)

// LiveName is the name of a range of addresses as in the symbol table, empty if they have none, and what it
// is demangled, empty if it is not mangled.
type LiveName struct {
	symbols.Range
	Name, Demangled string
}

// Name names frames of a process, and returns the version of its perf map. It waits for seconds at
// most, a dozen when others of its user hang. The error is procscan.ErrGone when the process has
// ended, or runs another program, otherwise one of worker.Pool, or that of an answer that makes no
// sense.
func (l *Live) Name(r LiveRequest) (*LiveNames, error) {
	message := request{Op: opName, ID: r.ID, Image: r.Image, Since: r.Since, Code: r.Code,
		PerfMap: r.PerfMap || len(r.Code) > 0}
	for f, addrs := range r.Files {
		hint := []byte(f.Path[:min(len(f.Path), maxLivePathBytes)])
		message.Files = append(message.Files, file{ID: f.ID, Path: hint, Addrs: addrs})
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
	Code    liveFile
	PerfMap PerfMap
	Spent   time.Duration
}

type liveFile struct {
	ID      profile.FileID
	Names   []liveName
	Failure Failure
	View    profile.View
}

type liveName struct {
	Start, End uint64
	symbolName
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
	if a.Code.Failure >= numFailures {
		return nil, errAnswer
	}
	names := &LiveNames{Files: make(map[profile.FileID]LiveFile), PerfMap: a.PerfMap, Spent: max(a.Spent, 0)}
	asked := make(map[profile.FileID]bool)
	for f := range r.Files {
		asked[f.ID] = true
	}
	for _, f := range a.Files {
		if !asked[f.ID] || f.Failure >= numFailures {
			return nil, errAnswer
		}
		of := names.Files[f.ID].with(&f)
		of.View = f.View
		names.Files[f.ID] = of
	}
	names.Code = names.Code.with(&a.Code)
	return names, nil
}

// with returns a file with what was answered of it, besides what else was.
func (f LiveFile) with(answer *liveFile) LiveFile {
	for _, n := range answer.Names {
		around := symbols.Range{Start: n.Start, End: n.End}
		f.Names = append(f.Names, LiveName{around, string(n.Name), string(n.Demangled)})
	}
	f.Failure = max(f.Failure, answer.Failure)
	return f
}

// liveBudget bounds the memory of names that a worker reads for one request; an answer has much less.
const liveBudget = 8 << 20

// name serves opName.
func (s *server) name(r *request) *liveAnswer {
	began := self.CPUTime(unix.RUSAGE_SELF)
	answer := s.readAlone(r)
	answer.Spent = self.CPUTime(unix.RUSAGE_SELF) - began // nothing else is served
	return answer
}

// readAlone reads names for one request. It shares nothing with others but what is known of debug files.
func (s *server) readAlone(r *request) *liveAnswer {
	alone := newServer(s.opener.ProcRoot, nil)
	alone.ranges, alone.budget = true, symbols.NewBudget(liveBudget)
	alone.verdicts, alone.allowance = s.verdicts, &allowance{left: s.linkedBytes}
	p := alone.process(r)
	defer alone.close(p)
	p.budget = symbols.NewBudget(liveBudget)
	if alone.learn(p, r.Files, r.Code) != nil {
		return &liveAnswer{Gone: true}
	}
	answer := alone.answer(p, r)
	// The perf map that was there may be that of another program, or of another process.
	if !runs(s.opener.ProcRoot, r) {
		return &liveAnswer{Gone: true}
	}
	return answer
}

// runs reports whether the process of a request still runs its program.
func runs(procRoot string, r *request) bool {
	handle, err := procscan.OpenProcess(procRoot, r.ID)
	if err != nil {
		return false
	}
	defer handle.Close()
	image, err := handle.Image()
	return err == nil && (image == r.Image || r.Image == procscan.Image{})
}

// answer reads names for a request to a server that is alone.
func (s *server) answer(p *process, r *request) *liveAnswer {
	var w liveWriter
	if r.PerfMap {
		var refused error
		w.answer.PerfMap, refused = s.perfMapVersion(p) // before it is read
		if refused != nil {
			w.answer.Code.Failure = PerfMapRefused
		}
	}
	s.openHost()
	p.askedCode = r.Code
	views := make([]profile.View, len(r.Files))
	for i := range r.Files {
		f := &r.Files[i]
		views[i] = s.view(p, f.ID)
		s.addrs[f.ID] = append(s.addrs[f.ID], f.Addrs...) // several files may have one id
	}
	n := s.readNames(p)
	for i, f := range r.Files {
		failure := NoFailure
		switch {
		case p.files[f.ID] == nil:
			failure = p.missing()
		case n.failures[f.ID] != nil:
			failure = Unreadable
		}
		w.answer.Files = append(w.answer.Files,
			liveFile{ID: f.ID, Names: w.names(f.Addrs, n.native[f.ID], failure), Failure: failure, View: views[i]})
	}
	if len(r.Code) > 0 {
		code := &w.answer.Code
		if n.perfMap != nil && !errors.Is(n.perfMap, fs.ErrNotExist) && !errors.Is(n.perfMap, symbols.ErrLines) {
			code.Failure = PerfMapRefused
		}
		code.Names = w.names(r.Code, []*symbols.Query{n.jit}, code.Failure)
	}
	return &w.answer
}

// view returns how a process sees a file.
func (s *server) view(p *process, id profile.FileID) (v profile.View) {
	if found := p.files[id]; found != nil && p.root != nil && p.place != (procscan.Place{}) {
		v = profile.NewView(found.key, p.paths[id], p.place, procscan.Credentials(p.rights))
	}
	return v
}

// perfMapVersion returns what changes with the perf map of a process, and an error if it has one
// that may not be used.
func (s *server) perfMapVersion(p *process) (PerfMap, error) {
	if p.perfMap == nil {
		if err := s.findPerfMap(p); errors.Is(err, fs.ErrNotExist) {
			return PerfMap{}, nil
		} else if err != nil {
			return PerfMap{}, err
		}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(p.perfMap.Fd()), &stat); err != nil {
		return PerfMap{}, err
	}
	return PerfMap{stat.Dev, stat.Ino, stat.Size, stat.Mtim.Sec, stat.Mtim.Nsec}, nil
}

// close closes what was opened for a process.
func (s *server) close(p *process) {
	for _, source := range s.files {
		source.file.Close()
	}
	p.root.Close() // nil is allowed, as for the others
	p.tmp.Close()
	p.perfMap.Close()
	s.host.Close()
}

// liveWriter bounds an answer.
type liveWriter struct {
	answer    liveAnswer
	bytes     int
	demangler symbols.Demangler
}

// names returns the names of addresses, that of the first query that has one, as far as they fit.
// After a failure, an address without a name may have one.
func (w *liveWriter) names(addrs []uint64, queries []*symbols.Query, failure Failure) (names []liveName) {
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
		if name == "" && failure != NoFailure {
			continue
		}
		sent := symbolName{[]byte(name), []byte(w.demangler.Demangle(name))}
		if w.bytes += sent.bytes(); w.bytes > maxAnswerBytes {
			return names
		}
		names = append(names, liveName{around.Start, around.End, sent})
	}
	return names
}
