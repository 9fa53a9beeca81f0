package flamegraph

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// CPU is the kind of events that are samples of threads that ran. Other kinds are those of waits.
const CPU = "CPU"

// Unseen is the kind of events that are when nothing was seen of any thread.
const Unseen = "unseen"

// Timeline is when threads did what.
type Timeline struct {
	Start, End time.Time
	Lanes      []Lane
	Brackets   []Bracket
	Notes      []string // shown below it
}

// Lane is a thread in a group.
type Lane struct {
	Group  int // -1: none that can be chosen
	Name   string
	Events []Event
	Rest   map[string]Total // by kind: what the sums have besides events, whose times are not known
}

// Total is how many samples or waits there are, and how long the waits were.
type Total struct {
	Count uint64
	Sum   time.Duration
}

// Event is samples that came together, or a wait. Times are since the Timeline's Start.
type Event struct {
	Kind        string
	First, Last time.Duration // of samples; from the begin to the end of a wait
	Count       uint64        // of samples
	Sum         time.Duration // of a wait: what it stands for, with shorter ones before it
	Frames      []string      // the outermost first
	Cause       string        // what it was for; empty: not known
	EndedBy     string        // likewise
	Waker       int           // the lane of the thread that ended it; -1: none
}

// Bracket is a span.
type Bracket struct {
	Group       int
	Name        string
	First, Last time.Duration
}

// What the page has of a timeline at most, beside its stacks, as it is written.
const (
	maxEventBytes   = 160 << 10
	maxLaneBytes    = 64 << 10
	maxBracketBytes = 16 << 10

	// What a lane, each of its sums, and a bracket take without names.
	laneText, sumText, bracketText = 20, 40, 60
)

// timelineData is a timeline in the page. Times are in µs since its start. Texts are named by their place in Texts, of
// which the first one is empty.
type timelineData struct {
	Start    float64  `json:"start"` // in ms since 1970, with those after the point
	End      int64    `json:"end"`
	Texts    []string `json:"texts"`
	Lanes    [][2]int `json:"lanes"`    // group, and name
	Sums     [][4]int `json:"sums"`     // lane, kind, number of samples or waits, time of waits
	Events   [][]int  `json:"events"`   // lane, kind, first, last, count or sum, node, cause, who ended it, its lane
	Brackets [][4]int `json:"brackets"` // group, name, first, last
	// Events, lanes and brackets that there is no room for. The sums of lanes have all their events, and the rest.
	Left      [3]int   `json:"left"`
	Notes     []string `json:"notes"`
	textPlace map[string]int
	textBytes int
}

// newTimeline makes what the page shows of a timeline, whose stacks have these nodes by lane and event. What there is
// no room for are the events that took least time.
func newTimeline(t *Timeline, nodes [][]*node, groups int, period time.Duration) *timelineData {
	d := &timelineData{Start: float64(t.Start.UnixMicro()) / 1000, End: micros(t.End.Sub(t.Start)), Texts: []string{""},
		Lanes: [][2]int{}, Sums: [][4]int{}, Events: [][]int{}, Brackets: [][4]int{}, Notes: []string{},
		textPlace: map[string]int{"": 0}}
	for _, note := range t.Notes[:min(len(t.Notes), 10)] {
		d.Notes = append(d.Notes, shorten(note, maxTextBytes))
	}
	group := func(of int) int {
		if of >= groups {
			return -1
		}
		return of
	}
	place := d.addLanes(t.Lanes, group)
	type eventID struct{ lane, event int }
	var order []eventID
	for i := range place {
		for j := range t.Lanes[i].Events {
			order = append(order, eventID{i, j})
		}
	}
	weight := func(id eventID) time.Duration {
		e := &t.Lanes[id.lane].Events[id.event]
		return max(e.Sum, e.Last-e.First, time.Duration(e.Count)*period)
	}
	slices.SortFunc(order, func(a, b eventID) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.lane, b.lane), cmp.Compare(a.event, b.event))
	})
	bytes := 0
	for i, id := range order {
		e := &t.Lanes[id.lane].Events[id.event]
		before := d.textBytes
		value, waker := micros(e.Sum), -1
		if e.Kind == CPU {
			value = int64(e.Count)
		}
		if of, known := place[e.Waker]; known {
			waker = of
		}
		made := []int{place[id.lane], d.text(e.Kind), int(micros(e.First)), int(micros(e.Last)), int(value),
			nodes[id.lane][id.event].shown().number(), d.text(e.Cause), d.text(e.EndedBy), waker}
		if bytes += size(made) + d.textBytes - before; bytes > maxEventBytes {
			d.Left[0] += len(order) - i
			break
		}
		d.Events = append(d.Events, made)
	}
	slices.SortFunc(d.Events, func(a, b []int) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[2], b[2]), slices.Compare(a, b))
	})
	d.addBrackets(t.Brackets, group)
	return d
}

// addLanes adds lanes that there is room for, those with most events first, and returns their places in the page.
func (d *timelineData) addLanes(lanes []Lane, group func(int) int) map[int]int {
	order := make([]int, len(lanes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(lanes[b].Events), len(lanes[a].Events)) })
	bytes := 0
	for i, of := range order {
		kinds := make(map[string]bool)
		for j := range lanes[of].Events {
			kinds[lanes[of].Events[j].Kind] = true
		}
		for kind := range lanes[of].Rest {
			kinds[kind] = true
		}
		if bytes += size(shorten(lanes[of].Name, maxTextBytes)) + laneText + len(kinds)*sumText; bytes > maxLaneBytes {
			d.Left[1] = len(order) - i
			order = order[:i]
			break
		}
	}
	slices.Sort(order)
	place := make(map[int]int)
	for _, of := range order {
		place[of] = len(d.Lanes)
		d.Lanes = append(d.Lanes, [2]int{group(lanes[of].Group), d.text(lanes[of].Name)})
		d.addSums(place[of], &lanes[of])
	}
	for i := range lanes {
		if _, known := place[i]; !known {
			d.Left[0] += len(lanes[i].Events)
		}
	}
	return place
}

// addSums adds up the events of a lane, and the rest, by their kind: of waits, how long they were.
func (d *timelineData) addSums(place int, lane *Lane) {
	sums := make(map[string]Total)
	var kinds []string
	add := func(kind string, count uint64, sum time.Duration) {
		of, known := sums[kind]
		if !known {
			kinds = append(kinds, kind)
		}
		sums[kind] = Total{of.Count + count, of.Sum + sum}
	}
	for i := range lane.Events {
		e := &lane.Events[i]
		add(e.Kind, e.Count, e.Last-e.First)
	}
	for _, kind := range slices.Sorted(maps.Keys(lane.Rest)) {
		add(kind, lane.Rest[kind].Count, lane.Rest[kind].Sum)
	}
	for _, kind := range kinds {
		d.Sums = append(d.Sums, [4]int{place, d.text(kind), int(sums[kind].Count), int(micros(sums[kind].Sum))})
	}
}

func (d *timelineData) addBrackets(brackets []Bracket, group func(int) int) {
	bytes := 0
	for i, b := range brackets {
		if bytes += size(shorten(b.Name, maxTextBytes)) + bracketText; bytes > maxBracketBytes {
			d.Left[2] = len(brackets) - i
			return
		}
		d.Brackets = append(d.Brackets,
			[4]int{group(b.Group), d.text(b.Name), int(micros(b.First)), int(micros(b.Last))})
	}
}

// text returns the place of a text.
func (d *timelineData) text(text string) int {
	text = shorten(text, maxTextBytes)
	place, known := d.textPlace[text]
	if !known {
		place = len(d.Texts)
		d.textPlace[text] = place
		d.textBytes += size(text)
		d.Texts = append(d.Texts, text)
	}
	return place
}

func micros(d time.Duration) int64 { return d.Microseconds() }
