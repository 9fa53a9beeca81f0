package report

import (
	"errors"
	"sync"
	"time"

	"correlator/internal/attach/process"
	"correlator/internal/names/symbolizer"
	"correlator/internal/out/record"
	"correlator/procscan"
	"correlator/profile"
)

// frameNamer names the frames of a recording: those of processes by a symbolizer.Client, those of
// the kernel and the vDSO here. It is a Learner.
type frameNamer struct {
	client          *symbolizer.Client
	procRoot, sysFS string
	patience        time.Duration // for all names, at the end

	mu        sync.Mutex
	processes map[*record.Process]*symbolizer.Process
}

// newFrameNamer returns a frameNamer; the caller must close it. procRoot is a procfs of our own pid
// namespace.
func newFrameNamer(procRoot string) (*frameNamer, error) {
	client, err := symbolizer.Open(procRoot)
	if err != nil {
		return nil, err
	}
	return &frameNamer{
		client: client, procRoot: procRoot, sysFS: "/sys", patience: symbolsTimeout,
		processes: make(map[*record.Process]*symbolizer.Process),
	}, nil
}

// close does not wait for processes that hang.
func (n *frameNamer) close() { n.client.Close() }

// process returns a process of the recording for the client.
func (n *frameNamer) process(p *record.Process) (*symbolizer.Process, error) {
	n.mu.Lock()
	known := n.processes[p]
	n.mu.Unlock()
	if known != nil {
		return known, nil
	}
	user := p.User // of one that has ended
	if credentials, err := p.Handle.Credentials(); err == nil {
		user = credentials.UID
	} else if !errors.Is(err, procscan.ErrGone) {
		return nil, err
	}
	made, err := n.client.Process(p.Identity(), process.WrittenSince(p.Identity()), user)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.processes[p]; known != nil { // Learn and read, at the end
		return known, nil
	}
	n.processes[p] = made
	return made, nil
}

// Learn has files opened from which the names of frames of a process will be read. It blocks as
// long as the process makes the kernel wait, or until close.
func (n *frameNamer) Learn(p *record.Process, sample *profile.Sample) {
	process, err := n.process(p)
	if err != nil {
		return // it is reported when names are read
	}
	var files []symbolizer.File
	var code []uint64
	for _, f := range sample.Stack.Frames {
		switch {
		case symbolizer.OriginOf(f) != symbolizer.ProcessOrigin:
		case f.File == nil:
			code = append(code, f.Address)
		default:
			file := symbolizer.File{ID: f.File.ID, Path: f.File.Path}
			if sample.Space != nil {
				file.View = sample.Space.View(f.File.ID)
			}
			files = append(files, file)
		}
	}
	process.Learn(files, code)
}
