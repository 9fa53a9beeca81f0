package procscan

import "bytes"

const (
	// maxContexts is how many mappings of a process context are kept of one process. There must not be
	// more than one (OTEP 4719); the others are for a process that has replaced its own and not yet
	// removed the one before.
	maxContexts = 4

	// maxLibraries is how many mappings of the library are kept of one process. One is usual, two
	// are those of an agent attached twice, a few more those of a mapping whose protection was
	// changed in places; the bound keeps a process cheap that maps thousands.
	maxLibraries = 16

	// maxExecutable bounds ExecutableMappings and ExecutableMemory: 2.5 MiB of mappings. Browsers, and JVMs
	// with hundreds of native libraries, have about a thousand executable ones of files; compilers that
	// write code to a memfd (.NET) thousands, below all libraries. The kernel allows a process
	// 65530 mappings (vm.max_map_count) and merges adjacent equal ones, so memory of which a
	// compiler protects every second page has half as many executable ones. Runtimes that map each
	// piece of their code separately (.NET, V8) have thousands.
	maxExecutable = 40 << 10

	// maxMade is how many of these may be of memory, or of files that were deleted: libraries, which the
	// kernel maps above the code that programs make, have the rest.
	maxMade = 32 << 10

	// maxPathBytes bounds the sum of the paths that are kept of one process, where adjacent
	// mappings share theirs: 256 bytes for each of 4096, where 60 bytes and 1000 files are many.
	maxPathBytes = 1 << 20
)

// selection is which mappings are read.
type selection int

const (
	agentLibrary     selection = iota // executable ones of the agent's library
	executableFiles                   // executable ones of files
	executableMemory                  // all executable ones
	processContexts                   // those of a process context, which can be written and not executed
	javaMachine                       // executable ones of a Java virtual machine
	fileMemory                        // those of files, whatever their permissions
)

// wants reports whether a mapping with this name is selected, if its permissions are. The name may
// also be the whole line that maps has of it: a line ends with the name, and what comes before that
// has neither a slash nor a bracket.
func (s selection) wants(name []byte) bool {
	switch s {
	case agentLibrary:
		return MatchLibrary(name)
	case executableFiles, fileMemory:
		// What is not a file has no path, or a name in brackets that may hold a slash: [anon:a/b].
		i := bytes.IndexAny(name, "/[")
		return i >= 0 && name[i] == '/'
	case javaMachine:
		name, _ = cutDeleted(name)
		return bytes.HasSuffix(name, []byte("/libjvm.so"))
	case processContexts:
		i := bytes.IndexAny(name, "/[")
		return i >= 0 && matchContext(name[i:])
	}
	return true
}

// wantsPermissions reports whether a mapping is selected that can be written, or executed, if its
// name is.
func (s selection) wantsPermissions(writable, executable bool) bool {
	if s == processContexts {
		return writable && !executable
	}
	return executable || s == fileMemory
}

// queryFlags returns the flags with which PROCMAP_QUERY skips most of what is not selected. There is no
// flag for memory that has a name and no file: a process context without a file is found among all
// writable mappings.
func (s selection) queryFlags() uint64 {
	switch s {
	case executableMemory:
		return queryCoveringOrNext | queryExecutable
	case processContexts:
		return queryCoveringOrNext | queryWritable
	case fileMemory:
		return queryCoveringOrNext | queryFileBacked
	}
	return queryCoveringOrNext | queryExecutable | queryFileBacked
}

// limit returns how many mappings are kept at most.
func (s selection) limit() int {
	switch s {
	case agentLibrary:
		return maxLibraries
	case processContexts:
		return maxContexts
	}
	return maxExecutable
}

// mappingList collects the selected mappings of one process.
type mappingList struct {
	what      selection
	found     []Mapping
	limit     int
	pathBytes int
	made      int  // of found, those of memory and deleted files
	cut       bool // there are more of these
	full      bool // there are more
}

// add appends m with a copy of its path. It appends nothing, and the list is full, when there are
// more mappings than the limit, or their paths take more than maxPathBytes.
func (l *mappingList) add(m Mapping, path []byte) {
	isMade := m.Deleted || m.Ino == 0
	if l.cut = l.cut || isMade && l.made == maxMade; l.cut && isMade {
		return
	}
	if last := len(l.found) - 1; last >= 0 && l.found[last].Path == string(path) {
		m.Path = l.found[last].Path
	} else {
		m.Path = string(path)
		l.pathBytes += len(path)
	}
	if len(l.found) == l.limit || l.pathBytes > maxPathBytes {
		l.full = true
		return
	}
	l.found = append(l.found, m)
	if isMade {
		l.made++
	}
}

// result returns what was found, with ErrTooMany when there is more.
func (l *mappingList) result() ([]Mapping, error) {
	if l.full || l.cut {
		return l.found, ErrTooMany
	}
	return l.found, nil
}

// complete reports whether nothing more is to be read for any of the lists: all are full, or one is
// that only asks whether there is a mapping (with limit 0).
func complete(lists []mappingList) bool {
	all := true
	for i := range lists {
		if lists[i].full && lists[i].limit == 0 {
			return true
		}
		all = all && lists[i].full
	}
	return all
}
