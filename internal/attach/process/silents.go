package process

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"correlator/internal/host/sorting"
	"correlator/internal/worker"
	"correlator/internal/worker/access"
	"correlator/procscan"
)

const (
	// maxSilentLooks is how many JVMs a search looks at each time, and maxSilent how many with a silent
	// agent it keeps. A host has tens; a process that calls itself java can be anything.
	maxSilentLooks = 1024
	maxSilent      = 256
)

// SilentSearch finds the JVMs with a silent agent, again and again. When there are more than it looks
// at, or keeps, users have equal shares, and what others leave; those of a user take turns. It is used
// by one goroutine.
type SilentSearch struct {
	list  func(turn int, known []procscan.ProcessID) (jvms, unseen []procscan.ProcessID, err error)
	look  func(procscan.ProcessID) (view View, ok bool, err error)
	owner func(procscan.ProcessID) worker.User // without blocking

	maxLooks, max int

	turn   int                        // of the last look
	looked map[procscan.ProcessID]int // of those that are JVMs: the turn that looked at it last
	views  map[procscan.ProcessID]View
}

// SilentLook is what a search found.
type SilentLook struct {
	Views  []View // by pid
	Looks  int    // at a JVM each
	Missed int    // JVMs that were not looked at, or are not in Views: there were too many, or it failed
}

// NewSilentSearch returns a search that leaves out what the filter does.
func NewSilentSearch(scanner *procscan.Scanner, client *access.Client, procRoot string, filter Filter) *SilentSearch {
	return &SilentSearch{
		list: scanner.JVMs,
		look: func(id procscan.ProcessID) (View, bool, error) { return Silent(client, procRoot, id, filter) },
		owner: func(id procscan.ProcessID) worker.User {
			return ownerAt(procRoot, id)
		},
		maxLooks: maxSilentLooks, max: maxSilent,
	}
}

// ownerAt returns whose bounds a process counts against; empty: it has ended.
func ownerAt(procRoot string, id procscan.ProcessID) worker.User {
	return ownerBy(procscan.OpenProcess(procRoot, id))
}

// OwnerOf returns whose bounds the process with a pid counts against; empty: it has ended. It does not block.
func OwnerOf(procRoot string, pid int) worker.User { return ownerBy(procscan.OpenPID(procRoot, pid)) }

func ownerBy(handle *procscan.Handle, err error) worker.User {
	if err != nil {
		return ""
	}
	defer handle.Close()
	t := Target{handle: handle}
	_, owner := t.readOwner()
	return owner
}

// Look looks once. The first time, it looks at all processes, later as procscan.Scanner.JVMs. Those
// that it knows and cannot look at now stay as they were. An error means that it ended early; with
// that of ctx, nothing is returned but the count of looks.
func (s *SilentSearch) Look(ctx context.Context) (SilentLook, error) {
	turn := s.turn
	if s.turn == 0 {
		turn = -1
	}
	s.turn++
	jvms, unseen, err := s.list(turn, s.known())
	views := make(map[procscan.ProcessID]View)
	s.keep(views, unseen)
	due, later := s.choose(jvms)
	s.keep(views, later)
	result := SilentLook{Views: []View{}, Missed: len(later)}
	for _, id := range due {
		if err := ctx.Err(); err != nil {
			return SilentLook{Looks: result.Looks}, err
		}
		view, ok, err := s.look(id)
		result.Looks++
		switch {
		case err != nil && !errors.Is(err, procscan.ErrGone):
			result.Missed++
			s.keep(views, []procscan.ProcessID{id})
		case ok:
			views[id] = view
		}
	}
	result.Missed += s.replace(views)
	for _, id := range s.known() {
		result.Views = append(result.Views, s.views[id])
	}
	return result, err
}

// known returns those that were kept, by pid.
func (s *SilentSearch) known() []procscan.ProcessID { return byPID(s.views) }

func byPID(views map[procscan.ProcessID]View) []procscan.ProcessID {
	ids := make([]procscan.ProcessID, 0, len(views))
	for id := range views {
		ids = append(ids, id)
	}
	sorting.Sort(ids, func(a, b procscan.ProcessID) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.StartTime, b.StartTime))
	})
	return ids
}

// keep adds those of some that are known, as they are known.
func (s *SilentSearch) keep(views map[procscan.ProcessID]View, ids []procscan.ProcessID) {
	for _, id := range ids {
		if view, ok := s.views[id]; ok {
			views[id] = view
		}
	}
}

// choose divides JVMs into those to look at in this turn, and others. Those at which no turn has
// looked, or that have waited longest, come before others of their owner.
func (s *SilentSearch) choose(jvms []procscan.ProcessID) (due, later []procscan.ProcessID) {
	jvms = slices.Clone(jvms)
	sorting.Stable(jvms, func(a, b procscan.ProcessID) int { return cmp.Compare(s.looked[a], s.looked[b]) })
	due, later = fairly(jvms, s.maxLooks, s.owner)
	looked := make(map[procscan.ProcessID]int, len(jvms))
	for _, id := range due {
		looked[id] = s.turn
	}
	for _, id := range later {
		looked[id] = s.looked[id]
	}
	s.looked = looked
	return due, later
}

// replace has the search know some instead of what it knows, and returns how many there is no room
// for. Those that it knows come before others of their owner: they are told to be new once.
func (s *SilentSearch) replace(views map[procscan.ProcessID]View) (missed int) {
	ids := byPID(views)
	sorting.Stable(ids, func(a, b procscan.ProcessID) int {
		_, knownA := s.views[a]
		_, knownB := s.views[b]
		switch {
		case knownA == knownB:
			return 0
		case knownA:
			return -1
		}
		return 1
	})
	_, others := fairly(ids, s.max, s.owner)
	for _, id := range others {
		delete(views, id)
	}
	s.views = views
	return len(others)
}

// fairly chooses n of some processes: as many of each owner, the first ones, or what others leave.
func fairly(ids []procscan.ProcessID, n int, owner func(procscan.ProcessID) worker.User) (chosen,
	others []procscan.ProcessID) {
	if len(ids) <= n {
		return ids, nil
	}
	count := make(map[worker.User]int)
	rank := make(map[procscan.ProcessID]int, len(ids)) // among those of its owner
	for _, id := range ids {
		by := owner(id)
		rank[id] = count[by]
		count[by]++
	}
	ids = slices.Clone(ids)
	sorting.Stable(ids, func(a, b procscan.ProcessID) int { return cmp.Compare(rank[a], rank[b]) })
	return ids[:n], ids[n:]
}
