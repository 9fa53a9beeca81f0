package report

import (
	"cmp"
	"context"
	"errors"
	"regexp"

	"correlator/internal/names/symbolizer"
	"correlator/internal/names/symbols"
	"correlator/internal/out/record"
	"correlator/procscan"
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
	// unread has, for processes, why files with code of theirs were not read.
	unread map[*record.Process]error

	names  map[*record.Process]symbolizer.Names
	kernel symbolizer.KernelNames
	vdso   *symbols.Query
}

// name returns the name of a frame of a process: that of its function, else that of its symbol, demangled. It
// is empty when there is none. A nil *symbolNames has no names.
func (s *symbolNames) name(p *record.Process, f profile.Frame) string {
	symbol := s.symbol(p, f)
	switch {
	case f.Name() != "" || s == nil:
		return f.Name()
	case symbolizer.OriginOf(f) == symbolizer.KernelOrigin:
		return cmp.Or(new(symbols.Demangler).Demangle(symbol), symbol)
	}
	return cmp.Or(s.names[p].Demangled[symbol], symbol)
}

// symbol returns the name of a frame as in the symbol table, where it has another one, too; else like name.
func (s *symbolNames) symbol(p *record.Process, f profile.Frame) string {
	switch origin := symbolizer.OriginOf(f); {
	case f.Function != nil && f.Function.SystemName != "":
		return f.Function.SystemName
	case s == nil, origin == symbolizer.NoOrigin:
		return f.Name()
	case origin == symbolizer.KernelOrigin:
		return s.kernel.Name(f)
	case origin == symbolizer.VDSOOrigin:
		return s.vdso.Name(f.Address)
	case f.File == nil:
		return s.names[p].Code[f.Address]
	}
	return s.names[p].Native[f.File.ID][f.Address]
}

// javaSignature is a method in a perf map of a JVM: "long java.util.HashMap.get(java.lang.Object)".
var javaSignature = regexp.MustCompile(`^[\w.$]+(?:\[\])* ([\w.$/]+\.(?:[\w$]+|<init>|<clinit>))\(.*\)$`)

// display is Display of the name that a frame has in a process.
func (s *symbolNames) display(p *record.Process, f profile.Frame) string {
	return Display(f, s.name(p, f))
}

// Display returns the name of a frame without what hides it where there is little room: return type and
// arguments, which perf maps of JVMs have. Tools shorten names of methods from their beginning.
func Display(f profile.Frame, name string) string {
	if f.Kind() == profile.AnonymousFrame {
		if method := javaSignature.FindStringSubmatch(name); method != nil {
			return method[1]
		}
	}
	return name
}

// compiled reports whether a frame in no file is code that a process has compiled. Otherwise its
// address is in no known memory.
func (s *symbolNames) compiled(p *record.Process, f profile.Frame) bool {
	if s == nil {
		return false
	}
	_, compiled := s.names[p].Code[f.Address]
	return compiled
}

// path returns the path of a frame's file in a process: that of profile.File is the one in the
// first process that mapped it.
func (s *symbolNames) path(p *record.Process, f profile.Frame) string {
	if s != nil {
		if path, known := s.names[p].Paths[f.File.ID]; known {
			return path
		}
	}
	return f.File.Path
}

// wanted are the frames to be named.
type wanted struct {
	processes map[*record.Process]symbolizer.Wanted
	kernel    []profile.Frame
	vdso      []uint64
	vdsoID    profile.FileID
}

func want(r *record.Recording) wanted {
	stacks := make(map[processStack]struct{})
	frames := make(map[*record.Process]map[profile.Frame]struct{})
	add := func(key *record.Key) {
		if _, known := stacks[processStack{key.Process, key.Stack}]; known {
			return
		}
		stacks[processStack{key.Process, key.Stack}] = struct{}{}
		if frames[key.Process] == nil {
			frames[key.Process] = make(map[profile.Frame]struct{})
		}
		for _, f := range r.Stacks[key.Stack] {
			frames[key.Process][f] = struct{}{}
		}
	}
	for key := range r.Samples {
		add(&key)
	}
	for key := range r.Waits {
		add(&key.Key)
	}
	w := wanted{processes: make(map[*record.Process]symbolizer.Wanted)}
	for process, set := range frames {
		of := symbolizer.Wanted{Files: make(map[symbolizer.File][]uint64)}
		for f := range set {
			switch symbolizer.OriginOf(f) {
			case symbolizer.KernelOrigin:
				w.kernel = append(w.kernel, f)
			case symbolizer.VDSOOrigin:
				w.vdso, w.vdsoID = append(w.vdso, f.Address), f.File.ID
			case symbolizer.ProcessOrigin:
				if f.File == nil {
					of.Code = append(of.Code, f.Address)
					continue
				}
				file := symbolizer.File{ID: f.File.ID, Path: f.File.Path}
				of.Files[file] = append(of.Files[file], f.Address)
			}
		}
		w.processes[process] = of
	}
	return w
}

// read reads the names of a recording's frames. A process whose files cannot be read before ctx
// ends has none. It is called once.
func (n *frameNamer) read(ctx context.Context, r *record.Recording) *symbolNames {
	w := want(r)
	names := &symbolNames{
		perfMaps: make(map[*record.Process]error),
		unread:   make(map[*record.Process]error),
		names:    make(map[*record.Process]symbolizer.Names),
	}
	ofProcess := make(map[*symbolizer.Process]*record.Process)
	requests := make(map[*symbolizer.Process]symbolizer.Wanted)
	for p, of := range w.processes {
		process, err := n.process(p)
		if err != nil {
			names.refused(p, of, err)
			continue
		}
		ofProcess[process], requests[process] = p, of
	}
	results := make(chan map[*symbolizer.Process]symbolizer.Result)
	go func() { results <- n.client.Read(ctx, requests) }()
	// What cannot be read has no names.
	names.kernel, _ = symbolizer.NewKernel(n.procRoot, n.sysFS).Read(ctx, w.kernel)
	names.vdso, _ = symbolizer.ReadVDSO(n.procRoot, w.vdsoID, w.vdso)
	late := make(map[*record.Process]struct{})
	for process, result := range <-results {
		p := ofProcess[process]
		switch {
		case errors.Is(result.Err, context.DeadlineExceeded):
			late[p] = struct{}{}
			continue
		case result.Err != nil:
			names.refused(p, requests[process], result.Err)
			continue
		}
		names.names[p] = result.Names
		if err := result.Names.Unread; err != nil {
			names.unread[p] = err
		}
		if len(requests[process].Code) > 0 {
			names.perfMaps[p] = result.Names.PerfMap
		}
	}
	for _, p := range r.Processes {
		if _, ok := late[p]; ok {
			names.late = append(names.late, p)
		}
	}
	return names
}

// refused records why nothing was read for a process.
func (s *symbolNames) refused(p *record.Process, of symbolizer.Wanted, err error) {
	switch {
	case errors.Is(err, procscan.ErrGone) && len(of.Code) > 0:
		s.perfMaps[p] = err
	case errors.Is(err, procscan.ErrGone): // before anything was learned
	default:
		s.unread[p] = err
	}
}
