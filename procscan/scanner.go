package procscan

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Found is a process that maps the library.
type Found struct {
	ProcessID
	At        time.Time // when the look began: of two looks, it tells which is the newer word
	Libraries []Mapping // the executable mappings of the library, by address; at least one
	Truncated bool      // there are more of them than are looked at (16)
}

// Unreadable is a process of which a sweep could not learn what it maps.
type Unreadable struct {
	ProcessID       // StartTime is 0 when that is hidden as well
	Err       error // ErrDenied, or else what the kernel answered
}

// Report is what a sweep tells beside what it found.
type Report struct {
	Processes  int          // all that were listed, kernel threads included
	Unreadable []Unreadable // without those that the sweep before met already
}

// Scanner looks for processes that map the library. Process is safe for concurrent use, also with a
// sweep under way; one goroutine at a time may sweep. A Scanner holds no descriptors, only buffers.
type Scanner struct {
	procRoot string
	fs       procfs.FS
	source   Source
	readers  sync.Pool // of *mappingReader
	watchdog *watchdog
	matched  map[int]struct{}       // by pid: found by the last sweep that did not skip it; needs no glance
	told     map[ProcessID]struct{} // unreadable at the last complete sweep
}

// NewScanner returns a scanner of the procfs mounted at procRoot. It is an error when that is no
// procfs, when it shows another pid namespace than our own, and when the kernel has no pidfds.
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
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return nil, fmt.Errorf("opening proc root %s: %w", procRoot, err)
	}
	return &Scanner{
		procRoot: procRoot, fs: fs, source: source, watchdog: newWatchdog(lookTimeout),
		readers: sync.Pool{New: func() any { return new(mappingReader) }},
	}, nil
}

// Source is where mappings are read from, of this proc root and on this kernel.
func (s *Scanner) Source() Source { return s.source }

// Sweep looks at every process once and yields those that map the library, each before it looks
// at the next. What yield takes long for, the sweep waits for. Numbers of which skip, which may be
// nil, says so are passed over.
//
// Kernel threads and processes that end meanwhile are passed over in silence, those that cannot
// be read are reported once: again only when a sweep in between could read them. An error means
// that the sweep ended early, for a reason of our own (no proc root, no descriptors left); what
// was found until then was yielded.
//
// The kernel tells mappings under the lock of the process's memory map. A process that arranges for
// that lock to be held (by a page fault on a FUSE file) holds up one sweep by two seconds; then it
// is unreadable, ErrStuck, until it lets go.
func (s *Scanner) Sweep(skip func(pid int) bool, yield func(Found)) (Report, error) {
	procs, err := s.fs.AllProcs()
	if err != nil {
		return Report{}, fmt.Errorf("listing processes: %w", err)
	}
	report := Report{Processes: len(procs)}
	unreadable := make(map[ProcessID]struct{})
	before, matched := s.matched, make(map[int]struct{})
	s.matched = matched
	pids := make([]int, 0, len(procs))
	for _, proc := range procs {
		if skip == nil || !skip(proc.PID) {
			pids = append(pids, proc.PID)
		} else if _, known := before[proc.PID]; known {
			matched[proc.PID] = struct{}{}
		}
	}
	for len(pids) > 0 {
		r := s.watchdog.look(pids, func(pid int) (Found, error) {
			if _, known := before[pid]; known {
				return s.look(pid)
			}
			return s.glance(pid)
		})
		pids = pids[r.looked:]
		switch {
		case r.err == nil:
			matched[r.found.PID] = struct{}{}
			yield(r.found)
		case errors.Is(r.err, ErrNotFound), errors.Is(r.err, ErrGone):
		case errors.Is(r.err, unix.EMFILE), errors.Is(r.err, unix.ENFILE), errors.Is(r.err, errManyStuck):
			return report, fmt.Errorf("looking at process %d: %w", r.found.PID, r.err)
		default:
			unreadable[r.found.ProcessID] = struct{}{}
			if _, known := s.told[r.found.ProcessID]; !known {
				report.Unreadable = append(report.Unreadable, Unreadable{r.found.ProcessID, r.err})
			}
		}
	}
	s.told = unreadable
	return report, nil
}

// Process looks at one process. ErrNotFound, ErrGone and ErrDenied say why there is nothing to
// return; a kernel thread maps no library, a thread's number is no process's. ErrStuck comes after
// two seconds, or at once while a look before still hangs.
func (s *Scanner) Process(pid int) (Found, error) {
	r := s.watchdog.look([]int{pid}, s.look)
	if r.err != nil {
		return Found{}, fmt.Errorf("looking at process %d: %w", pid, r.err)
	}
	return r.found, nil
}

// glance is a look at the number of a process that most likely maps no library. That it does not
// can be said without asking which process it is: of whatever has the number now. So the usual case
// is one file opened and read up to the first library, and whatever is not usual a look.
func (s *Scanner) glance(pid int) (Found, error) {
	_, err := s.libraries(pid, 0)
	switch {
	case err == nil:
		err = ErrNotFound
	case !errors.Is(err, ErrGone):
		return s.look(pid)
	}
	return Found{ProcessID: ProcessID{PID: pid}}, err
}

// look is the three steps of pidfd.go. The identity is valid also with an error other than
// ErrNotFound and ErrGone. The errors of most processes of a host are bare sentinels.
func (s *Scanner) look(pid int) (Found, error) {
	found := Found{ProcessID: ProcessID{PID: pid}, At: time.Now()}
	pidfd, err := openPidfd(pid)
	if err != nil {
		return found, err
	}
	defer unix.Close(pidfd)

	found.Libraries, err = s.libraries(pid, agentLibrary.limit())
	if errors.Is(err, ErrTooMany) {
		found.Truncated, err = true, nil
	}
	if errors.Is(err, ErrGone) || err == nil && len(found.Libraries) == 0 {
		err = ErrNotFound // perhaps for want of memory: a kernel thread, or one that has ended
	} else {
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

// libraries returns the first mappings of the library, and ErrTooMany when there are more than
// limit.
func (s *Scanner) libraries(pid, limit int) ([]Mapping, error) {
	fd, err := openFD(s.procRoot+"/"+strconv.Itoa(pid)+"/maps", unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening maps: %w", classify(err))
	}
	defer unix.Close(fd)
	reader := s.readers.Get().(*mappingReader)
	defer s.readers.Put(reader)
	found, err := reader.read(fd, s.source, agentLibrary, limit)
	if err != nil {
		return found, fmt.Errorf("reading maps: %w", err)
	}
	return found, nil
}
