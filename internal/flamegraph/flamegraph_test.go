package flamegraph

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

func write(tb testing.TB, p *Profile) string {
	tb.Helper()
	var page bytes.Buffer
	if err := Write(&page, p); err != nil {
		tb.Fatal(err)
	}
	return page.String()
}

// The tree has each frame once below its callers, and the samples of each group.
func TestData(t *testing.T) {
	d := newData(&Profile{Groups: []Group{{"a", "A"}, {"b", "B"}}, Stacks: []Stack{
		{0, []string{"main", "run", "work"}, 5},
		{1, []string{"main", "run"}, 2},
		{0, []string{"main", "run", "work"}, 1},
		{-1, []string{"main", "main"}, 3},
		{7, nil, 1}, // of no group, without a stack
	}})
	if got, want := fmt.Sprint(d.Names, d.Nodes), "[main run work] [[-1 0] [0 1] [1 2] [0 0]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(d.Samples), "[[1 3 6] [0 4 3] [2 2 2] [0 0 1]]"; got != want {
		t.Errorf("samples %s, want %s", got, want)
	}
	if d.Short != 0 || d.Others != 0 {
		t.Errorf("%+v", d)
	}
}

// However much there is, the page is small, and no sample is missing in it.
func TestSizeIsBounded(t *testing.T) {
	p := &Profile{Title: "large", Period: 50 * time.Millisecond}
	for group := range 600 {
		p.Groups = append(p.Groups, Group{Name: fmt.Sprintf("transaction %d", group)})
		for i := range 10 {
			var frames []string
			for depth := range 60 {
				frames = append(frames, fmt.Sprintf("com.example.generated.Class%d_%d.method%d", group*depth, i, depth))
			}
			p.Stacks = append(p.Stacks, Stack{group, append(frames, strings.Repeat("\xff", 10000)), uint64(i + 1)})
		}
	}
	if page := write(t, p); len(page) > 600<<10 {
		t.Errorf("%d bytes", len(page))
	}
	d := newData(p)
	sum := uint64(0)
	for _, s := range d.Samples {
		sum += s[2]
		if s[0] > uint64(len(d.Groups)) || s[1] > uint64(len(d.Nodes)) {
			t.Fatalf("sample %v of %d groups, %d nodes", s, len(d.Groups), len(d.Nodes))
		}
	}
	for i, n := range d.Nodes {
		if n[0] >= i || n[1] >= len(d.Names) {
			t.Fatalf("node %d is %v", i, n)
		}
	}
	if want := uint64(600 * 55); sum != want || d.Short == 0 || d.Short > want || d.Others != 600-maxGroups {
		t.Errorf("%d samples of %d, %d short, %d other groups", sum, want, d.Short, d.Others)
	}
}

// The page refers to nothing elsewhere, and no text ends the place that it is in.
func TestPageIsWhole(t *testing.T) {
	const evil = `</script><script>alert(1)</script><!--"'&` + "\u2028"
	page := write(t, &Profile{Title: evil, Notes: []string{evil}, Groups: []Group{{evil, evil}},
		Stacks: []Stack{{0, []string{evil}, 1}}})
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d scripts", n)
	}
	if found := regexp.MustCompile(`(?i)https?:|@import|url\(|\b(?:src|href)="[^d]`).FindString(page); found != "" {
		t.Errorf("the page refers to %s", found)
	}
}
