package record

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"correlator/bpf"
	"correlator/internal/process"
	"correlator/internal/sampling"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// lookInterval is how often a process is looked at that is sampled. One that is not (yet) is looked at
	// sooner at first: from lookSoon on, twice as long each time.
	lookInterval = time.Second
	lookSoon     = 50 * time.Millisecond

	// lingering is how long samples of a process may come after its end: two drains, and some more.
	lingering = 5 * drainInterval

	// maxPrograms is how many programs of one process are recorded, one after the other: each holds a
	// descriptor. A real one executes another, or publishes something new, once or twice.
	maxPrograms = 64
)

var errRestless = errors.New("executes programs, or publishes anew, too often")

// subject is the life of one process while it is recorded. All that touches the process happens on the
// goroutine of run, but for what a Learner does.
type subject struct {
	recorder *Recorder
	id       procscan.ProcessID
	held     *sampling.PendingQueue
	exited   chan struct{} // closed by the exit watcher
	stirred  chan struct{} // has a token when there are threads to name
	stepped  chan struct{} // closed when the process was looked at for the first time
	taken    chan struct{} // has a token when an older process has claimed what this one published

	// Owned by run.
	target   *process.Target
	own      process.Ownership // of what it has published
	follower *sampling.Follower
	soon     time.Duration // the last wait for a process that is not sampled

	mu       sync.Mutex
	mappings []procscan.Mapping // what a sweep has found since the last step
	unnamed  []thread
	lessons  []lesson
	learning bool
	programs []*program // that were sampled
	err      error      // how the last step ended
	since    time.Time  // when err began to be one
}

// program is one program of a process as the receiver of its samples.
type program struct {
	subject  *subject
	identity bpf.ExecID
	process  *Process
}

// lesson is what a Learner is told.
type lesson struct {
	process *Process
	frames  []profile.Frame
}

func (p *program) Sampled(sample sampling.Sample) {
	s := p.subject
	n := s.recorder.tally.add(p.process, &sample)
	if !n.thread && n.frames == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.thread {
		s.unnamed = append(s.unnamed, thread{p.process, sample.TID})
		select {
		case s.stirred <- struct{}{}:
		default:
		}
	}
	if n.frames != nil && s.recorder.options.Learner != nil {
		s.lessons = append(s.lessons, lesson{p.process, n.frames})
		if !s.learning {
			s.learning = true
			s.recorder.running.Go(s.learn)
		}
	}
}

// Hold takes what there is room for: nothing becomes too old for a recording.
func (p *program) Hold(held []sampling.PendingSample) int {
	n, _ := p.subject.held.Add(held, time.Time{})
	return n
}

// Refused does nothing: the sampler's counters tell of all processes together.
func (p *program) Refused(process.SampleOutcome, uint64) {}

// learn gives all lessons that there are.
func (s *subject) learn() {
	for {
		s.mu.Lock()
		lessons := s.lessons
		s.lessons, s.learning = nil, len(lessons) > 0
		s.mu.Unlock()
		if len(lessons) == 0 {
			return
		}
		for _, l := range lessons {
			s.recorder.options.Learner.Learn(l.process, l.frames)
		}
	}
}

// run records the process until it has ended, or recording has, and all its samples have come.
func (s *subject) run(recording context.Context) {
	if ended := s.follow(recording); ended && len(s.sampled()) > 0 {
		s.unfollow()
		s.linger(recording)
	}
	for held := s.held.Take(); len(held) > 0; held = s.held.Take() {
		s.report(held)
	}
	s.unfollow()
	s.nameThreads()
	for _, p := range s.sampled() {
		s.recorder.sampling.Forget(func(r sampling.Receiver) bool { return r == p })
	}
	held := s.held.Take()
	for i := range held {
		s.recorder.sampling.Refuse(&held[i], process.OutcomeUnknownProcess)
	}
	s.own.GiveUp()
	s.recorder.exits.Remove(s.target.Handle())
	s.recorder.ended(s)
}

// Identity is which process it is.
func (s *subject) Identity() procscan.ProcessID { return s.id }

// Stir has it looked at at once, because what it published is an older process's. It may be called by any
// goroutine.
func (s *subject) Stir() {
	select {
	case s.taken <- struct{}{}:
	default:
	}
}

// follow has the process sampled until it has ended, which it answers, or recording has.
func (s *subject) follow(recording context.Context) (ended bool) {
	next := time.NewTimer(s.step())
	defer next.Stop()
	close(s.stepped)
	for !s.isOver() {
		select {
		case <-s.held.Ready():
			s.report(s.held.Take())
		case <-s.stirred:
			s.nameThreads()
		case <-next.C:
			next.Reset(s.step())
		case <-s.taken:
			next.Reset(s.step())
		case <-s.exited:
			return true
		case <-recording.Done():
			return false
		}
	}
	return true
}

// linger takes the samples that come after the end.
func (s *subject) linger(recording context.Context) {
	over := time.NewTimer(lingering)
	defer over.Stop()
	for {
		select {
		case <-s.held.Ready():
			s.report(s.held.Take())
		case <-s.stirred:
			s.nameThreads()
		case <-over.C:
			return
		case <-recording.Done():
			return
		}
	}
}

func (s *subject) report(held []sampling.PendingSample) { s.follower.Report(held, math.MaxInt64) }

// step looks at the process, and has it sampled as what it is now. It answers when to do so again.
func (s *subject) step() time.Duration {
	err := s.look()
	if err != nil {
		s.unfollow()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && err != nil {
		s.since = time.Now()
	}
	s.err = err
	if err == nil {
		s.soon = 0
		return lookInterval
	}
	s.soon = min(max(2*s.soon, lookSoon), lookInterval)
	return s.soon
}

func (s *subject) look() error {
	if mappings := s.takeMappings(); len(mappings) > 0 && !slices.Equal(mappings, s.target.Mappings()) {
		s.target.SetMappings(mappings)
	} else if _, err := s.target.Remap(); err != nil {
		return err
	}
	if s.target.LoadDue() {
		if err := s.target.Load(s.recorder.files); err != nil && !s.target.Images() {
			return err
		}
	}
	changed, err := s.target.Look()
	if err != nil {
		return err
	}
	if !s.own.Of(s.target, changed) {
		return process.ErrCopy
	}
	if changed || !s.follower.Runs() || s.follower.Program() != nil && !s.target.StillPublishing() {
		s.unfollow()
	}
	if s.follower.Program() == nil && len(s.sampled()) >= maxPrograms {
		return errRestless
	}
	if err := s.follower.Follow(); err != nil {
		return err
	}
	s.follower.Program().Look()
	return nil
}

// unfollow ends the sampling of the process.
func (s *subject) unfollow() {
	if err := s.follower.Unfollow(); err != nil {
		s.recorder.log.Warn("process cannot be left alone", zap.Int("pid", s.id.PID), zap.Error(err))
	}
}

// receiver is who gets the samples of a program: who got them before, unless it is another one, or
// publishes something else.
func (s *subject) receiver(identity bpf.ExecID) sampling.Receiver {
	storage, cgroup := s.target.Storage(), s.target.Cgroup()
	process := Process{
		PID: s.id.PID, StartTime: s.id.StartTime,
		Service: storage.ServiceName, Environment: storage.ServiceEnvironment, ContainerID: cgroup.ContainerID, Handle: s.target.Handle(),
	}
	for _, p := range s.sampled() {
		process.Root = p.process.Root
		if p.identity == identity && *p.process == process {
			return p
		}
	}
	process.Root, _ = s.target.Handle().OpenRoot() // nil with an error
	p := &program{subject: s, identity: identity, process: &process}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs = append(s.programs, p)
	return p
}

func (s *subject) sampled() []*program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.programs
}

func (s *subject) recorded() (processes []*Process) {
	for _, p := range s.sampled() {
		processes = append(processes, p.process)
	}
	return processes
}

// isOver says whether there is nothing to wait for any more. The only process to be recorded gets no second
// chance to take part: somebody waits to hear that it does not.
func (s *subject) isOver() bool {
	_, err := s.trouble()
	return process.IsGone(err) || s.recorder.options.PID != 0 && err != nil && takesNoPart(err)
}

// trouble is how the last look at the process ended, and since when they end with an error.
func (s *subject) trouble() (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.err
}

func (s *subject) takeMappings() (mappings []procscan.Mapping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mappings, s.mappings = s.mappings, nil
	return mappings
}

// nameThreads reads the names of threads that were seen for the first time. A thread keeps what it is
// called then.
func (s *subject) nameThreads() {
	s.mu.Lock()
	unnamed := s.unnamed
	s.unnamed = nil
	s.mu.Unlock()
	for _, one := range unnamed {
		path := filepath.Join(s.recorder.options.ProcRoot, strconv.Itoa(s.id.PID), "task", strconv.Itoa(one.tid), "comm")
		name, err := os.ReadFile(path)
		if err == nil && s.target.Handle().Alive() {
			s.recorder.tally.name(one, strings.TrimSuffix(string(name), "\n"))
		}
	}
}

// close gives back what the process's programs and its target hold.
func (s *subject) close() {
	for _, p := range s.sampled() {
		if p.process.Root != nil {
			p.process.Root.Close()
		}
	}
	s.target.Close()
}

// takesNoPart says that an error is no reason to tell of the process.
func takesNoPart(err error) bool {
	return err == nil || process.IsGone(err) || errors.Is(err, process.ErrNotTarget) ||
		errors.Is(err, process.ErrContainerFiltered) || errors.Is(err, process.ErrServiceFiltered)
}
