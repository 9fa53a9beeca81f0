package procscan

import "bytes"

const (
	// maxLibraries is how many mappings of the library are kept of one process. One is usual, two
	// are those of an agent attached twice, a few more those of a mapping whose protection was
	// changed in places; the bound keeps a process cheap that maps thousands.
	maxLibraries = 16

	// maxExecutable bounds ExecutableMappings: the largest real processes (browsers, JVMs with
	// hundreds of native libraries) have about a thousand executable mappings of files.
	maxExecutable = 4096

	// maxExecutableMemory bounds ExecutableMemory: 2 MiB of mappings. The kernel allows a process
	// 65530 mappings (vm.max_map_count) and merges adjacent equal ones, so memory of which a
	// compiler protects every second page has half as many executable ones. Runtimes that map each
	// piece of their code separately (.NET, V8) have thousands.
	maxExecutableMemory = 32 << 10

	// maxPathBytes bounds the sum of the paths that are kept of one process, where adjacent
	// mappings share theirs: 256 bytes for each of maxExecutable, where 60 are usual.
	maxPathBytes = 1 << 20
)

// selection is which executable mappings are read.
type selection int

const (
	agentLibrary     selection = iota // those of the agent's library
	executableFiles                   // those of files
	executableMemory                  // all
)

// wants reports whether a mapping with this name is selected, if it is executable. The name may
// also be the whole line that maps has of it: a line ends with the name, and what comes before that
// has neither a slash nor a bracket.
func (s selection) wants(name []byte) bool {
	switch s {
	case agentLibrary:
		return MatchLibrary(name)
	case executableFiles:
		// What is not a file has no path, or a name in brackets that may hold a slash: [anon:a/b].
		i := bytes.IndexAny(name, "/[")
		return i >= 0 && name[i] == '/'
	}
	return true
}

// limit returns how many mappings are kept at most.
func (s selection) limit() int {
	switch s {
	case agentLibrary:
		return maxLibraries
	case executableFiles:
		return maxExecutable
	}
	return maxExecutableMemory
}

// mappingList collects the mappings of one process.
type mappingList struct {
	found     []Mapping
	limit     int
	pathBytes int
}

// add appends m with a copy of its path. It appends nothing and returns ErrTooMany when there are
// more mappings than the limit, or their paths take more than maxPathBytes.
func (l *mappingList) add(m Mapping, path []byte) error {
	if last := len(l.found) - 1; last >= 0 && l.found[last].Path == string(path) {
		m.Path = l.found[last].Path
	} else {
		m.Path = string(path)
		l.pathBytes += len(path)
	}
	if len(l.found) == l.limit || l.pathBytes > maxPathBytes {
		return ErrTooMany
	}
	l.found = append(l.found, m)
	return nil
}
