package symbolizer

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"correlator/elfsym"
	"correlator/internal/host/procdir"
	"correlator/internal/host/sorting"
	"correlator/internal/names/symbols"
	"correlator/messaging"
	"correlator/procscan"
	"correlator/profile"
)

const (
	// maxSources is how many mapped files a worker holds open: a JVM has code of ten on its stacks, and
	// processes of one image share theirs. Code in further files has no names.
	maxSources = 4096

	// maxOpens is how many files of a process one search opens: as many as the largest real
	// processes map.
	maxOpens = 1024
)

var (
	errOpens   = fmt.Errorf("it maps more than %d files", maxOpens)
	errSources = fmt.Errorf("more than %d files are open", maxSources)
)

// source is one file with symbols, shared by the processes that map it.
type source struct {
	key     elfsym.FileKey
	file    *os.File
	size    int64
	buildID []byte
	path    string // where a process has mapped it
	reading sync.Once
	names   fileNames // after reading
}

// process is what a worker knows of one process: the files from which the names of its frames will
// be read. They are opened while it lives, because they can be anywhere and unlinked; nothing is
// read before the recording is over.
//
// Files of one process are only used for its own names, unless another one maps the very same file:
// otherwise a modified copy of a library could set the names of its functions in other processes.
type process struct {
	number int
	id     procscan.ProcessID
	since  time.Time // when it may have written its perf map, at the earliest

	asked     []file   // what is to be named
	askedCode []uint64 // the receiving goroutine's until reading

	mu      sync.Mutex                 // held while its files are accessed, which can block forever
	files   map[profile.FileID]*source // nil: it was not found
	paths   map[profile.FileID]string  // their paths in the process
	views   map[profile.FileID]profile.View
	unread  error       // why files that may be needed were not opened
	failed  error       // why some that may be needed could not be opened or read
	code    []codeRange // anonymous memory that was executable at any time
	root    *os.File    // its root directory (O_PATH), nil: not opened
	pid     int         // in its own pid namespace; known with root, like rights
	rights  messaging.Credentials
	place   procscan.Place // zero: not known
	tmp     *os.File       // its /tmp (O_PATH), nil: not opened
	perfMap *os.File
	budget  *symbols.Budget
}

// learn opens the files from which names of a process will be read, unless they are open already,
// and returns an error when the process has ended. It is called with mu held.
func (s *server) learn(p *process, files []file, code []uint64) error {
	handle, err := procscan.OpenProcess(s.opener.ProcRoot, p.id)
	if err != nil {
		return err
	}
	defer handle.Close()
	if err := s.identify(p, handle); err != nil {
		return err
	}
	wanted := make(map[profile.FileID]string)
	for _, f := range files {
		if _, known := p.files[f.ID]; !known {
			wanted[f.ID] = string(f.Path)
		}
	}
	if len(wanted) > 0 {
		s.findFiles(p, handle, wanted)
	}
	if len(code) > 0 {
		p.findCode(handle, code)
		if p.perfMap == nil {
			_ = s.findPerfMap(p) // searched for again at the end
		}
	}
	return nil
}

// identify finds out with which rights files of a process are opened that it names, and below which
// root. Both stay known when it has ended.
func (s *server) identify(p *process, handle *procscan.Handle) error {
	credentials, err := handle.Credentials()
	if err != nil {
		return err
	}
	pids, err := procdir.Status(path.Join(s.opener.ProcRoot, strconv.Itoa(p.id.PID)), "NSpid")
	if err != nil {
		return err
	}
	root := p.root
	if root == nil {
		root, _ = handle.OpenRoot() // nil with an error
	}
	if !handle.Alive() {
		if root != p.root {
			root.Close()
		}
		return procscan.ErrGone
	}
	p.root, p.pid, p.rights = root, p.id.PID, messaging.Credentials(credentials)
	p.place, _ = handle.Place()
	if n := len(pids); n > 0 {
		if p.pid, err = strconv.Atoi(pids[n-1]); err != nil {
			return err
		}
	}
	return nil
}

// findFiles opens the files of some ids. Their paths are only hints: the path of an id is that in
// the first process that mapped it.
func (s *server) findFiles(p *process, handle *procscan.Handle, wanted map[profile.FileID]string) {
	mappings, err := handle.ExecutableMappings()
	if err != nil && len(mappings) == 0 {
		p.failed = err // unless it has exited
		return
	}
	likely := make(map[string]int)
	for id, path := range wanted {
		likely[path] = -1
		p.files[id] = nil
	}
	sorting.Stable(mappings, func(a, b procscan.Mapping) int {
		return cmp.Compare(likely[a.Path], likely[b.Path])
	})
	type mapped struct {
		dev, ino uint64
		path     string
	}
	looked := make(map[mapped]struct{})
	systems := s.opener.FileSystems(p.id.PID)
	var unread error
	defer func() {
		if len(wanted) > 0 && unread != nil {
			p.unread = unread
		}
	}()
	for _, m := range mappings {
		one := mapped{m.Dev, m.Ino, m.Path}
		if _, again := looked[one]; again {
			continue
		}
		if len(wanted) == 0 {
			return
		}
		if len(looked) == s.opens {
			p.failed = errOpens
			return
		}
		looked[one] = struct{}{}
		if err := systems.Check(m.Dev); err != nil {
			unread = err
			continue
		}
		id, found, err := s.openWanted(handle, m, wanted)
		if errors.Is(err, procscan.ErrGone) {
			return
		}
		if err != nil && !elfsym.IsContentError(err) {
			p.failed = err
		}
		if found != nil {
			p.files[id], p.paths[id] = found, m.Path
			delete(wanted, id)
		}
	}
}

// shareFiles has files of a process be found for others that see the same, which therefore have the same names. Those
// that were not opened before it had ended are found so.
func (s *server) shareFiles(p *process) {
	for id, seen := range p.views {
		view := s.view(p, id)
		s.mu.Lock()
		if view != (profile.View{}) {
			s.views[view] = p.files[id]
		} else if found := s.views[seen]; found != nil && p.files[id] == nil {
			p.files[id] = found
		}
		s.mu.Unlock()
	}
}

// missing returns why a file was not found, as far as that is known.
func (p *process) missing() Failure {
	switch {
	case p.unread != nil:
		return FileSystem
	case p.failed != nil:
		return Unreadable
	}
	return NotMapped
}

// unnamed returns why addresses in a file may lack names, as far as that is known.
func (p *process) unnamed(n *named, id profile.FileID) error {
	if p.files[id] != nil || errors.Is(p.failed, procscan.ErrGone) {
		return n.failures[id]
	}
	return p.failed
}

// openWanted opens the file of a mapping. It returns nil when its id is not wanted.
func (s *server) openWanted(handle *procscan.Handle, m procscan.Mapping,
	wanted map[profile.FileID]string) (profile.FileID, *source, error) {
	var id profile.FileID
	file, err := handle.OpenMapped(m)
	if err != nil {
		return id, nil, err
	}
	identity, err := elfsym.Identify(file)
	if err != nil {
		file.Close()
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
	found, isNew := s.source(&source{key: identity, file: file, size: identity.Size, buildID: parsed.BuildID,
		path: m.Path})
	if !isNew {
		file.Close()
	}
	if found == nil {
		return id, nil, errSources
	}
	return id, found, nil
}

// source returns the source of a file, which is added if it is new; nil when there are too many.
func (s *server) source(made *source) (found *source, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found = s.files[made.key]; found != nil || len(s.files) == s.sources {
		return found, false
	}
	s.files[made.key] = made
	return made, true
}

var errNoRoot = errors.New("the process's root directory could not be opened")

// findPerfMap opens the process's perf map. It may not exist, or be created later.
func (s *server) findPerfMap(p *process) error {
	if p.root == nil {
		return errNoRoot
	}
	var file *os.File
	err := p.rights.Do(func() (err error) {
		// It can be a mount that the root directory does not lead to when the process has ended, and a
		// JVM can write the map at its exit.
		if p.tmp == nil {
			if p.tmp, err = s.opener.OpenPerfMapDir(p.root); err != nil {
				return err
			}
		}
		file, err = s.opener.OpenPerfMap(p.tmp, p.pid, p.rights.UID, p.since)
		return err
	})
	if err != nil {
		return err
	}
	if p.perfMap != nil {
		p.perfMap.Close()
	}
	p.perfMap = file
	return nil
}
