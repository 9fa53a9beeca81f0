package procscan

import (
	"errors"
	"strconv"
)

// Source is how the mappings of a process are read, in both cases through a descriptor of
// /proc/PID/maps. The results are equal, except for files whose path exceeds PATH_MAX:
// PROCMAP_QUERY does not return their names, so they are skipped.
type Source int

const (
	// SourceQuery is the ioctl PROCMAP_QUERY (Linux 6.11): the kernel skips what is not executable,
	// and formats no text. Where the ioctl fails, the text is read.
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
}

// read collects mappings from a descriptor of a process's maps file, at its start, and does not
// close it. A process that has exited has no mappings.
//
// The ioctl is known to work for our own process. It is tried on every descriptor, since that costs
// less than a microsecond: a proc root may be more than one file system.
func (r *mappingReader) read(fd int, source Source, what selection, limit int) ([]Mapping, error) {
	if source == SourceQuery {
		found, err := r.query.collect(fd, what, limit)
		if err == nil || errors.Is(err, ErrTooMany) {
			return found, err
		}
	}
	if r.text == nil {
		r.text = newMapsReader(mapsBufferBytes)
	}
	r.text.reset(fdReader(fd))
	found, err := r.text.collect(what, limit)
	if errors.Is(err, ErrTooMany) {
		return found, err
	}
	return found, classify(err)
}
