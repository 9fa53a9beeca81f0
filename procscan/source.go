package procscan

import (
	"errors"
	"strconv"
)

// Source is where the mappings of a process are read from, in both cases through a descriptor of
// /proc/PID/maps. The answers are equal, but for files below directories so deep that their path
// exceeds PATH_MAX: PROCMAP_QUERY does not name them, and so they are passed over.
type Source int

const (
	// SourceQuery is the ioctl PROCMAP_QUERY (Linux 6.11): the kernel passes over what is not
	// executable, and writes no text. A descriptor that does not answer it is read.
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

// mappingReader has what reading mappings takes. It is used by one goroutine at a time.
type mappingReader struct {
	query mapsQuery
	text  *mapsReader // made when it is needed
}

// read collects from a process's maps file, at its start, and closes nothing. A process that ended
// since has no mappings.
//
// What is tried is known to work in our own process. Whether it does here is asked again of every
// descriptor, since that costs less than a microsecond: a proc root may be more than one file
// system.
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
