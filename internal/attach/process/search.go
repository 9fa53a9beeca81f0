package process

import (
	"errors"
	"fmt"
	"time"

	"correlator/elfsym"
	"correlator/internal/host/share"
	"correlator/internal/worker/access"
	"correlator/procscan"
	"correlator/tlsdesc"
)

// This file finds the file with the variable otel_thread_ctx_v1, which has no name of its own.

const (
	// A process that says that its threads publish, and maps no file with the variable, may load one
	// later. Its files are searched again at intervals that double between these.
	searchMin = 200 * time.Millisecond
	searchMax = 30 * time.Second

	// searchShare is how many times as long as a search the pause after it is at least.
	searchShare = 10

	// searchTime is when a search ends, and the next one goes on: what else is to be done with the
	// process waits. A file takes microseconds if it is known, a millisecond if it is not.
	searchTime = 250 * time.Millisecond

	// searchPatience is how many searches in a row may end so before pauses double nevertheless: whoever maps new
	// files all the time is never done. They have time for thousands of files.
	searchPatience = 32

	// searchBatch is how many files are asked for at once.
	searchBatch = 32
)

// errNoVariable: no file that the process maps has the variable. It is a tlsdesc.ErrUnresolved.
var errNoVariable = fmt.Errorf("no mapped file has otel_thread_ctx_v1: %w", tlsdesc.ErrUnresolved)

// variableSearch is how far the search for the variable has come.
type variableSearch struct {
	without map[imageLocation]struct{} // images without it, or that cannot be searched
	ended   time.Time                  // the last search
	pause   time.Duration              // after it; 0: there was none, or it has found the variable

	unfinished int   // searches in a row that left files which are not deleted
	failure    error // of the first image that could not be searched
}

// imageLocation is a file at an address of a process.
type imageLocation struct{ dev, ino, base uint64 }

func locationOf(m procscan.Mapping) imageLocation {
	return imageLocation{m.Dev, m.Ino, m.Start - m.Offset}
}

// resolveOTel finds where the threads have their records, if the process says that they publish any.
func (t *Target) resolveOTel() error {
	o := &t.otel
	if !o.ofThreads() {
		return nil
	}
	if o.variable.file == nil {
		if err := t.searchVariable(); err != nil {
			return err
		}
	}
	return o.variable.resolve(t)
}

// SearchPause returns how long to wait before the files of the process are searched for the variable
// again, or its threads for a goroutine; 0: no search was in vain.
func (t *Target) SearchPause() time.Duration {
	o := &t.otel
	if !o.ofThreads() || o.variable.file != nil || o.search.pause == 0 {
		return t.labelsPause()
	}
	return max(time.Until(o.search.ended.Add(o.search.pause)), searchMin)
}

// searchVariable searches the files that the process maps for the variable, those that were not
// searched yet.
func (t *Target) searchVariable() error {
	s := &t.otel.search
	if s.pause > 0 && time.Since(s.ended) < s.pause {
		return errNoVariable
	}
	began := time.Now()
	var mappings []procscan.Mapping // to be searched
	defer func() {
		s.end(time.Since(began), mappings)
		if t.otel.variable.file != nil {
			*s = variableSearch{without: s.without}
		}
	}()
	all, err := t.handle.ExecutableMappings()
	if err != nil && !errors.Is(err, procscan.ErrTooMany) {
		return err
	}
	mappings = s.unsearched(all)
	for until := time.Now().Add(searchTime); len(mappings) > 0 && time.Now().Before(until); {
		n := min(len(mappings), searchBatch)
		if t.searchIn(mappings[:n]) {
			return nil
		}
		mappings = mappings[n:]
	}
	if len(mappings) > 0 {
		return fmt.Errorf("%w, but %d are still to be searched", errNoVariable, len(mappings))
	}
	if s.failure != nil { // the file with the variable may be one that could not be searched
		return fmt.Errorf("%w; %w", errNoVariable, s.failure)
	}
	return errNoVariable
}

// unsearched returns those of the mappings that were not searched, one of each image. Deleted files are
// last: a program that makes code may have thousands of them.
func (s *variableSearch) unsearched(mappings []procscan.Mapping) (left []procscan.Mapping) {
	if s.without == nil {
		s.without = make(map[imageLocation]struct{})
	}
	seen := make(map[imageLocation]struct{})
	var deleted []procscan.Mapping
	for _, m := range mappings {
		_, known := s.without[locationOf(m)]
		_, again := seen[locationOf(m)] // another part of the image
		seen[locationOf(m)] = struct{}{}
		switch {
		case known || again:
		case m.Deleted:
			deleted = append(deleted, m)
		default:
			left = append(left, m)
		}
	}
	return append(left, deleted...)
}

// end sets the pause after a search that has left some mappings, the deleted files last: a longer one than before,
// unless that was for want of time.
func (s *variableSearch) end(took time.Duration, left []procscan.Mapping) {
	s.ended = time.Now()
	s.unfinished++
	if len(left) == 0 || left[0].Deleted {
		s.unfinished = 0
	}
	if s.unfinished == 0 || s.unfinished > searchPatience {
		s.pause = share.Backoff{Min: searchMin, Max: searchMax}.Next(s.pause)
	}
	s.pause = max(s.pause, searchMin, searchShare*took)
}

// searchIn searches the files of mappings, and reports whether it has found the variable.
func (t *Target) searchIn(mappings []procscan.Mapping) bool {
	s := &t.otel.search
	for i, result := range t.access.ThreadContexts(mappings) {
		m := mappings[i]
		if result.Err == nil {
			if bias, ok := result.Variable.Bias(m.Start, m.Offset); ok {
				t.otel.variable.set(result.Variable, bias)
				return true
			}
		}
		s.without[locationOf(m)] = struct{}{}
		if result.Err == nil || errors.Is(result.Err, elfsym.ErrNoSymbols) ||
			errors.Is(result.Err, procscan.ErrNotRegular) {
			continue
		}
		if s.failure == nil {
			s.failure = fmt.Errorf("searching %q: %w", m.Path, result.Err)
		}
		if access.TellsNothing(result.Err) { // it, or whatever else hangs; the others were not searched
			return false
		}
	}
	return false
}
