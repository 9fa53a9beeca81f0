package flamegraph

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"correlator/internal/host/textcut"
)

// node is a frame below its callers.
type node struct {
	parent *node
	name   string
	count  uint64 // of it and what is in it
	wait   uint64 // µs, likewise
	time   uint64 // ns of both
	depth  int
	place  int // in data.Nodes; -1: it is left out
	order  int // in which it was made
}

type tree struct {
	period   uint64 // ns
	nodes    []*node
	children map[childKey]*node
}

type childKey struct {
	parent *node
	name   string
}

// add returns the node of a stack's innermost frame, nil if it has none.
func (t *tree) add(s *Stack) (innermost *node) {
	for depth, name := range s.Frames {
		key := childKey{innermost, shorten(name, maxNameBytes)}
		child := t.children[key]
		if child == nil {
			child = &node{parent: innermost, name: key.name, depth: depth, place: -1, order: len(t.nodes)}
			t.children[key] = child
			t.nodes = append(t.nodes, child)
		}
		child.count += s.Count
		child.wait += s.waitMicros()
		child.time += s.Count*t.period + uint64(max(s.Wait, 0))
		innermost = child
	}
	return innermost
}

func shorten(text string, most int) string {
	if len(text) > most {
		text = textcut.At(text, most-len("…")) + "…"
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}

// size returns how many bytes a part takes in the page: json.Marshal escapes <, > and &, too.
func size(part any) int {
	text, _ := json.Marshal(part) // texts and numbers
	return len(text) + len(",")
}

// newData makes what the page shows. What there is no room for are the frames that took least time: these count for
// the caller then. The samples of a group that there is no room for are its rest.
func newData(p *Profile) *data {
	d := &data{Notes: []string{}, Period: int64(p.Period), Groups: []Group{}, Names: []string{}, Nodes: [][2]int{},
		Difference: p.Difference}
	d.addTexts(p)
	t := tree{children: make(map[childKey]*node), period: uint64(max(p.Period, 1))}
	innermost := make([]*node, len(p.Stacks))
	room := maxSampleBytes
	for i := range p.Stacks {
		innermost[i] = t.add(&p.Stacks[i])
		if p.Stacks[i].Wait > 0 && d.Waits == nil {
			d.Waits = new(sums)
			room /= 2
		}
	}
	var events [][]*node
	if p.Timeline != nil {
		events = make([][]*node, len(p.Timeline.Lanes))
		for i, lane := range p.Timeline.Lanes {
			for j := range lane.Events {
				events[i] = append(events[i], t.add(&Stack{Frames: lane.Events[j].Frames}))
			}
		}
	}
	d.addNodes(t.nodes)
	if p.Timeline != nil {
		d.Timeline = newTimeline(p.Timeline, events, len(d.Groups), p.Period)
	}
	count := func(s *Stack) uint64 { return s.Count }
	d.sums = d.sum(p.Stacks, innermost, room, count)
	for i, n := range innermost {
		if n != nil && n.place < 0 {
			d.Short += p.Stacks[i].Count
		}
	}
	if d.Waits != nil {
		*d.Waits = d.sum(p.Stacks, innermost, room, (*Stack).waitMicros)
	}
	return d
}

func (s *Stack) waitMicros() uint64 { return uint64(max(s.Wait.Microseconds(), 0)) }

// sum adds up what stacks have.
func (d *data) sum(stacks []Stack, innermost []*node, room int, value func(*Stack) uint64) sums {
	v := sums{Totals: make([]uint64, len(d.Groups)), Rest: make([]uint64, len(d.Groups)),
		Self: make([]uint64, len(d.Nodes)), Samples: [][3]uint64{}}
	counts := make(map[sampleKey]uint64)
	var keys []sampleKey
	for i := range stacks {
		count := value(&stacks[i])
		if count == 0 {
			continue
		}
		v.All += count
		key := sampleKey{stacks[i].Group, innermost[i].shown()}
		if key.node != nil {
			v.Self[key.node.place] += count
		}
		if key.group < 0 {
			v.Outside += count
		}
		if key.group >= len(d.Groups) || key.group < 0 {
			continue
		}
		v.Totals[key.group] += count
		if _, known := counts[key]; !known {
			keys = append(keys, key)
		}
		counts[key] += count
	}
	v.addSamples(keys, counts, room, d.Difference)
	return v
}

type sampleKey struct {
	group int
	node  *node
}

// addSamples adds what groups have, those with most first. What two groups that are compared have of a frame, divided
// by as many, goes in together: else a frame would have that of one alone.
func (v *sums) addSamples(keys []sampleKey, counts map[sampleKey]uint64, room int, difference []int) {
	most := func(key sampleKey) (most float64) {
		for group, by := range difference {
			most = max(most, float64(counts[sampleKey{group, key.node}])/float64(by))
		}
		if difference == nil {
			most = float64(counts[key])
		}
		return most
	}
	slices.SortStableFunc(keys, func(a, b sampleKey) int {
		first := cmp.Compare(most(b), most(a))
		if difference != nil {
			first = cmp.Or(first, cmp.Compare(a.node.number(), b.node.number()))
		}
		return first
	})
	bytes := 0
	for _, key := range keys {
		sample := [3]uint64{uint64(key.group), uint64(key.node.number() + 1), counts[key]}
		if bytes += size(sample); bytes > room {
			v.Rest[key.group] += counts[key]
			continue
		}
		v.Samples = append(v.Samples, sample)
	}
}

// addTexts adds notes and groups that there is room for.
func (d *data) addTexts(p *Profile) {
	bytes := 0
	for _, note := range p.Notes {
		note = shorten(note, maxTextBytes)
		if bytes += size(note); bytes > maxNoteBytes {
			break
		}
		d.Notes = append(d.Notes, note)
	}
	bytes = 0
	for _, g := range p.Groups[:min(len(p.Groups), maxGroups)] {
		g = Group{shorten(g.Name, maxTextBytes), shorten(g.Detail, maxTextBytes)}
		if bytes += size(g); bytes > maxGroupBytes {
			break
		}
		d.Groups = append(d.Groups, g)
	}
	d.Others = len(p.Groups) - len(d.Groups)
}

// addNodes puts nodes into the page as long as there is room, those with most time first: callers have
// as much as what they call at least.
func (d *data) addNodes(nodes []*node) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.depth, b.depth), cmp.Compare(a.order, b.order))
	})
	names := make(map[string]int)
	bytes := 0
	for _, n := range nodes {
		name, known := names[n.name]
		if !known {
			name = len(d.Names)
			bytes += size(n.name)
		}
		made := [2]int{n.parent.number(), name}
		if bytes += size(made) + size(n.count); d.Waits != nil {
			bytes += size(n.wait)
		}
		if bytes > maxTreeBytes {
			return
		}
		if !known {
			names[n.name] = name
			d.Names = append(d.Names, n.name)
		}
		n.place = len(d.Nodes)
		d.Nodes = append(d.Nodes, made)
	}
}

// number returns the place of a node in the page, -1 for none.
func (n *node) number() int {
	if n == nil {
		return -1
	}
	return n.place
}

// shown returns the node, or the innermost caller that is in the page; nil: none is.
func (n *node) shown() *node {
	for n != nil && n.place < 0 {
		n = n.parent
	}
	return n
}
