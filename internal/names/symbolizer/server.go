package symbolizer

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"correlator/elfsym"
	"correlator/internal/names/symbols"
	"correlator/internal/worker"
	"correlator/profile"
)

const (
	// maxProcessBytes and maxUserBytes bound the memory of names, of one process and of all of a worker.
	// A JVM has some 100,000 addresses on its stacks, with names of 60 bytes: 10 MiB.
	maxProcessBytes = 64 << 20
	maxUserBytes    = 128 << 20

	// workerMemoryBytes is what a worker may take: names, and as much for the addresses, what is needed
	// while a symbol table is read, and garbage.
	workerMemoryBytes = 512 << 20

	// liveMemoryBytes is the same for a worker of a Live: four of them must not take what the agent
	// may. Some 50 MB are the most that mappings, mounts, tables and names of one process can take.
	liveMemoryBytes = 96 << 20

	// workerDescriptors are for maxSources files, three for each of 4,000 processes (root, /tmp, perf map),
	// and a few for each that is served.
	workerDescriptors = 16 << 10

	// maxDWARF is how many files have their DWARF read at a time, which takes up to 30 MB each. Others are not
	// waited for, since a read can hang: their functions have no names of DWARF.
	maxDWARF = 6

	// maxServed is how many processes a worker opens or reads files of at a time; each takes a thread or
	// two while it hangs.
	maxServed = 64
)

// Kind is the kind of worker that serves a Client. The capabilities are for opening mapped files, as
// those of package access, and for taking on the rights of processes.
var Kind = worker.Kind{
	Name: "symbols",
	Capabilities: []int{
		unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SETUID, unix.CAP_SETGID,
	},
	Calls:       worker.CredentialCalls,
	MemoryBytes: workerMemoryBytes,
	Descriptors: workerDescriptors,
	Serve:       func(procRoot string, conn *worker.Conn) { newServer(procRoot, conn).serve() },
}

// LiveKind is the kind of worker that serves a Live: the same, with less of everything.
var LiveKind = worker.Kind{
	Name: "names", Capabilities: Kind.Capabilities, Calls: Kind.Calls, MemoryBytes: liveMemoryBytes,
	Single: true, Serve: Kind.Serve,
}

func init() {
	worker.Early(Kind)
	worker.Early(LiveKind)
}

// server is the worker's side.
type server struct {
	opener symbols.Opener
	conn   *worker.Conn
	budget *symbols.Budget
	ranges bool          // names are read with their ranges
	served chan struct{} // has a token for each process that is served
	dwarf  chan struct{} // has one for each file of which DWARF is read

	processes map[int]*process            // the receiving goroutine's
	addrs     map[profile.FileID][]uint64 // that are to be named, of all processes; constant while reading
	host      *os.File                    // root directory with debug files of the host; nil: there is none

	mu    sync.Mutex // never held while something may block
	files map[elfsym.FileKey]*source
	views map[profile.View]*source // the same by how processes see them: see shareFiles
	debug map[debugKey]*debugFile

	verdicts       *verdicts
	allowance      *allowance
	linkedBytes    int64 // the allowance of a request of a Live
	opens, sources int   // maxOpens and maxSources

	sending sync.Mutex // held while an answer is sent
}

// debugKey is a debug file and the file that it is used for.
type debugKey struct {
	file elfsym.FileKey
	of   profile.FileID
	link elfsym.DebugLink // by which it was found; none: by its build id
}

// debugFile are the names from a debug file, shared by all processes.
type debugFile struct {
	reading sync.Once
	names   fileNames // after reading
}

func newServer(procRoot string, conn *worker.Conn) *server {
	return &server{
		opener:    symbols.Opener{ProcRoot: procRoot},
		conn:      conn,
		budget:    symbols.NewBudget(maxUserBytes),
		served:    make(chan struct{}, maxServed),
		dwarf:     make(chan struct{}, maxDWARF),
		processes: make(map[int]*process),
		addrs:     make(map[profile.FileID][]uint64),
		files:     make(map[elfsym.FileKey]*source),
		views:     make(map[profile.View]*source),
		debug:     make(map[debugKey]*debugFile),
		verdicts:  &verdicts{right: make(map[linked]bool)},
		allowance: &allowance{left: math.MaxInt64}, // who waits for all names has them

		linkedBytes: linkedBytes, opens: maxOpens, sources: maxSources,
	}
}

func (s *server) serve() {
	for {
		message, err := s.conn.Receive()
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal(message, &r); err != nil {
			return
		}
		switch r.Op {
		case opLearn:
			p := s.process(&r)
			go s.on(p, func() {
				_ = s.learn(p, r.Files, r.Code)
				for _, f := range r.Files {
					p.views[f.ID] = f.View
				}
				s.shareFiles(p)
				s.send(&answer{Process: p.number, Learned: true})
			})
		case opAsk:
			p := s.process(&r)
			p.asked, p.askedCode = append(p.asked, r.Files...), append(p.askedCode, r.Code...)
			for _, f := range r.Files {
				s.addrs[f.ID] = append(s.addrs[f.ID], f.Addrs...)
			}
		case opRead:
			s.openHost()
			for _, p := range s.processes {
				if len(p.asked)+len(p.askedCode) > 0 {
					go s.on(p, func() { s.sendNames(p, s.readProcess(p)) })
				}
			}
		case opName:
			s.send(s.name(&r))
		}
	}
}

func (s *server) openHost() {
	s.host, _ = os.OpenFile(path.Join(s.opener.ProcRoot, "1/root"), unix.O_PATH|unix.O_DIRECTORY, 0)
}

// process returns the process that a request is about.
func (s *server) process(r *request) *process {
	p := s.processes[r.Process]
	if p == nil {
		p = &process{
			number: r.Process, id: r.ID, since: r.Since,
			files: make(map[profile.FileID]*source), paths: make(map[profile.FileID]string),
			views:  make(map[profile.FileID]profile.View),
			budget: symbols.NewBudget(maxProcessBytes),
		}
		s.processes[r.Process] = p
	}
	return p
}

// on does something that a process can make hang.
func (s *server) on(p *process, do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.served <- struct{}{}
	defer func() { <-s.served }()
	do()
}

// send sends an answer. It ignores errors: receiving then fails, too.
func (s *server) send(a any) {
	message, err := json.Marshal(a)
	if err != nil {
		return // impossible for its types
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.conn.Send(message, -1)
}

// sendNames sends what was read for a process.
func (s *server) sendNames(p *process, n *named) {
	unread := p.unread
	w := answerWriter{server: s, answer: answer{Process: p.number}}
	for _, f := range p.asked {
		w.next(&file{ID: f.ID, Path: []byte(p.paths[f.ID])})
		for _, addr := range f.Addrs {
			if name := n.name(f.ID, addr); name != "" {
				w.add(addr, name)
			} else {
				unread = cmp.Or(unread, p.unnamed(n, f.ID))
			}
		}
	}
	w.next(nil)
	for _, addr := range p.askedCode {
		if name := n.jit.Name(addr); name != "" || within(p.code, addr) {
			w.add(addr, name)
		}
	}
	w.answer.End = &end{Unread: failures.Encode(unread), PerfMap: failures.Encode(n.perfMap)}
	w.flush()
}

// answerWriter sends names in answers of a bounded size.
type answerWriter struct {
	server       *server
	answer       answer
	index        map[string]int // of the answer's names
	addrs, bytes int            // in the answer, and of its names
	demangler    symbols.Demangler
}

// next begins with another file; nil: memory.
func (w *answerWriter) next(f *file) {
	w.flush()
	w.answer.File = f
}

func (w *answerWriter) add(addr uint64, name string) {
	if w.addrs == maxAnswerAddrs || w.bytes >= maxAnswerBytes {
		w.flush()
	}
	i, known := w.index[name]
	if !known {
		i = len(w.answer.Names)
		w.index[name] = i
		added := symbolName{[]byte(name), []byte(w.demangler.Demangle(name))}
		w.answer.Names = append(w.answer.Names, nameOf{symbolName: added})
		w.bytes += added.bytes()
	}
	w.answer.Names[i].Addrs = append(w.answer.Names[i].Addrs, addr)
	w.addrs++
}

// flush sends the answer, unless it says nothing.
func (w *answerWriter) flush() {
	a := &w.answer
	if len(a.Names) > 0 || a.File != nil && len(a.File.Path) > 0 || a.End != nil {
		w.server.send(a)
	}
	*a = answer{Process: a.Process, File: a.File}
	if a.File != nil {
		a.File = &file{ID: a.File.ID} // its path was sent
	}
	w.index, w.addrs, w.bytes = make(map[string]int), 0, 0
}
