package keep

import (
	"slices"
	"time"

	"correlator/profile"
)

// maxDoublings is how often the pause doubles after which names that are not known are asked for again,
// with samples of the stack: from half a second to 64 seconds, and so on as long as there are samples.
// Names may come much later than the stack: a perf map is written when an agent is loaded into a JVM, and
// the namer looks for one each 30 seconds, or later after failures.
const maxDoublings = 7

// Named has the frames of the sample's stack named, now that the names that there are can be read.
func (s *Store) Named(sample *profile.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[sample.Resource.Owner]
	if o == nil || o.processes[sample.Resource] == nil {
		return // it is forgotten
	}
	st := o.processes[sample.Resource].stacks.get(sample.Stack.ID)
	if st != nil && !st.named && !st.queued {
		st.queued = true
		s.unnamed = append(s.unnamed, st)
	}
}

// name names the frames of the stacks for which Named was called, by a function that returns a frame of
// a process with its function, and may wait.
func (s *Store) name(now time.Time, name func(*profile.Resource, profile.Frame) profile.Frame) {
	s.mu.Lock()
	all := s.unnamed
	s.unnamed = nil
	s.mu.Unlock()
	for _, st := range all {
		s.mu.Lock()
		lacking := slices.DeleteFunc(slices.Clone(st.frames), func(f *frame) bool {
			return st.named || !f.mayBeNamed()
		})
		s.mu.Unlock()
		functions := make([]*profile.Function, len(lacking))
		for i, f := range lacking {
			functions[i] = name(st.process.resource, f.Frame).Function
		}
		s.mu.Lock()
		s.setNames(st, now, lacking, functions)
		s.mu.Unlock()
	}
}

// setNames gives frames of a stack their functions, those that are known.
func (s *Store) setNames(st *stack, now time.Time, frames []*frame, functions []*profile.Function) {
	if st.named { // or forgotten meanwhile
		return
	}
	st.queued = false
	st.tryAt = s.clock.Ns(now) + int64(tick<<min(st.tries, maxDoublings))
	st.tries = min(st.tries+1, maxDoublings)
	all := true
	for i, f := range frames {
		if functions[i] == nil {
			all = false
		} else if f.function == nil && f.stacks > 0 { // a stack has a frame twice if it is recursive
			f.function = functions[i]
			s.grow(st.process.owner, sizeOfFunction(f.function))
			if f.slow > 0 {
				s.growSlow(st.process.owner, sizeOfFunction(f.function))
			}
		}
	}
	st.named = all
}
