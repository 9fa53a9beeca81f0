package procscan

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"correlator/internal/host/procdir"
)

// Found is a process that maps the library, or a process context; or any, with Scanner.All.
type Found struct {
	ProcessID
	At        time.Time // when the probe began: the later of two results counts
	Libraries []Mapping // the executable mappings of the library, by address
	Contexts  []Mapping // of a process context (OTEL_CTX), the first 4 by address
	Truncated bool      // there are more libraries than are kept (16), or contexts (4)
}

// Unreadable is a process whose mappings a sweep could not read.
type Unreadable struct {
	ProcessID       // StartTime is 0 when that is hidden as well
	Err       error // ErrDenied, ErrStuck, or what the kernel returned
}

// Report is the result of a sweep beside what it found.
type Report struct {
	Processes  int          // all that were listed, kernel threads included
	Unreadable []Unreadable // without those that the previous sweep reported or skipped as such
}

// Scanner finds processes that map the library, or a process context. Process is safe for concurrent use, also during a
// sweep; one goroutine at a time may sweep. A Scanner holds no descriptors, only buffers.
type Scanner struct {
	All bool // processes that map neither are found, too, but no threads of the kernel; set before the first call

	procRoot string
	source   Source
	readers  sync.Pool // of *mappingReader
	watchdog *watchdog
	matched  map[int]struct{}  // by pid: found by the last sweep that did not skip it: the quick probe is skipped
	reported map[int]ProcessID // by pid: unreadable in the last complete sweep that did not skip it
	contexts contextTurns      // of sweeps
}

// NewScanner returns a scanner of the procfs mounted at procRoot. It fails if that is not a procfs,
// if it is of another pid namespace than ours, and if the kernel has no pidfds.
func NewScanner(procRoot string) (*Scanner, error) {
	if err := ProbeProcRoot(procRoot); err != nil {
		return nil, err
	}
	if err := ProbeNamespace(procRoot); err != nil {
		return nil, err
	}
	if err := ProbePidfd(); err != nil {
		return nil, err
	}
	source, err := ProbeSource(procRoot)
	if err != nil {
		return nil, err
	}
	return &Scanner{
		procRoot: procRoot, source: source,
		watchdog: newWatchdog(probeTimeout, func(pid int) uint32 { return userOf(procRoot, pid) }),
		readers:  sync.Pool{New: func() any { return new(mappingReader) }},
	}, nil
}

// Source returns how mappings are read from this proc root.
func (s *Scanner) Source() Source { return s.source }

// Sweep probes every process once and calls yield for each that is found, before it probes the next.
// It skips the pids for which skip returns true; skip may be nil. It is called for all first, and
// again before the next one after a process that was found, or took long.
//
// Every sweep finds all processes that map the library, the first one all that have a process
// context. Where mappings are queried, those with a context alone cost as much again to find: then
// later sweeps look for contexts in those that the last sweep found, in those that it did not see
// (they may have been forked since), and in an eighth of the others, so that each has had its turn
// after eight. Of new ones there may be too many; the rest is left to the next sweep.
//
// Kernel threads and processes that exit meanwhile are skipped silently. Those that cannot be read
// are reported once, and again only after a sweep that could read them; one that skips them is none.
// An error means that the sweep ended early for a reason on our side (no proc root, no descriptors
// left); what was found before was yielded.
//
// The kernel reads mappings under locks of the process. One that keeps these held (by a page fault on
// a FUSE file, or an exec that closes one) delays one sweep by two seconds, by a tenth of a second
// after a few others; then it is unreadable, ErrStuck, until it releases the lock.
func (s *Scanner) Sweep(skip func(pid int) bool, yield func(Found)) (Report, error) {
	all, err := procdir.IDs(s.procRoot)
	if err != nil {
		return Report{}, fmt.Errorf("listing processes: %w", err)
	}
	report := Report{Processes: len(all)}
	unreadable := make(map[int]ProcessID)
	before, matched := s.matched, make(map[int]struct{})
	s.matched = matched
	skips := func(pid int) bool {
		if skip == nil || !skip(pid) {
			return false
		}
		if _, known := before[pid]; known {
			matched[pid] = struct{}{}
		}
		if id, known := s.reported[pid]; known {
			unreadable[pid] = id
		}
		return true
	}
	pids := make([]int, 0, len(all))
	for _, pid := range all {
		if !skips(pid) {
			pids = append(pids, pid)
		}
	}
	contexts := s.contexts.plan(s.source, pids)
	timeout, hung := s.watchdog.timeout, 0
	for again := false; len(pids) > 0; again = true {
		if again && skips(pids[0]) {
			pids = pids[1:]
			continue
		}
		began := time.Now()
		r := s.watchdog.runWithin(timeout, pids, func(pid int) (Found, error) {
			if _, known := before[pid]; known || s.All {
				return s.probe(pid)
			}
			return s.quickProbe(pid, contexts.include(pid))
		})
		pids = pids[r.probed:]
		switch {
		case r.err == nil:
			matched[r.found.PID] = struct{}{}
			yield(r.found)
		case errors.Is(r.err, ErrNotFound), errors.Is(r.err, ErrGone):
		case endsEarly(r.err):
			return report, fmt.Errorf("probing process %d: %w", r.found.PID, r.err)
		default:
			if errors.Is(r.err, ErrStuck) && time.Since(began) >= timeout { // else it hung before
				if hung++; hung >= maxPatience {
					timeout = min(timeout, s.watchdog.hurried)
				}
			}
			unreadable[r.found.PID] = r.found.ProcessID
			if s.reported[r.found.PID] != r.found.ProcessID {
				report.Unreadable = append(report.Unreadable, Unreadable{r.found.ProcessID, r.err})
			}
		}
	}
	s.reported = unreadable
	s.contexts.end(contexts)
	return report, nil
}

// Process probes one process for both. ErrNotFound, ErrGone and ErrDenied say why nothing is returned: a
// kernel thread maps no library (ErrNotFound), the id of a thread is not that of a process
// (ErrGone, as ThreadError). ErrStuck is returned after two seconds, or at once while an earlier probe still hangs.
func (s *Scanner) Process(pid int) (Found, error) {
	r := s.watchdog.run([]int{pid}, s.probe)
	if errors.Is(r.err, ErrGone) {
		process, err := procdir.Status(path.Join(s.procRoot, strconv.Itoa(pid)), "Tgid")
		if err == nil && len(process) == 1 && process[0] != strconv.Itoa(pid) {
			r.err = ThreadError{process[0]}
		}
	}
	if r.err != nil {
		return Found{}, fmt.Errorf("probing process %d: %w", pid, r.err)
	}
	return r.found, nil
}

// ThreadError is ErrGone for the id of a thread.
type ThreadError struct{ Process string }

func (e ThreadError) Error() string { return "it is a thread of process " + e.Process }

// Is reports whether target is ErrGone.
func (e ThreadError) Is(target error) bool { return target == ErrGone }

// noMemoryError is the ErrNotFound of a Scanner that finds all.
type noMemoryError struct{}

func (noMemoryError) Error() string { return "it has no memory, as a thread of the kernel" }

// Is reports whether target is ErrNotFound.
func (noMemoryError) Is(target error) bool { return target == ErrNotFound }

// quickProbe probes a process that most likely maps neither the library nor, if that is looked for, a
// process context. That it does not can be said of whichever process has the pid now, without
// identifying it. So the common case is one file, opened and read up to the first of them; all else
// is left to probe.
func (s *Scanner) quickProbe(pid int, contexts bool) (Found, error) {
	what := [...]selection{agentLibrary, processContexts}
	wanted := what[:1]
	if contexts {
		wanted = what[:]
	}
	found, err := s.any(pid, wanted...)
	switch {
	case err == nil && !found:
		err = ErrNotFound
	case !errors.Is(err, ErrGone):
		return s.probe(pid)
	}
	return Found{ProcessID: ProcessID{PID: pid}}, err
}

// any reports whether a process has a mapping of any of these selections.
func (s *Scanner) any(pid int, what ...selection) (found bool, err error) {
	err = s.read(pid, func(reader *mappingReader, fd int) (err error) {
		found, err = reader.any(fd, s.source, what...)
		return err
	})
	return found, err
}

// probe takes the three steps of pidfd.go. The ProcessID is also valid with an error other than
// ErrNotFound and ErrGone. The errors of most processes of a host are bare sentinels, which
// allocate nothing.
func (s *Scanner) probe(pid int) (Found, error) {
	found := Found{ProcessID: ProcessID{PID: pid}, At: time.Now()}
	pidfd, err := openPidfd(pid)
	if err != nil {
		return found, err
	}
	defer unix.Close(pidfd)

	memory := true
	err = s.read(pid, func(reader *mappingReader, fd int) (err error) {
		found.Libraries, found.Contexts, found.Truncated, err = reader.readAll(fd, s.source)
		memory = !reader.empty
		return err
	})
	switch {
	case s.All && !memory:
		err = noMemoryError{}
	case errors.Is(err, ErrGone), !s.All && err == nil && len(found.Libraries) == 0 && len(found.Contexts) == 0:
		err = ErrNotFound // it may have no memory at all: a kernel thread, or one that has exited
	default:
		var startErr error
		if found.StartTime, startErr = startTime(s.procRoot, pid); err == nil {
			err = startErr
		}
	}
	if exited(pidfd) {
		return found, ErrGone
	}
	return found, err
}

// singleThread is the number of links of the directory task of a process with one thread.
const singleThread = 3

// read calls use with the maps file of a process, and a reader for it, and once more with that of
// another thread if the process has no memory, since its first thread has ended.
func (s *Scanner) read(pid int, use func(reader *mappingReader, fd int) error) error {
	reader := s.readers.Get().(*mappingReader)
	defer s.readers.Put(reader)
	dir := s.procRoot + "/" + strconv.Itoa(pid)
	err := readMaps(dir, reader, use)
	if !reader.empty && !errors.Is(err, ErrGone) {
		return err
	}
	var threads unix.Stat_t // threads of the kernel have no memory, either
	if unix.Stat(dir+"/task", &threads) != nil || threads.Nlink <= singleThread {
		return err
	}
	if other := procdir.Dir(s.procRoot, pid); other != dir {
		return readMaps(other, reader, use)
	}
	return err
}

func readMaps(dir string, reader *mappingReader, use func(reader *mappingReader, fd int) error) error {
	reader.empty = false
	fd, err := openFD(dir+"/maps", unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("opening maps: %w", classify(err))
	}
	defer unix.Close(fd)
	if err := use(reader, fd); err != nil {
		return fmt.Errorf("reading maps: %w", err)
	}
	return nil
}
