package unwind

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/ebpf-profiler/process"

	"correlator/internal/worker"
	"correlator/procscan"
)

// Readability is how far the engine can read the runtimes of a process, in the words in which it says so when it
// unwinds the process. Its JSON is an interface.
type Readability struct {
	Runtimes []string `json:"runtimes,omitempty"` // that it can read
	Failure  string   `json:"failure,omitempty"`  // why stacks are walked by frame pointers
	Refused  string   `json:"refused,omitempty"`  // why the functions of a runtime have no names
	Unknown  string   `json:"unknown,omitempty"`  // what is to be said of versions that were not tried
	Error    string   `json:"error,omitempty"`    // why the process was not examined
}

// How the stacks of a process are walked of which there is something to say.
const (
	ByFramePointers = "by frame pointers"
	AsNativeCode    = "as native code"
	WithDoubts      = "with doubts"
	notExamined     = "not examined"
)

// Remark is what is to be said of the stacks of a process.
type Remark struct{ How, Reason string }

// maxPIDs is how many pids a line of a remark has.
const maxPIDs = 8

// Line returns the remark about some processes.
func (r Remark) Line(pids ...int) string {
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(pids[:min(len(pids), maxPIDs)])), ", "), "[]")
	if more := len(pids) - maxPIDs; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("stacks of %s %s: %s", list, r.How, r.Reason)
}

// Remarks returns what is to be said of the stacks of a process, if anything.
func (r *Readability) Remarks() []Remark {
	all := []Remark{
		{ByFramePointers, r.Failure}, {AsNativeCode, r.Refused}, {WithDoubts, r.Unknown}, {notExamined, r.Error},
	}
	return slices.DeleteFunc(all, func(r Remark) bool { return r.Reason == "" })
}

const (
	// probeTimeout is how long a probe may take. The largest executables take a tenth of it, once.
	probeTimeout = 2 * time.Second

	// proberBusy is how many processes are probed at a time, half of them of one user. A worker that has read a
	// large executable takes 60 MB.
	proberBusy = 4

	// maxProbed bounds the runtimes of an answer.
	maxProbed = 16
)

// Prober examines which runtimes processes have, without unwinding them. It is safe for concurrent use.
type Prober struct{ pool *worker.Pool }

// OpenProber returns a Prober, which the caller must close. It needs no engine, and loads no program. The program's
// main function must call worker.Main with Kind.
func OpenProber(procRoot string) (*Prober, error) { return openProber(procRoot, Kind()) }

// openProber is OpenProber with a kind of worker.
func openProber(procRoot string, kind worker.Kind) (*Prober, error) {
	kind.Raised, kind.Busy = false, proberBusy
	pool, err := worker.NewPool(procRoot, kind, new(worker.Counters))
	if err != nil {
		return nil, err
	}
	return &Prober{pool}, nil
}

// Close ends all workers without waiting for them.
func (p *Prober) Close() { p.pool.Close() }

// Probe examines a process, and returns within seconds, whatever that does. The error is procscan.ErrGone.
func (p *Prober) Probe(id procscan.ProcessID, user worker.User) (Readability, error) {
	request, err := jsonMessage(opProbe, synchronize{ID: id, User: user})
	var answer probed
	if err == nil {
		err = p.pool.Call(worker.Owner{PID: id.PID, User: user}, probeTimeout, request, answer.decode)
	}
	if err != nil {
		return Readability{Error: text(err.Error())}, nil
	}
	if answer.Gone {
		return Readability{}, procscan.ErrGone
	}
	return answer.Readability, nil
}

// probed is the answer to a probe.
type probed struct {
	Gone bool
	Readability
}

// decode decodes an answer, which may be bytes of any kind.
func (p *probed) decode(message []byte, fd int) error {
	if fd >= 0 || len(message) == 0 || message[0] != opProbe || json.Unmarshal(message[1:], p) != nil ||
		len(p.Runtimes) > maxProbed {
		return errAnswer
	}
	for _, s := range []*string{&p.Failure, &p.Refused, &p.Unknown, &p.Error} {
		*s = text(*s)
	}
	for i := range p.Runtimes {
		p.Runtimes[i] = text(p.Runtimes[i])
	}
	return nil
}

// probe examines a process.
func (s *server) probe(r *synchronize) (answer probed) {
	t, err := openTarget(s.procRoot, r, &s.budget, nil)
	if err == nil {
		defer t.close()
		t.begin()
		s.cache.bound()
		t.cache = s.cache
		_, err = t.IterateMappings(func(process.RawMapping) bool { return true })
	}
	if err == nil {
		t.probeJVM(s.pages, &answer.Readability)
		t.probeRuntimes(s.pages, &answer.Readability)
	}
	failed := failedSynchronization(err)
	switch {
	case t != nil && !t.handle.Alive(), err != nil && failed.Outcome == outcomeGone:
		return probed{Gone: true}
	case err != nil:
		answer.Failure = unreadable(failed.Failure).Error()
	}
	return answer
}

// probeJVM examines the JVM of a process. One of the same file as another that can be read is like that.
func (t *target) probeJVM(pages *pages, r *Readability) {
	if !t.hasJVM {
		return
	}
	file := mappedFile{t.jvm.Device, t.jvm.Inode}
	name, known := t.cache.jvms[file]
	if !known {
		code, err := openJVMCode(t, pages)
		if err = cmp.Or(t.failure, err); err != nil {
			r.Failure = notReady(failureText(err)).Error()
			return
		}
		name = jvmName(fmt.Sprint(code.data))
		t.cache.jvms[file] = name
	}
	r.Runtimes = append(r.Runtimes, name)
}

// jvmName returns a short name of a JVM, which the engine calls "Java HotSpot VM 17.0.15+6 (...)"; of JDK 8, it has
// no more than that.
func jvmName(of string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(of, "Java HotSpot VM "), " ")
	if strings.HasPrefix(version, "8.") {
		version = "8"
	}
	return "JVM " + version
}

// probeRuntimes examines the other runtimes of a process, with what the engine says of them.
func (t *target) probeRuntimes(pages *pages, r *Readability) {
	for _, kind := range runtimeKinds {
		code, err := findCode(t, kind, pages)
		if err == nil && kind.needsLibc && !t.needsMet(code) {
			r.Failure = join(r.Failure, notReady(refusalText(kind, errNotAttached)).Error())
			continue
		}
		switch {
		case errors.Is(err, errNotMapped):
		case err == nil:
			r.Runtimes, r.Unknown = append(r.Runtimes, fmt.Sprint(code.data)), join(r.Unknown, code.doubts())
		case kind.framePointersAfter(err):
			r.Failure = join(r.Failure, notReady(refusalText(kind, err)).Error())
		default:
			r.Refused = join(r.Refused, refusalText(kind, err))
		}
	}
}
