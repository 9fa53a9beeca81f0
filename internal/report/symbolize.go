package report

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"correlator/elfsym"
	"correlator/internal/process"
	"correlator/internal/record"
	"correlator/internal/symbols"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// maxSources is how many files are held open at once, besides those of the recorder: a JVM has
	// code of ten on its stacks, and processes of one image share theirs. Code in further files has
	// no names.
	maxSources = 4096

	// maxOpens is how many files of a process one search opens: as many as the largest real
	// processes map.
	maxOpens = 1024

	// maxProcessBytes and maxNamesBytes bound the memory of names, of one process and of all. A JVM
	// has some 100,000 addresses on its stacks, with names of 60 bytes: 10 MiB.
	maxProcessBytes = 64 << 20
	maxNamesBytes   = 512 << 20
)

// symbolizer opens the files from which the names of frames will be read, while their processes are
// alive: mapped files, which can be anywhere and unlinked, and perf maps. Nothing is read before
// the recording is over. It is a Learner.
//
// Files of one process are only used for its own names, unless another one maps the very same file:
// otherwise a modified copy of a library could set the names of its functions in other processes.
type symbolizer struct {
	opener     symbols.Opener
	sysFS      string
	budget     *symbols.Budget
	openMapped func(*record.Process, procscan.Mapping) (mappedFile, elfsym.FileKey, error)

	mu        sync.Mutex // never held while something may block
	processes map[*record.Process]*sources
	files     map[elfsym.FileKey]*source
	debug     map[debugKey]*debugFile
}

// newSymbolizer returns a symbolizer without files; the caller must close it. procRoot is a procfs
// of our own pid namespace.
func newSymbolizer(procRoot string) *symbolizer {
	return &symbolizer{
		opener:     symbols.Opener{ProcRoot: procRoot},
		sysFS:      "/sys",
		budget:     symbols.NewBudget(maxNamesBytes),
		openMapped: openMapped,
		processes:  make(map[*record.Process]*sources),
		files:      make(map[elfsym.FileKey]*source),
		debug:      make(map[debugKey]*debugFile),
	}
}

// mappedFile is an open file that a process maps.
type mappedFile interface {
	io.ReaderAt
	io.Closer
}

// source is one file with symbols, shared by the processes that map it.
type source struct {
	file    mappedFile
	size    int64
	buildID []byte
	reading sync.Once
	names   fileNames // after reading
}

// fileNames are the names from a file and from its debug file on this host.
type fileNames struct {
	own, debug *symbols.Query // nil: nothing
	buildID    []byte
	full       bool            // one of them has a .symtab
	budget     *symbols.Budget // of the process for which they were read
}

// otherBudgetExceeded reports whether names may be missing because the budget of another process
// was exceeded.
func (n *fileNames) otherBudgetExceeded(budget *symbols.Budget) bool {
	return n.budget != budget && (n.own.OverBudget() || n.debug.OverBudget())
}

// debugKey is a debug file and the file that it is used for.
type debugKey struct {
	file elfsym.FileKey
	of   profile.FileID
}

// debugFile are the names from a debug file, shared by all processes.
type debugFile struct {
	reading sync.Once
	names   fileNames // after reading
}

// sources are the open files of one process.
type sources struct {
	mu       sync.Mutex                 // held while the process's files are accessed, which can block forever
	files    map[profile.FileID]*source // nil: it was not found
	paths    map[profile.FileID]string  // their paths in the process
	unread   error                      // why files that may be needed were not opened
	code     []codeRange                // anonymous memory that was executable at any time
	codeRead time.Time                  // when code was read
	jit      bool                       // it has compiled code, and pid and uid are known
	pid      int                        // in the process's own pid namespace
	uid      uint32
	perfMap  *os.File
	budget   *symbols.Budget
}

func (s *symbolizer) sources(p *record.Process) *sources {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.processes[p]
	if of == nil {
		of = &sources{
			files: make(map[profile.FileID]*source), paths: make(map[profile.FileID]string),
			budget: symbols.NewBudget(maxProcessBytes),
		}
		s.processes[p] = of
	}
	return of
}

// Learn opens the files from which the names of frames of a process will be read, unless they are
// open already. It blocks as long as the process makes the kernel wait.
func (s *symbolizer) Learn(p *record.Process, frames []profile.Frame) {
	of := s.sources(p)
	of.mu.Lock()
	defer of.mu.Unlock()
	wanted := make(map[profile.FileID]string)
	var compiled []uint64
	for _, f := range frames {
		switch f.Kind() {
		case profile.NativeFrame:
			if _, known := of.files[f.File.ID]; !known && f.File.Path != vdsoPath {
				wanted[f.File.ID] = f.File.Path
			}
		case profile.AnonymousFrame:
			if f.Address < kernelSpace {
				compiled = append(compiled, f.Address)
			}
		}
	}
	if len(wanted) > 0 {
		s.findFiles(p, of, wanted)
	}
	if len(compiled) > 0 {
		of.findCode(p, compiled)
		if of.perfMap == nil {
			_ = s.findPerfMap(p, of) // searched for again at the end
		}
	}
}

// findFiles opens the files of some ids. Their paths are only hints: the path of an id is that in
// the first process that mapped it.
func (s *symbolizer) findFiles(p *record.Process, of *sources, wanted map[profile.FileID]string) {
	mappings, err := p.Handle.ExecutableMappings()
	if err != nil && len(mappings) == 0 {
		return // it has exited
	}
	likely := make(map[string]int)
	for id, path := range wanted {
		likely[path] = -1
		of.files[id] = nil
	}
	slices.SortStableFunc(mappings, func(a, b procscan.Mapping) int {
		return cmp.Compare(likely[a.Path], likely[b.Path])
	})
	type mapped struct {
		dev, ino uint64
		path     string
	}
	looked := make(map[mapped]struct{})
	systems := s.opener.FileSystems(p.PID)
	var unread error
	defer func() {
		if len(wanted) > 0 && unread != nil {
			of.unread = unread
		}
	}()
	for _, m := range mappings {
		one := mapped{m.Dev, m.Ino, m.Path}
		if _, again := looked[one]; again {
			continue
		}
		if len(wanted) == 0 || len(looked) == maxOpens {
			return
		}
		looked[one] = struct{}{}
		if err := systems.Check(m.Dev); err != nil {
			unread = err
			continue
		}
		id, found, err := s.openWanted(p, m, wanted)
		if errors.Is(err, procscan.ErrGone) {
			return
		}
		if found != nil {
			of.files[id], of.paths[id] = found, m.Path
			delete(wanted, id)
		}
	}
}

// openWanted opens the file of a mapping. It returns nil when its id is not wanted.
func (s *symbolizer) openWanted(p *record.Process, m procscan.Mapping,
	wanted map[profile.FileID]string) (profile.FileID, *source, error) {
	var id profile.FileID
	file, identity, err := s.openMapped(p, m)
	if err != nil {
		return id, nil, err
	}
	parsed, err := elfsym.ParseFile(file, identity.Size)
	if err != nil {
		file.Close()
		return id, nil, err
	}
	id = parsed.HTLHash
	if _, ok := wanted[id]; !ok {
		file.Close()
		return id, nil, nil
	}
	found, isNew := s.source(identity, &source{file: file, size: identity.Size, buildID: parsed.BuildID})
	if !isNew {
		file.Close()
	}
	return id, found, nil
}

// source returns the source of a file, which is added if it is new; nil when there are too many.
func (s *symbolizer) source(identity elfsym.FileKey, made *source) (found *source, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found = s.files[identity]; found != nil || len(s.files) == maxSources {
		return found, false
	}
	s.files[identity] = made
	return made, true
}

func openMapped(p *record.Process, m procscan.Mapping) (mappedFile, elfsym.FileKey, error) {
	file, err := p.Handle.OpenMapped(m)
	if err != nil {
		return nil, elfsym.FileKey{}, err
	}
	identity, err := elfsym.Identify(file)
	if err != nil {
		file.Close()
		return nil, elfsym.FileKey{}, err
	}
	return file, identity, nil
}

// findPerfMap opens the process's perf map. It may not exist, or be created later.
func (s *symbolizer) findPerfMap(p *record.Process, of *sources) error {
	if p.Root == nil {
		return errNoRoot
	}
	if !of.jit {
		pid, uid, err := s.known(p)
		if err != nil {
			return err
		}
		of.jit, of.pid, of.uid = true, pid, uid
	}
	file, err := s.opener.OpenPerfMap(p.Root, of.pid, of.uid, process.NewView(p.Handle.Identity()).StartTime)
	if err != nil {
		return err
	}
	if of.perfMap != nil {
		of.perfMap.Close()
	}
	of.perfMap = file
	return nil
}

var errNoRoot = errors.New("the process's root directory could not be opened")

// known returns the pid of a process in its own pid namespace, and its user.
func (s *symbolizer) known(p *record.Process) (pid int, uid uint32, err error) {
	credentials, err := p.Handle.Credentials()
	if err != nil {
		return 0, 0, err
	}
	fs, err := procfs.NewFS(s.opener.ProcRoot)
	if err != nil {
		return 0, 0, err
	}
	process, err := fs.Proc(p.PID)
	if err != nil {
		return 0, 0, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0, 0, err
	}
	if !p.Handle.Alive() {
		return 0, 0, procscan.ErrGone
	}
	pid = p.PID
	if n := len(status.NSpids); n > 0 {
		pid = int(status.NSpids[n-1])
	}
	return pid, credentials.UID, nil
}

// close closes all files without waiting: a file system that a process serves can block closing.
// Goroutines that hang are abandoned.
func (s *symbolizer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		go f.file.Close()
	}
	for _, of := range s.processes {
		go func() {
			of.mu.Lock()
			defer of.mu.Unlock()
			if of.perfMap != nil {
				of.perfMap.Close()
			}
		}()
	}
}
