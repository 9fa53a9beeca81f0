package flamegraph

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func write(tb testing.TB, p *Profile) string {
	tb.Helper()
	var page bytes.Buffer
	assert.NilError(tb, Write(&page, p))
	return page.String()
}

// The scripts of pages are those of today.
func TestScripts(t *testing.T) {
	for file, got := range map[string][]byte{
		"flame.js": Script(), "timeline.js": TimelineScript(), "page.js": decompress(pageScript),
	} {
		assert.Check(t, string(got) == string(testenv.ReadFile(t, file)), "%s: run go generate", file)
	}
}

// The tree has each frame once below its callers, and the samples of each group.
func TestData(t *testing.T) {
	d := newData(&Profile{Groups: []Group{{"a", "A"}, {"b", "B"}}, Stacks: []Stack{
		{0, []string{"main", "run", "work"}, 5, 0},
		{1, []string{"main", "run"}, 2, 0},
		{0, []string{"main", "run", "work"}, 1, 0},
		{-1, []string{"main", "main"}, 3, 0},
		{7, nil, 1, 0}, // of no group, without a stack
	}})
	got, want := fmt.Sprint(d.Names, d.Nodes), "[main run work] [[-1 0] [0 1] [1 2] [0 0]]"
	assert.Check(t, got == want, "%s, want %s", got, want)
	got, want = fmt.Sprint(d.Samples, d.Self, d.Totals, d.Rest, d.All),
		"[[0 3 6] [1 2 2]] [0 2 6 3] [6 2] [0 0] 12"
	assert.Check(t, got == want, "samples %s, want %s", got, want)
	assert.Check(t, d.Short == 0 && d.Others == 0, "%+v", d)
}

// Waits are beside the samples, in µs: of a node, of a group, and of none.
func TestWaitData(t *testing.T) {
	d := newData(&Profile{Period: 10 * time.Millisecond, Groups: []Group{{"a", "A"}}, Stacks: []Stack{
		{0, []string{"main", "work"}, 5, 0}, {0, []string{"main", "lock"}, 0, 3 * time.Millisecond},
		{0, []string{"main", "lock"}, 0, 4 * time.Millisecond}, {-1, []string{"main"}, 0, time.Millisecond},
	}})
	got := fmt.Sprint(d.Names, d.Self, d.All, d.Totals, d.Outside)
	assert.Check(t, got == "[main work lock] [0 5 0] 5 [5] 0", "%+v", d)
	w := d.Waits
	got = fmt.Sprint(w.Self, w.All, w.Totals, w.Outside, w.Samples)
	assert.Check(t, got == "[1000 0 7000] 8000 [7000] 1000 [[0 3 7000]]", "%+v", w)
}

// However much there is, whatever the texts, the page is small, no sample is missing in it, and each group
// has all that are its own.
func TestSizeIsBounded(t *testing.T) {
	for _, c := range []struct {
		text           string // of which all texts are
		groups, stacks int
		rest           bool // not all stacks of a group have room
		waits          bool
	}{
		{"a", 20, 12_000, true, true},
		{"a", 20, 12_000, true, false}, {"a", 600, 2400, false, false}, {"<", 600, 2400, false, false},
		{"\xff", 600, 2400, false, false}, {"&\u2028", 600, 2400, false, false}, {"\x00", 600, 2400, false, false},
	} {
		p := &Profile{Title: strings.Repeat(c.text, 1000), Period: 50 * time.Millisecond}
		name, long := strings.Repeat(c.text, 30), strings.Repeat(c.text, 10000)
		for i := range 300 {
			p.Notes = append(p.Notes, strings.Repeat(c.text, i))
		}
		for group := range c.groups {
			p.Groups = append(p.Groups, Group{strings.Repeat(c.text, group), strings.Repeat(c.text, 3*group)})
		}
		for n := range c.stacks {
			group, i := n%c.groups, n
			if c.rest {
				i /= c.groups // each group has the same stacks
			}
			var frames []string
			for depth := range 20 {
				frames = append(frames, fmt.Sprintf("com.%s.Class%d.method%d", name, i%200, depth*depth*i%300))
			}
			if i%8 == 0 {
				frames = append(frames, long)
			}
			p.Stacks = append(p.Stacks, Stack{group, frames, uint64(1 + i%3), 0})
			if c.waits {
				p.Stacks = append(p.Stacks, Stack{group, append(frames[:5:5], fmt.Sprint("wait", n)), 0,
					1<<40 + time.Duration(i)})
			}
		}
		page := write(t, p)
		assert.Check(t, len(page) <= 500_000, "%q: %d bytes", c.text, len(page))
		d := checkSums(t, p)
		assert.Check(t, d.Short != 0 && (d.Others != 0 || c.groups == 20) && (d.Rest[0] != 0 || !c.rest),
			"%q in %d groups: %d are short, there are %d others, rest %d", c.text, c.groups, d.Short, d.Others, d.Rest[0])
	}
}

// checkSums returns what the page shows, once it has checked that it adds up.
func checkSums(t *testing.T, p *Profile) *data {
	t.Helper()
	d := newData(p)
	all, groups := uint64(0), make([]uint64, len(p.Groups))
	for _, s := range p.Stacks {
		all += s.Count
		groups[s.Group] += s.Count
	}
	self := uint64(0)
	for _, count := range d.Self {
		self += count
	}
	assert.Check(t, d.All == all && self <= all && d.Short <= all && d.Others+len(d.Groups) == len(p.Groups),
		"%d samples of %d, %d in nodes, %d short, %d groups and %d others", d.All, all, self, d.Short, len(d.Groups),
		d.Others)
	sums := slices.Clone(d.Rest)
	for _, s := range d.Samples {
		assert.Assert(t, s[0] < uint64(len(d.Groups)) && s[1] <= uint64(len(d.Nodes)),
			"sample %v of %d groups, %d nodes", s, len(d.Groups), len(d.Nodes))
		sums[s[0]] += s[2]
	}
	for i := range d.Groups {
		if sums[i] != groups[i] || d.Totals[i] != groups[i] {
			t.Fatalf("group %d has %d samples, and %d of %d are shown", i, d.Totals[i], sums[i], groups[i])
		}
	}
	if d.Waits != nil {
		sum := uint64(0)
		for i := range d.Waits.Rest {
			sum += d.Waits.Rest[i]
		}
		for _, s := range d.Waits.Samples {
			sum += s[2]
		}
		assert.Check(t, sum == d.Waits.All && d.Waits.Rest[0] > 0, "%d µs of %d are shown", sum, d.Waits.All)
	}
	for i, n := range d.Nodes {
		assert.Assert(t, n[0] < i && n[1] < len(d.Names), "node %d is %v", i, n)
	}
	return d
}

// The page refers to nothing elsewhere, and no text ends the place that it is in.
func TestPageIsWhole(t *testing.T) {
	const evil = `</script><script>alert(1)</script><!--"'&` + "\u2028"
	page := write(t, &Profile{Title: evil, Notes: []string{evil}, Groups: []Group{{evil, evil}},
		Stacks: []Stack{{0, []string{evil}, 1, 0}}})
	n := strings.Count(page, "<script")
	assert.Check(t, n == 2, "%d scripts", n)
	found := regexp.MustCompile(`(?i)https?:|@import|url\(|\b(?:src|href)="[^d]`).FindString(page)
	assert.Check(t, found == "", "the page refers to %s", found)
}

// Of what is compared those frames have room of which one side has most for each of its transactions.
func TestRoomOfDifference(t *testing.T) {
	nodes := make([]node, 4)
	counts := make(map[sampleKey]uint64)
	var keys []sampleKey
	for i := range nodes {
		nodes[i].place = i
		for group, by := range []uint64{1000, 10} {
			key := sampleKey{group, &nodes[i]}
			keys, counts[key] = append(keys, key), by*uint64(10-i)
		}
	}
	all := sums{Rest: make([]uint64, 2)}
	all.addSamples(keys, counts, 1<<20, []int{1000, 10})
	room := 0
	for _, sample := range all.Samples[:4] {
		room += size(sample)
	}
	some := sums{Rest: make([]uint64, 2)}
	some.addSamples(keys, counts, room, []int{1000, 10})
	want := [][3]uint64{{0, 1, 10000}, {1, 1, 100}, {0, 2, 9000}, {1, 2, 90}}
	assert.DeepEqual(t, some.Samples, want)
	assert.DeepEqual(t, some.Rest, []uint64{8000 + 7000, 80 + 70})
}
