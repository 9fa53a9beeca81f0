package unwind

import (
	"slices"

	"go.opentelemetry.io/ebpf-profiler/libpf"
)

// methodFrames are the frames of places in a compiled method.
type methodFrames struct {
	*server
	target *target
	word   libpf.EbpfFrame // of a place in it
	method *compiledMethod
}

func (d *methodFrames) root(places []int32) ([]Frame, error) {
	if len(places) == 0 {
		frames, err := d.describedFrames(d.target, d.word, codeOffset(d.word))
		return frames[max(0, len(frames)-1):], err
	}
	frames, err := d.describedFrames(d.target, d.word, places[0])
	if err != nil {
		return nil, err
	}
	common := len(frames)
	d.target.code.work += len(frames)
	for _, place := range places[1:] {
		others, err := d.describedFrames(d.target, d.word, place)
		d.target.code.work += len(others)
		if err != nil {
			return nil, err
		}
		common = min(common, commonRoot(frames, others))
	}
	return frames[len(frames)-max(1, common):], nil
}

// scopes returns the methods that a PcDesc is in, the root first; none if they are not known, or too many.
func (d *methodFrames) scopes(place int32) []scope {
	p, _ := d.method.pcDesc(place)
	scopes, err := d.target.code.scopesAt(d.method, p, maxInlined+1)
	d.target.code.work += len(scopes)
	if err != nil || len(scopes) > maxInlined {
		return nil
	}
	slices.Reverse(scopes)
	return scopes
}

// allScopes returns those of several PcDescs.
func (d *methodFrames) allScopes(places []int32) [][]scope {
	all := make([][]scope, len(places))
	for i, place := range places {
		all[i] = d.scopes(place)
	}
	return all
}

func (d *methodFrames) lasting(places []int32) int {
	common := commonScopes(d.allScopes(places))
	for i, s := range common {
		if d.target.code.byteCodeOf(s.method).repeats(s.bci) {
			return i + 1
		}
	}
	return len(common)
}

func (d *methodFrames) callsBetween(before, on []int32, frames int) int {
	if len(before) == 0 && len(on) == 0 {
		place := none
		if len(d.method.pcDescs) > 0 {
			place = d.method.pcDescs[0].offset
		}
		root := d.scopes(place)
		if len(root) > 0 && !d.target.code.byteCodeOf(root[0].method).callsIn(0, lastByteCode) {
			return 0
		}
		return 1
	}
	return callsBetween(d.allScopes(before), d.allScopes(on), frames, d.target.code.byteCodeOf)
}

// lastByteCode is beyond any.
const lastByteCode = 1 << 16

// callsBetween is that of pcFrames for scopes, the root first. It asks down to the method in which those before and the
// others differ.
func callsBetween(before, on [][]scope, frames int, codeOf func(libpf.Address) *byteCode) int {
	shown := on
	if len(on) == 0 || len(commonScopes(on)) < frames {
		shown = before
	}
	common := commonScopes(shown)
	for level := range min(frames, len(common)) {
		first := common[level]
		isThere := func(s []scope) bool { return len(s) > level && s[level].method == first.method }
		if slices.ContainsFunc(slices.Concat(before, on), func(s []scope) bool { return !isThere(s) }) {
			return max(1, level) // a call of the method above that has several targets
		}
		code := codeOf(first.method)
		from, latest, to, earliest := int32(lastByteCode), int32(0), int32(0), int32(lastByteCode)
		var except []int32 // calls in which the places are, if what they call is shown
		add := func(s scope, own bool) int32 {
			if !own && frames > level+1 {
				except = append(except, s.bci)
			}
			return s.bci
		}
		split := false
		for _, s := range before {
			own := len(s) == level+1
			start := add(s[level], own)
			if own {
				start++
			}
			from, latest = min(from, start), max(latest, start)
			split = split || own || s[level].bci != first.bci
		}
		for _, s := range on {
			own := len(s) == level+1
			end := add(s[level], own)
			if own {
				end--
			}
			to, earliest = max(to, end), min(earliest, end)
			split = split || own || s[level].bci != first.bci
		}
		if len(before) == 0 {
			from = 0
		}
		if len(on) == 0 {
			to = lastByteCode
		}
		around := earliest+1 < latest // a loop, here or further up
		for up := 0; around && len(code.back) == 0 && up < level; up++ {
			caller, at := codeOf(common[up].method), common[up].bci
			if caller.repeats(at) && caller.callsOthers(0, lastByteCode, []int32{at}) {
				return up + 1
			}
		}
		if around || len(before) == 0 && code.repeats(first.bci) {
			from, to = 0, lastByteCode
		}
		if code.callsOthers(from, to, except) {
			return level + 1
		}
		if split && len(before) > 0 && len(on) > 0 { // below, it leaves what was called, or enters it
			break
		}
	}
	return 0
}

// commonScopes returns the scopes that all have, from the root on, up to the first with different places.
func commonScopes(all [][]scope) []scope {
	if len(all) == 0 {
		return nil
	}
	n := len(all[0])
	for _, scopes := range all[1:] {
		for i := range n {
			if i >= len(scopes) || scopes[i].method != all[0][i].method {
				n = i
				break
			}
			if scopes[i].bci != all[0][i].bci {
				n = i + 1
				break
			}
		}
	}
	return all[0][:n]
}

func (d *methodFrames) inLoop(places []int32, loops int) (frames int, callsNone bool) {
	return inLoop(d.allScopes(places), loops, d.target.code.byteCodeOf)
}

// inLoop is that of pcFrames for scopes, the root first.
func inLoop(all [][]scope, loops int, codeOf func(libpf.Address) *byteCode) (frames int, callsNone bool) {
	for level, first := range all[0] {
		low, high := first.bci, first.bci
		for _, scopes := range all {
			if len(scopes) <= level || scopes[level].method != first.method {
				return 0, false
			}
			low, high = min(low, scopes[level].bci), max(high, scopes[level].bci)
		}
		code := codeOf(first.method)
		if !code.known {
			break
		}
		for _, loop := range code.loopsAround(low, high) {
			if loops -= loop.jumps; loops <= 0 {
				return level + 1, !code.callsIn(loop.begin, loop.end)
			}
		}
		if low != high {
			break
		}
	}
	return 0, false
}

func (d *methodFrames) areSame(places, others []int32) bool {
	all := d.allScopes(slices.Concat(places, others))
	return !slices.ContainsFunc(all, func(s []scope) bool { return !slices.Equal(s, all[0]) })
}

func (d *methodFrames) callsNone(place int32, frames int) bool {
	if place == none && len(d.method.pcDescs) > 0 {
		place = d.method.pcDescs[0].offset
	}
	scopes := d.scopes(place)
	return frames <= len(scopes) && !d.target.code.byteCodeOf(scopes[frames-1].method).callsIn(0, lastByteCode)
}
