package procscan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Found is a process that maps the library.
type Found struct {
	Identity
	Libraries []Mapping // the executable mappings of the library, by address; at least one
	Truncated bool      // there are more of them than are looked at (16)
}

// Unreadable is a process of which a sweep could not learn what it maps.
type Unreadable struct {
	Identity       // StartTime is 0 when that is hidden as well
	Err      error // ErrDenied, or else what the kernel answered
}

// Report is what a sweep tells beside what it found.
type Report struct {
	Processes  int          // all that were listed, kernel threads included
	Unreadable []Unreadable // without those that the sweep before met already
}

const (
	// lookTimeout is how long a look at one process may take. The largest maps take the kernel a
	// few hundred ms to write; a process that keeps its memory map locked takes as long as it likes.
	lookTimeout = 2 * time.Second

	// maxStuck is how many looks may be left behind, each with a thread and a buffer of 32 KiB.
	maxStuck = 256
)

// Scanner looks for processes that map the library. It is for one goroutine at a time and holds
// no descriptors, only a buffer.
type Scanner struct {
	procRoot string
	fs       procfs.FS
	maps     *mapsReader
	timer    *time.Timer
	told     map[Identity]struct{}     // unreadable at the last complete sweep
	stuck    map[int]<-chan lookResult // looks that were left behind, by pid
}

type lookResult struct {
	found Found
	err   error
}

// NewScanner returns a scanner of the procfs mounted at procRoot. It is an error when that is no
// procfs, when it shows another pid namespace than our own, and when the kernel has no pidfds.
func NewScanner(procRoot string) (*Scanner, error) {
	var statfs unix.Statfs_t
	if err := unix.Statfs(procRoot, &statfs); err != nil {
		return nil, fmt.Errorf("opening proc root %s: %w", procRoot, err)
	}
	if statfs.Type != unix.PROC_SUPER_MAGIC {
		return nil, fmt.Errorf("opening proc root %s: no procfs is mounted there", procRoot)
	}
	fs, err := procfs.NewFS(procRoot)
	if err != nil {
		return nil, fmt.Errorf("opening proc root %s: %w", procRoot, err)
	}
	if err := ownNamespace(fs); err != nil {
		return nil, fmt.Errorf("opening proc root %s: %w", procRoot, err)
	}
	pidfd, err := openPidfd(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("looking for pidfd_open (Linux 5.3, not forbidden by seccomp): %w", err)
	}
	unix.Close(pidfd)
	return &Scanner{
		procRoot: procRoot, fs: fs, maps: newMapsReader(mapsBufferBytes),
		timer: time.NewTimer(lookTimeout), stuck: make(map[int]<-chan lookResult),
	}, nil
}

// ownNamespace checks that a procfs is one of our own pid namespace. In one of a namespace above,
// we have a number there and one in each namespace down to our own; elsewhere we have none.
func ownNamespace(fs procfs.FS) error {
	self, err := fs.Self()
	if err != nil {
		return fmt.Errorf("looking for ourselves (is it of another pid namespace?): %w", err)
	}
	status, err := self.NewStatus()
	if err != nil {
		return fmt.Errorf("looking for ourselves: %w", err)
	}
	if len(status.NSpids) > 1 {
		return errors.New("it shows another pid namespace than ours (a container needs the host's: hostPID)")
	}
	return nil
}

// Sweep looks at every process once and yields those that map the library, each before it looks
// at the next. What yield takes long for, the sweep waits for.
//
// Kernel threads and processes that end meanwhile are passed over in silence, those that cannot
// be read are reported once: again only when a sweep in between could read them. An error means
// that the sweep ended early, for a reason of our own (no proc root, no descriptors left); what
// was found until then was yielded.
//
// The kernel writes maps under the lock of the process's memory map. A process that arranges for
// that lock to be held (by a page fault on a FUSE file) holds up one sweep by two seconds; then it
// is unreadable, ErrStuck, until it lets go.
func (s *Scanner) Sweep(yield func(Found)) (Report, error) {
	procs, err := s.fs.AllProcs()
	if err != nil {
		return Report{}, fmt.Errorf("listing processes: %w", err)
	}
	report := Report{Processes: len(procs)}
	unreadable := make(map[Identity]struct{})
	for _, proc := range procs {
		found, err := s.lookWithin(proc.PID)
		switch {
		case err == nil:
			yield(found)
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrGone):
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, errManyStuck):
			return report, fmt.Errorf("looking at process %d: %w", proc.PID, err)
		default:
			unreadable[found.Identity] = struct{}{}
			if _, known := s.told[found.Identity]; !known {
				report.Unreadable = append(report.Unreadable, Unreadable{found.Identity, err})
			}
		}
	}
	s.told = unreadable
	return report, nil
}

// Process looks at one process. ErrNotFound, ErrGone and ErrDenied say why there is nothing to
// return; a kernel thread maps no library, a thread's number is no process's.
func (s *Scanner) Process(pid int) (Found, error) {
	found, err := s.lookWithin(pid)
	if err != nil {
		return Found{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	return found, nil
}

var errManyStuck = errors.New("too many processes make us hang")

// lookWithin looks at a process on a goroutine that is left behind when it hangs.
func (s *Scanner) lookWithin(pid int) (Found, error) {
	maps := s.maps
	return s.within(pid, func() (Found, error) { return s.look(maps, pid) })
}

func (s *Scanner) within(pid int, look func() (Found, error)) (Found, error) {
	if result, stuck := s.stuck[pid]; stuck {
		select {
		case <-result: // of long ago
			delete(s.stuck, pid)
		default:
			return Found{Identity: Identity{PID: pid}}, ErrStuck
		}
	}
	if len(s.stuck) >= maxStuck {
		return Found{}, errManyStuck
	}
	result := make(chan lookResult, 1)
	go func() {
		found, err := look()
		result <- lookResult{found, err}
	}()
	s.timer.Reset(lookTimeout)
	select {
	case r := <-result:
		return r.found, r.err
	case <-s.timer.C:
		s.stuck[pid] = result
		s.maps = newMapsReader(mapsBufferBytes) // the other is in use
		return Found{Identity: Identity{PID: pid}}, ErrStuck
	}
}

// look is the three steps of pidfd.go. The identity is valid also with an error other than
// ErrNotFound and ErrGone. The errors of most processes of a host are bare sentinels.
func (s *Scanner) look(maps *mapsReader, pid int) (Found, error) {
	found := Found{Identity: Identity{PID: pid}}
	pidfd, err := openPidfd(pid)
	if err != nil {
		return found, err
	}
	defer unix.Close(pidfd)

	found.Libraries, err = s.libraries(maps, pid)
	if errors.Is(err, ErrTooMany) {
		found.Truncated, err = true, nil
	}
	if errors.Is(err, ErrGone) || err == nil && len(found.Libraries) == 0 {
		err = ErrNotFound // perhaps for want of memory: a kernel thread, or one that has ended
	} else {
		var startErr error
		if found.StartTime, startErr = startTime(s.fs, pid); err == nil {
			err = startErr
		}
	}
	if exited(pidfd) {
		return found, ErrGone
	}
	return found, err
}

func (s *Scanner) libraries(maps *mapsReader, pid int) ([]Mapping, error) {
	fd, err := openFD(filepath.Join(s.procRoot, strconv.Itoa(pid), "maps"), unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("opening maps: %w", classify(err))
	}
	defer unix.Close(fd)
	found, err := maps.readMaps(fd, libraryLine, maxLibraries)
	if err != nil {
		return found, fmt.Errorf("reading maps: %w", err)
	}
	return found, nil
}
