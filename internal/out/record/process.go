package record

import (
	"errors"
	"sync"
	"time"

	"correlator/bpf"
	"correlator/internal/attach/lifecycle"
	"correlator/internal/attach/process"
	"correlator/internal/stacks/sampling"
	"correlator/internal/worker"
	"correlator/procscan"
	"correlator/profile"
)

// maxPrograms is how many programs of one process are recorded, one after the other. A real one
// executes another, or publishes something new, once or twice.
const maxPrograms = 64

var errTooManyPrograms = errors.New("executes programs, or publishes something new, too often")

// handler records one process. Its methods are called on the process's goroutine.
type handler struct {
	recorder *Recorder
	process  *lifecycle.Process
	sampler  *sampling.ProcessSampler
	id       procscan.ProcessID
	earlier  int             // programs that earlier handlers of the process recorded
	probed   chan struct{}   // closed when the process was probed for the first time, or has ended
	target   *process.Target // of a process that runs on at the end of the recording; else nil

	mu       sync.Mutex
	first    bool // probed is closed
	requests []symbolRequest
	learning bool
	programs []*program // that were sampled
	err      error      // how the last probe ended
	since    time.Time  // when err began to be one
}

// program is the sink of one program of a process.
type program struct {
	handler  *handler
	identity bpf.ExecID
	process  *Process
}

// symbolRequest is what a Learner is called with.
type symbolRequest struct {
	process *Process
	sample  profile.Sample
}

// Sampled counts samples, or waits, and has the Learner learn a stack that is new.
func (p *program) Sampled(sample profile.Sample) {
	h := p.handler
	isNew := h.recorder.aggregate.add(p.process, &sample)
	if !isNew || h.recorder.options.Learner == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, symbolRequest{p.process, sample})
	if !h.learning {
		h.learning = true
		h.recorder.learning.Go(h.learn)
	}
}

// Accounted adds up the accounts of threads, if they were asked for.
func (p *program) Accounted(a *profile.Account) { p.handler.recorder.aggregate.account(p.process, a) }

// Waited counts waits, as Sampled does samples.
func (p *program) Waited(sample profile.Sample) { p.Sampled(sample) }

// Refused does nothing: the sampler counts them, of all processes together.
func (p *program) Refused(process.SampleOutcome, uint64) {}

// Flush does nothing: samples are aggregated.
func (p *program) Flush() {}

// learn has the Learner learn all requests that there are.
func (h *handler) learn() {
	for {
		h.mu.Lock()
		requests := h.requests
		h.requests, h.learning = nil, len(requests) > 0
		h.mu.Unlock()
		if len(requests) == 0 {
			return
		}
		for _, l := range requests {
			h.recorder.options.Learner.Learn(l.process, &l.sample)
		}
	}
}

// Attach does nothing: to record a process takes no more than to sample it.
func (h *handler) Attach() error {
	if h.earlier+len(h.sampled()) >= maxPrograms {
		return errTooManyPrograms
	}
	return nil
}

// Valid returns true.
func (h *handler) Valid() bool { return true }

// Detach does nothing.
func (h *handler) Detach() {}

// Down has no error.
func (h *handler) Down() <-chan error { return nil }

// Probed records how a probe ended. The only process to be recorded gets no second chance to take
// part: the caller waits for the error.
func (h *handler) Probed(err error) {
	h.mu.Lock()
	if errors.Is(err, worker.ErrClosed) { // the recording has ended, which says nothing of the process
		if err = h.err; !h.first {
			err = procscan.ErrStuck // it hung until then
		}
	}
	if h.err == nil && err != nil {
		h.since = time.Now()
	}
	h.err = err
	h.mu.Unlock()
	h.setProbed()
	if h.recorder.options.PID != 0 && err != nil && takesNoPart(err) {
		h.recorder.stop()
	}
}

func (h *handler) setProbed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.first {
		h.first = true
		close(h.probed)
	}
}

// sink returns the sink of a program: the one that it had before, unless it is another program, or
// publishes something else.
func (h *handler) sink(identity bpf.ExecID) sampling.Sink {
	target := h.process.Target()
	service := target.Service()
	var view process.View
	target.Describe(&view)
	process := Process{
		PID: h.id.PID, StartTime: h.id.StartTime,
		Service: service.Name, Environment: service.Environment,
		ContainerID: target.Cgroup().ContainerID, Handle: target.Handle(), UnreadSchema: view.UnreadSchema(),
		User: target.User(), Executable: target.Executable(),
	}
	for _, p := range h.sampled() {
		if p.identity == identity && *p.process == process {
			return p
		}
	}
	p := &program{handler: h, identity: identity, process: &process}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.programs = append(h.programs, p)
	return p
}

// Abandon abandons the samples that wait: they are among the counters of the recording.
func (h *handler) Abandon() { h.sampler.Abandon() }

// Close ends the recording of the process. Of a process that has ended itself, nothing stays open.
func (h *handler) Close(bool) {
	r := h.recorder
	defer r.learning.Done()
	exited, sampled := !h.process.Target().Handle().Alive(), len(h.sampled()) > 0
	h.setProbed()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.processes[h.id] == h { // else it was found again already
		delete(r.processes, h.id)
	}
	r.recordFailure(h)
	if sampled {
		r.ended[h.id] = append(r.ended[h.id], h)
	}
	if sampled && !exited {
		h.target = h.process.KeepTarget()
	}
	if r.options.PID != 0 {
		r.stop()
	}
}

func (h *handler) sampled() []*program {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.programs
}

func (h *handler) recorded() (processes []*Process) {
	for _, p := range h.sampled() {
		processes = append(processes, p.process)
	}
	return processes
}

// failure returns how the last probe of the process ended, and since when they end with an error.
func (h *handler) failure() (since time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err
}

// release closes what the process's target holds.
func (h *handler) release() {
	if h.target != nil {
		h.target.Close()
	}
}

// takesNoPart reports whether an error is no reason to report the process.
func takesNoPart(err error) bool {
	return err == nil || process.IsGone(err) || errors.Is(err, process.ErrNotTarget) || process.IsFiltered(err)
}
