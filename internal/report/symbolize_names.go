package report

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"correlator/elfsym"
	"correlator/internal/record"
	"correlator/internal/symbols"
	"correlator/profile"
)

// This file reads names after the recording has ended.

// symbolNames are the names of a recording's frames.
type symbolNames struct {
	// late are processes whose files took too long to read: their frames have no names.
	late []*record.Process
	// perfMaps has, for processes with compiled code, the error of reading their perf map, nil when
	// it was read. fs.ErrNotExist: there is none.
	perfMaps map[*record.Process]error
	// unread has, for processes, why files with code of theirs were not opened.
	unread map[*record.Process]error

	paths  map[*record.Process]map[profile.FileID]string
	code   map[*record.Process][]codeRange
	native map[*record.Process]map[profile.FileID][]*symbols.Query // in order of preference
	jit    map[*record.Process]*symbols.Query
	kernel kernelNames
	vdso   *symbols.Query
}

// name returns the name of a frame of a process as in its symbol table, not demangled. It is empty
// when there is none. A nil *Symbols has no names.
func (s *symbolNames) name(p *record.Process, f profile.Frame) string {
	if s == nil {
		return ""
	}
	switch f.Kind() {
	case profile.KernelFrame:
		return s.kernel.name(f)
	case profile.AnonymousFrame:
		if f.Address >= kernelSpace {
			return s.kernel.name(f)
		}
		return s.jit[p].Name(f.Address)
	}
	if f.File.Path == vdsoPath {
		return s.vdso.Name(f.Address)
	}
	for _, q := range s.native[p][f.File.ID] {
		if name := q.Name(f.Address); name != "" {
			return name
		}
	}
	return ""
}

// compiled reports whether a frame in no file is code that a process has compiled. Otherwise its
// address is in no known memory.
func (s *symbolNames) compiled(p *record.Process, f profile.Frame) bool {
	return s != nil && (within(s.code[p], f.Address) || s.jit[p].Name(f.Address) != "")
}

// path returns the path of a frame's file in a process: that of profile.File is the one in the
// first process that mapped it.
func (s *symbolNames) path(p *record.Process, f profile.Frame) string {
	if s != nil {
		if path, known := s.paths[p][f.File.ID]; known {
			return path
		}
	}
	return f.File.Path
}

// wanted are the frames to be named.
type wanted struct {
	frames map[*record.Process][]profile.Frame // each once
	addrs  map[profile.FileID][]uint64         // of native frames, of all processes
	kernel []profile.Frame
	vdso   []uint64
	vdsoID profile.FileID
}

func want(r *record.Recording) wanted {
	stacks := make(map[processStack]struct{})
	frames := make(map[*record.Process]map[profile.Frame]struct{})
	for key := range r.Samples {
		if _, known := stacks[processStack{key.Process, key.Stack}]; known {
			continue
		}
		stacks[processStack{key.Process, key.Stack}] = struct{}{}
		if frames[key.Process] == nil {
			frames[key.Process] = make(map[profile.Frame]struct{})
		}
		for _, f := range r.Stacks[key.Stack] {
			frames[key.Process][f] = struct{}{}
		}
	}
	w := wanted{frames: make(map[*record.Process][]profile.Frame), addrs: make(map[profile.FileID][]uint64)}
	for process, set := range frames {
		w.frames[process] = slices.Collect(maps.Keys(set))
		for f := range set {
			switch {
			case f.Kind() == profile.KernelFrame, f.File == nil && f.Address >= kernelSpace:
				w.kernel = append(w.kernel, f)
			case f.File == nil:
			case f.File.Path == vdsoPath:
				w.vdso, w.vdsoID = append(w.vdso, f.Address), f.File.ID
			default:
				w.addrs[f.File.ID] = append(w.addrs[f.File.ID], f.Address)
			}
		}
	}
	return w
}

// named is what was read for one process.
type named struct {
	process *record.Process
	native  map[profile.FileID][]*symbols.Query
	jit     *symbols.Query // nil: it has no compiled code
	perfMap error
	paths   map[profile.FileID]string
	code    []codeRange
	unread  error
}

// read reads the names of a recording's frames. A process whose files cannot be read before ctx
// ends has none; its goroutine is abandoned. It is called once.
func (s *symbolizer) read(ctx context.Context, r *record.Recording) *symbolNames {
	w := want(r)
	host, err := os.OpenFile(filepath.Join(s.opener.ProcRoot, "1/root"), openPath, 0)
	if err != nil {
		host = nil // then no debug files of the host
	}
	results := make(chan named, len(w.frames)) // results that come late are not received
	late := make(map[*record.Process]struct{})
	for process, frames := range w.frames {
		late[process] = struct{}{}
		go func() { results <- s.readProcess(ctx, process, frames, w.addrs, host) }()
	}
	names := &symbolNames{
		perfMaps: make(map[*record.Process]error),
		unread:   make(map[*record.Process]error),
		paths:    make(map[*record.Process]map[profile.FileID]string),
		code:     make(map[*record.Process][]codeRange),
		native:   make(map[*record.Process]map[profile.FileID][]*symbols.Query),
		jit:      make(map[*record.Process]*symbols.Query),
		kernel:   readKernel(ctx, s.opener.ProcRoot, s.sysFS, w.kernel),
		vdso:     readVDSO(s.opener.ProcRoot, w.vdsoID, w.vdso),
	}
	for len(late) > 0 && ctx.Err() == nil {
		select {
		case one := <-results:
			delete(late, one.process)
			names.native[one.process], names.paths[one.process], names.code[one.process] = one.native, one.paths,
				one.code
			if one.unread != nil {
				names.unread[one.process] = one.unread
			}
			if one.jit != nil {
				names.jit[one.process], names.perfMaps[one.process] = one.jit, one.perfMap
			}
		case <-ctx.Done():
		}
	}
	for _, process := range r.Processes {
		if _, ok := late[process]; ok {
			names.late = append(names.late, process)
		}
	}
	if host != nil && len(late) == 0 {
		host.Close()
	}
	return names
}

// readProcess reads the names for one process. It blocks as long as the process makes the kernel
// wait.
func (s *symbolizer) readProcess(ctx context.Context, p *record.Process, frames []profile.Frame,
	addrs map[profile.FileID][]uint64, host *os.File) named {
	s.Learn(p, frames)
	of := s.sources(p)
	of.mu.Lock()
	defer of.mu.Unlock()
	result := named{ // copies: Learn may still be called
		process: p, native: make(map[profile.FileID][]*symbols.Query),
		paths: maps.Clone(of.paths), code: slices.Clone(of.code), unread: of.unread,
	}
	for id, source := range of.files {
		if source == nil {
			continue
		}
		r := reading{s, ctx, id, addrs[id], of.budget}
		source.reading.Do(func() { source.names = r.source(source, host) })
		got := source.names
		if got.otherBudgetExceeded(of.budget) {
			got = r.source(source, host)
		}
		queries := []*symbols.Query{got.debug, got.own}
		if !got.full && p.Root != nil {
			queries = append(queries, r.debugFile(p.Root, got.buildID))
		}
		result.native[id] = slices.DeleteFunc(queries, func(q *symbols.Query) bool { return q == nil })
	}
	var compiled []uint64
	for _, f := range frames {
		if f.File == nil && f.Address < kernelSpace {
			compiled = append(compiled, f.Address)
		}
	}
	if len(compiled) > 0 {
		result.jit = symbols.NewQuery(compiled, of.budget, s.budget)
		result.perfMap = s.readPerfMap(ctx, p, of, result.jit)
	}
	return result
}

// reading reads the names of addresses of one file for one process, from whose budget it takes
// memory.
type reading struct {
	*symbolizer
	ctx    context.Context
	id     profile.FileID
	addrs  []uint64
	budget *symbols.Budget
}

func (r reading) query() *symbols.Query {
	return symbols.NewQuery(slices.Clone(r.addrs), r.budget, r.symbolizer.budget)
}

// source reads names from a file itself and from its debug file on the host, which is preferred: it
// has the functions that are not exported. Errors leave addresses without names.
func (r reading) source(source *source, host *os.File) fileNames {
	names := fileNames{buildID: source.buildID, budget: r.budget}
	tables, err := elfsym.ReadSymbolTables(symbols.Until(r.ctx, source.file), source.size)
	if err != nil {
		return names
	}
	names.own = r.query()
	names.full = tables.Static != nil && names.own.ReadTable(tables.Static) == nil
	if names.buildID == nil { // Go's linker places it outside the notes that are mapped
		names.buildID = tables.BuildID
	}
	if !names.full && host != nil {
		names.debug = r.debugFile(host, names.buildID)
		names.full = names.debug != nil
	}
	_ = names.own.ReadTable(tables.Dynamic) // names read before an error are kept
	return names
}

// debugFile returns nil when there is none. Each is read once: containers of one image share it.
func (r reading) debugFile(root *os.File, buildID []byte) *symbols.Query {
	file, tables, err := r.opener.OpenDebugFile(r.ctx, root, buildID)
	if err != nil {
		return nil
	}
	defer file.Close()
	identity, err := elfsym.Identify(file)
	if err != nil {
		return nil
	}
	read := func() fileNames {
		names := fileNames{debug: r.query(), budget: r.budget}
		names.full = tables.Static != nil && names.debug.ReadTable(tables.Static) == nil
		return names
	}
	found := r.debugNames(debugKey{identity, r.id})
	found.reading.Do(func() { found.names = read() })
	got := found.names
	if got.otherBudgetExceeded(r.budget) {
		got = read()
	}
	if !got.full {
		return nil
	}
	return got.debug
}

func (s *symbolizer) debugNames(key debugKey) *debugFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.debug[key]
	if found == nil {
		found = &debugFile{}
		s.debug[key] = found
	}
	return found
}

// readPerfMap reads the perf map from when code was first sampled, and then the current one, which
// may be another file, or the only one.
func (s *symbolizer) readPerfMap(ctx context.Context, p *record.Process, of *sources, names *symbols.Query) error {
	old := of.perfMap
	of.perfMap = nil
	err := s.findPerfMap(p, of)
	if old != nil {
		defer old.Close()
		if of.perfMap != nil && sameFile(old, of.perfMap) {
			return readPerfMap(ctx, of.perfMap, names)
		}
		oldErr := readPerfMap(ctx, old, names)
		if err != nil && errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return oldErr
		}
	}
	if err != nil {
		return err
	}
	return readPerfMap(ctx, of.perfMap, names)
}

func sameFile(one, other *os.File) bool {
	x, errOne := one.Stat()
	y, errOther := other.Stat()
	return errOne == nil && errOther == nil && os.SameFile(x, y)
}

func readPerfMap(ctx context.Context, file *os.File, names *symbols.Query) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return names.ReadPerfMap(symbols.Until(ctx, file), info.Size())
}
