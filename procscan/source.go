package procscan

import "strconv"

// Source is how the mappings of a process are read, in both cases through a descriptor of
// /proc/PID/maps. The results are equal, except for files whose path exceeds PATH_MAX:
// PROCMAP_QUERY does not return their names, so they are skipped.
type Source int

const (
	// SourceQuery is the ioctl PROCMAP_QUERY (Linux 6.11): the kernel skips most of what is not asked
	// for, and formats no text. Where the ioctl fails, the text is read.
	SourceQuery Source = iota
	// SourceText is the text of the file.
	SourceText
)

// String is "procmap_query" or "maps".
func (s Source) String() string {
	switch s {
	case SourceQuery:
		return "procmap_query"
	case SourceText:
		return "maps"
	}
	return "Source(" + strconv.Itoa(int(s)) + ")"
}

// mappingReader holds the buffers for reading mappings. It is used by one goroutine at a time.
type mappingReader struct {
	query mapsQuery
	text  *mapsReader // made on first use
	lists [2]mappingList
	empty bool // what was read last has no memory: of a thread that has ended, or of the kernel
}

// read collects the selected mappings, at most limit of them, from a descriptor of a process's maps
// file, at its start, and does not close it. A process that has exited has no mappings. It ends early
// with ErrTooMany when there are more, or when their paths take more than maxPathBytes. The mappings
// that were found before an error are returned with it.
func (r *mappingReader) read(fd int, source Source, what selection, limit int) ([]Mapping, error) {
	lists := r.lists[:1]
	defer clear(lists)
	lists[0] = mappingList{what: what, limit: limit}
	if err := r.collect(fd, source, lists); err != nil {
		return lists[0].found, err
	}
	return lists[0].result()
}

// readAll is read for the agent's library and process contexts at a time.
func (r *mappingReader) readAll(fd int, source Source) (libraries, contexts []Mapping, truncated bool, err error) {
	lists := r.lists[:]
	defer clear(lists)
	for i, what := range [...]selection{agentLibrary, processContexts} {
		lists[i] = mappingList{what: what, limit: what.limit()}
	}
	err = r.collect(fd, source, lists)
	return lists[0].found, lists[1].found, lists[0].full || lists[1].full, err
}

// any reports whether there is a mapping of any of these selections, at most two, and reads no
// further than the first.
func (r *mappingReader) any(fd int, source Source, what ...selection) (bool, error) {
	lists := r.lists[:len(what)]
	defer clear(lists)
	for i := range lists {
		lists[i] = mappingList{what: what[i]}
	}
	err := r.collect(fd, source, lists)
	for i := range lists {
		if lists[i].full {
			return true, nil
		}
	}
	return false, err
}

// collect adds mappings to the lists.
//
// The ioctl is known to work for our own process. It is tried on every descriptor, since that costs
// less than a microsecond: a proc root may be more than one file system.
func (r *mappingReader) collect(fd int, source Source, lists []mappingList) error {
	r.query.gone = false
	if source == SourceQuery && r.queryAll(fd, lists) == nil {
		r.empty = r.query.gone
		return nil
	}
	for i := range lists {
		lists[i] = mappingList{what: lists[i].what, limit: lists[i].limit}
	}
	if r.text == nil {
		r.text = newMapsReader(mapsBufferBytes)
	}
	r.text.reset(fdReader(fd))
	err := r.text.collect(lists)
	r.empty = err == nil && !r.text.filled
	return classify(err)
}

// queryAll queries what is selected for one list after the other, until they are complete.
func (r *mappingReader) queryAll(fd int, lists []mappingList) error {
	for i := range lists {
		if err := r.query.collect(fd, &lists[i]); err != nil || complete(lists) {
			return err
		}
	}
	return nil
}
