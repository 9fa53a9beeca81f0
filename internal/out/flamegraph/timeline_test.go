package flamegraph

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// However many threads, blocks and spans there are, whatever their texts, their part of the page is small. The longest
// blocks are in it, the sums of lanes have all, and what is left out is counted.
func TestTimelineIsBounded(t *testing.T) {
	for _, text := range []string{"a", "\x00", "<"} {
		p := &Profile{Period: time.Millisecond, Groups: []Group{{"a", "A"}},
			Timeline: &Timeline{End: time.Time{}.Add(time.Hour)}}
		all, long := 0, strings.Repeat(text, 1000)
		for i := range 2000 {
			lane := Lane{Group: i, Name: fmt.Sprint(i, strings.Repeat(text, 20))}
			for j := range 10 {
				at, took := time.Duration(j)*time.Second, time.Duration(i*10+j)*time.Millisecond
				lane.Events = append(lane.Events, Event{"net", at, at + took, 1, took, []string{"main",
					fmt.Sprint(i)}, fmt.Sprint(i%7, long), "", i - 1})
				all++
			}
			lane.Rest = map[string]Total{"net": {Count: 5}, "lock": {Count: 2}}
			p.Timeline.Lanes = append(p.Timeline.Lanes, lane)
			p.Timeline.Brackets = append(p.Timeline.Brackets, Bracket{i, fmt.Sprint(i, long), 0, time.Second})
			p.Timeline.Notes = append(p.Timeline.Notes, long)
		}
		before := size(newData(&Profile{Period: p.Period, Groups: p.Groups}))
		d := newData(p)
		got := size(d) - before - size(d.Names) - size(d.Nodes)
		assert.Check(t, got < 300_000 && len(d.Timeline.Texts[1]) <= maxTextBytes, "%q: %d bytes", text, got)
		live, err := TimelineData(p)
		assert.Check(t, err == nil && len(live) < 700_000, "%q: %d bytes, %v", text, len(live), err)
		of := d.Timeline
		assert.Check(t, len(of.Events) > 1000 && len(of.Events)+of.Left[0] == all && len(of.Lanes)+of.Left[1] == 2000 &&
			len(of.Brackets)+of.Left[2] == 2000, "%d events, %d lanes, %d brackets, left %v", len(of.Events),
			len(of.Lanes), len(of.Brackets), of.Left)
		shortest := 1 << 40
		for _, e := range of.Events {
			assert.Assert(t, e[0] < len(of.Lanes) && e[8] < len(of.Lanes) && e[5] < len(d.Nodes), "%v", e)
			shortest = min(shortest, e[3]-e[2])
		}
		sum := 0
		for _, s := range of.Sums {
			sum += s[2]
		}
		assert.Check(t, sum == 17*len(of.Lanes) && (shortest > 0 || text != "a"), "%d events in sums, of %d lanes", sum,
			len(of.Lanes))
		assert.Check(t, of.Lanes[0][0] == 0 && of.Lanes[1][0] == -1, "groups of %v", of.Lanes[:2])
	}
}
