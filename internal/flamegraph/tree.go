package flamegraph

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
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
		key := childKey{innermost, shorten(name)}
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

func shorten(name string) string {
	if len(name) > maxNameBytes {
		name = name[:maxNameBytes-len("…")] + "…"
	}
	return strings.ToValidUTF8(name, string(utf8.RuneError))
}

// newData makes what the page shows. What there is no room for are the frames that fewest samples have:
// these count for the caller then.
func newData(p *Profile) *data {
	d := &data{Notes: p.Notes, Period: int64(p.Period), Groups: p.Groups[:min(len(p.Groups), maxGroups)],
		Names: []string{}, Nodes: [][2]int{}, Samples: [][3]uint64{}, Others: max(len(p.Groups)-maxGroups, 0)}
	if d.Groups == nil {
		d.Groups = []Group{}
	}
	t := tree{children: make(map[childKey]*node)}
	innermost := make([]*node, len(p.Stacks))
	for i := range p.Stacks {
		innermost[i] = t.add(&p.Stacks[i])
	}
	d.addNodes(t.nodes)
	type sampleKey struct {
		group int
		node  *node
	}
	counts := make(map[sampleKey]uint64)
	var keys []sampleKey
	for i := range p.Stacks {
		n := innermost[i]
		if n != nil && n.place < 0 {
			d.Short += p.Stacks[i].Count
		}
		key := sampleKey{p.Stacks[i].Group, n.shown()}
		if key.group >= len(d.Groups) || key.group < 0 {
			key.group = -1
		}
		if _, known := counts[key]; !known {
			keys = append(keys, key)
		}
		counts[key] += p.Stacks[i].Count
	}
	// Those that there is no room for are in no group, so that all of them together are complete.
	slices.SortStableFunc(keys, func(a, b sampleKey) int { return cmp.Compare(counts[b], counts[a]) })
	rest := make(map[*node]uint64)
	for i, key := range keys {
		if i*sampleBytes > maxSampleBytes && key.group >= 0 {
			rest[key.node] += counts[key]
			continue
		}
		d.Samples = append(d.Samples, [3]uint64{uint64(key.group + 1), uint64(key.node.number() + 1), counts[key]})
	}
	for _, n := range t.nodes {
		if rest[n] > 0 {
			d.Samples = append(d.Samples, [3]uint64{0, uint64(n.number() + 1), rest[n]})
		}
	}
	return d
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
		bytes += nodeBytes
		if !known {
			bytes += len(n.name) + len(`"",`)
		}
		if bytes > maxTreeBytes {
			return
		}
		if !known {
			name = len(d.Names)
			names[n.name] = name
			d.Names = append(d.Names, n.name)
		}
		n.place = len(d.Nodes)
		d.Nodes = append(d.Nodes, [2]int{n.parent.number(), name})
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
