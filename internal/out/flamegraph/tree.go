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
	depth  int
	place  int // in data.Nodes; -1: it is left out
	order  int // in which it was made
}

type tree struct {
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

// newData makes what the page shows. What there is no room for are the frames that fewest samples have:
// these count for the caller then. The samples of a group that there is no room for are its rest.
func newData(p *Profile) *data {
	d := &data{Notes: []string{}, Period: int64(p.Period), Groups: []Group{}, Names: []string{}, Nodes: [][2]int{},
		Samples: [][3]uint64{}}
	d.addTexts(p)
	d.Totals, d.Rest = make([]uint64, len(d.Groups)), make([]uint64, len(d.Groups))
	t := tree{children: make(map[childKey]*node)}
	innermost := make([]*node, len(p.Stacks))
	for i := range p.Stacks {
		innermost[i] = t.add(&p.Stacks[i])
	}
	d.addNodes(t.nodes)
	d.Self = make([]uint64, len(d.Nodes))
	counts := make(map[sampleKey]uint64)
	var keys []sampleKey
	for i := range p.Stacks {
		count, n := p.Stacks[i].Count, innermost[i]
		if n != nil && n.place < 0 {
			d.Short += count
		}
		d.All += count
		key := sampleKey{p.Stacks[i].Group, n.shown()}
		if key.node != nil {
			d.Self[key.node.place] += count
		}
		if key.group < 0 {
			d.Outside += count
		}
		if key.group >= len(d.Groups) || key.group < 0 {
			continue
		}
		d.Totals[key.group] += count
		if _, known := counts[key]; !known {
			keys = append(keys, key)
		}
		counts[key] += count
	}
	d.addSamples(keys, counts)
	return d
}

type sampleKey struct {
	group int
	node  *node
}

// addSamples adds what groups have, those with most samples first.
func (d *data) addSamples(keys []sampleKey, counts map[sampleKey]uint64) {
	slices.SortStableFunc(keys, func(a, b sampleKey) int { return cmp.Compare(counts[b], counts[a]) })
	bytes := 0
	for _, key := range keys {
		sample := [3]uint64{uint64(key.group), uint64(key.node.number() + 1), counts[key]}
		if bytes += size(sample); bytes > maxSampleBytes {
			d.Rest[key.group] += counts[key]
			continue
		}
		d.Samples = append(d.Samples, sample)
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

// addNodes puts nodes into the page as long as there is room, those with most samples first: callers have
// as many as what they call at least.
func (d *data) addNodes(nodes []*node) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.depth, b.depth), cmp.Compare(a.order, b.order))
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
		if bytes += size(made) + size(n.count); bytes > maxTreeBytes {
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
