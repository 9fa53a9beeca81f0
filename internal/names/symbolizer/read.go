package symbolizer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"correlator/elfsym"
	"correlator/internal/names/symbols"
	"correlator/profile"
)

// This file reads names after the recording has ended.

// fileNames are the names from a file and from its debug file on this host.
type fileNames struct {
	own, debug *symbols.Query // nil: nothing
	buildID    []byte
	path       string           // of the file
	link       elfsym.DebugLink // of the same
	err        error            // names may be missing because of it
	partial    error            // why it is not full; nil: there is nothing else
	full       bool             // one of them has all: a .symtab, or the debug file DWARF
	budget     *symbols.Budget  // of the process for which they were read
}

// otherBudgetExceeded reports whether names may be missing because the budget of another process
// was exceeded.
func (n *fileNames) otherBudgetExceeded(budget *symbols.Budget) bool {
	return n.budget != budget && (n.own.OverBudget() || n.debug.OverBudget())
}

// named is what was read for one process.
type named struct {
	native   map[profile.FileID][]*symbols.Query // in order of preference
	failures map[profile.FileID]error
	jit      *symbols.Query // nil: it has no compiled code
	perfMap  error
}

// name returns the name of an address in a file, empty when there is none.
func (n *named) name(id profile.FileID, addr uint64) string {
	for _, q := range n.native[id] {
		if name := q.Name(addr); name != "" {
			return name
		}
	}
	return ""
}

// readProcess reads the names for one process. It is called with mu held, and blocks as long as the
// process makes the kernel wait.
func (s *server) readProcess(p *process) *named {
	gone := s.learn(p, p.asked, p.askedCode)
	s.shareFiles(p)
	result := s.readNames(p)
	if len(p.askedCode) > 0 && p.root == nil && gone != nil {
		result.perfMap = gone
	}
	return result
}

// readNames is readProcess of a process whose files are open.
func (s *server) readNames(p *process) *named {
	result := &named{
		native: make(map[profile.FileID][]*symbols.Query), failures: make(map[profile.FileID]error),
	}
	for id, source := range p.files {
		if source == nil || len(s.addrs[id]) == 0 {
			continue
		}
		r := reading{s, id, s.addrs[id], p.budget}
		source.reading.Do(func() { source.names = r.source(source) })
		got := source.names
		if got.otherBudgetExceeded(p.budget) {
			got = r.source(source)
		}
		queries := []*symbols.Query{got.debug, got.own}
		if !got.full && p.root != nil {
			_ = p.rights.Do(func() error {
				q, err := r.debugFile(p.root, &got, true)
				queries = append(queries, q)
				if got.full = q != nil; !got.full {
					got.partial = errors.Join(got.partial, err)
				}
				return nil
			})
		}
		if got.full {
			got.partial = nil
		}
		if err := errors.Join(got.err, got.partial); err != nil {
			result.failures[id] = err
		}
		result.native[id] = slices.DeleteFunc(queries, func(q *symbols.Query) bool { return q == nil })
	}
	if len(p.askedCode) > 0 {
		result.jit = s.query(p.askedCode, p.budget)
		result.perfMap = s.readPerfMap(p, result.jit)
	}
	return result
}

// reading reads the names of addresses of one file for one process, from whose budget it takes
// memory.
type reading struct {
	*server
	id     profile.FileID
	addrs  []uint64
	budget *symbols.Budget
}

func (r reading) query() *symbols.Query { return r.server.query(r.addrs, r.budget) }

// query returns a query that takes memory from a process's budget.
func (s *server) query(addrs []uint64, budget *symbols.Budget) *symbols.Query {
	q := symbols.NewQuery(slices.Clone(addrs), budget, s.budget)
	if s.ranges {
		q.FindRanges()
	}
	return q
}

// source reads names from a file itself and from its debug file on the host, which is preferred: it
// has the functions that are not exported. Errors leave addresses without names.
func (r reading) source(source *source) fileNames {
	names := fileNames{buildID: source.buildID, path: source.path, budget: r.budget}
	tables, err := elfsym.ReadSymbolTables(source.file, source.size)
	if err != nil {
		names.err = err
		return names
	}
	names.own, names.link = r.query(), tables.DebugLink
	staticErr := names.own.ReadTable(tables.Static)
	names.full = tables.Static != nil && staticErr == nil
	if names.buildID == nil { // Go's linker places it outside the notes that are mapped
		names.buildID = tables.BuildID
	}
	var debugErr, miniErr, dwarfErr error
	if !names.full && r.host != nil {
		names.debug, debugErr = r.debugFile(r.host, &names, false)
		names.full = names.debug != nil
	}
	if !names.full && tables.DebugData != nil {
		var mini *elfsym.SymbolTables
		if mini, miniErr = symbols.ReadDebugData(tables.DebugData); miniErr == nil {
			miniErr = names.own.ReadTable(mini.Static)
			names.full = mini.Static != nil && miniErr == nil
		}
	}
	if !names.full && tables.Static == nil {
		dwarfErr = r.readDWARF(names.own, tables.DWARF)
	}
	goErr := names.own.ReadTable(tables.Go)
	// Names read before an error are kept.
	names.err = errors.Join(goErr, names.own.ReadTable(tables.Dynamic), tables.Partial)
	if !names.full {
		names.partial = errors.Join(staticErr, debugErr, miniErr, dwarfErr)
	}
	if names.own.OverBudget() {
		names.err = errFull
	}
	return names
}

// debugFile returns nil when there is none. Each is read once: containers of one image share it. What
// a file links to may be next to it if that is below the process's own root.
//
// The error is of reading the one that was found, or says why it is not the right one.
func (r reading) debugFile(root *os.File, of *fileNames, own bool) (*symbols.Query, error) {
	var link elfsym.DebugLink
	file, tables, err := r.opener.OpenDebugFile(root, of.buildID)
	if err != nil {
		link = of.link
		var linkErr error
		if file, tables, linkErr = r.opener.OpenLinked(root, of.path, link, of.buildID, own); linkErr != nil {
			return nil, unlessMissing(err, linkErr)
		}
	}
	defer file.Close()
	identity, err := elfsym.Identify(file)
	if err != nil {
		return nil, err
	}
	read := func() fileNames {
		names := fileNames{debug: r.query(), budget: r.budget}
		if link.Name != "" && (len(of.buildID) == 0 || len(tables.BuildID) == 0) {
			names.err = r.verdicts.check(file, identity, link, r.allowance)
		}
		switch {
		case names.err != nil:
			return names
		case tables.Static != nil:
			names.err = names.debug.ReadTable(tables.Static)
		case tables.DWARF != nil:
			names.err = r.readDWARF(names.debug, tables.DWARF)
		default:
			return names
		}
		names.full = names.err == nil
		return names
	}
	found := r.debugNames(debugKey{identity, r.id, link})
	found.reading.Do(func() { found.names = read() })
	got := found.names
	if got.otherBudgetExceeded(r.budget) {
		got = read()
	}
	if !got.full {
		return nil, got.err
	}
	return got.debug, nil
}

// unlessMissing returns the errors but those of files that do not exist.
func unlessMissing(errs ...error) error {
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, fs.ErrNotExist) })...)
}

var errDWARFs = fmt.Errorf("DWARF of %d files is being read", maxDWARF)

// readDWARF reads what DWARF there is, unless that of too many files is being read.
func (r reading) readDWARF(q *symbols.Query, d *elfsym.DWARF) error {
	if d == nil {
		return nil
	}
	select {
	case r.dwarf <- struct{}{}:
		defer func() { <-r.dwarf }()
		return q.ReadTable(d)
	default:
		return errDWARFs
	}
}

func (s *server) debugNames(key debugKey) *debugFile {
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
func (s *server) readPerfMap(p *process, names *symbols.Query) error {
	old := p.perfMap
	p.perfMap = nil
	err := s.findPerfMap(p)
	if old != nil {
		defer old.Close()
		if p.perfMap != nil && sameFile(old, p.perfMap) {
			return readPerfMap(p.perfMap, names)
		}
		oldErr := readPerfMap(old, names)
		if err != nil && errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return oldErr
		}
	}
	if err != nil {
		return err
	}
	return readPerfMap(p.perfMap, names)
}

func sameFile(one, other *os.File) bool {
	x, errOne := one.Stat()
	y, errOther := other.Stat()
	return errOne == nil && errOther == nil && os.SameFile(x, y)
}

func readPerfMap(file *os.File, names *symbols.Query) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return names.ReadPerfMap(file, info.Size())
}
