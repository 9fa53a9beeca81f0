// Package flamegraph writes stacks as a flame graph: one HTML file that needs nothing else, for any
// browser, also offline.
//
//	samples ─▶ tree of frames, bounded ─▶ JSON in the page ─▶ flame.js draws, page.js chooses and searches
//	when they were ─▶ lanes of threads ──────────┘             timeline.js draws above
//
// Texts may be anything: in the page they are data, and are drawn or set as text.
package flamegraph

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// Compressed, the scripts take 15 kB of a binary instead of 47.
//
//go:generate gzip -9knf flame.js timeline.js page.js
var (
	//go:embed flame.js.gz
	script []byte
	//go:embed timeline.js.gz
	timelineScript []byte
	//go:embed page.js.gz
	pageScript []byte
)

// Script draws a flame graph on a canvas: the class Flame. The live view uses it, too.
func Script() []byte { return decompress(script) }

// TimelineScript draws a timeline on a canvas: the class Timeline. The live view uses it, too.
func TimelineScript() []byte { return decompress(timelineScript) }

func decompress(compressed []byte) []byte {
	text, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		panic(err)
	}
	content, err := io.ReadAll(text)
	if err != nil {
		panic(err)
	}
	return content
}

// Colors are the colors of the page, and of the live view.
//
//go:embed colors.css
var Colors []byte

// TimelineStyle is the style of what TimelineScript draws.
//
//go:embed timeline.css
var TimelineStyle []byte

var (
	//go:embed page.html
	page string
	//go:embed style.css
	pageStyle string
)

// Profile is what is drawn.
type Profile struct {
	Title  string
	Notes  []string      // shown below the title, one each
	Period time.Duration // the CPU time that a sample stands for
	Groups []Group       // to choose from, the most important first
	Stacks []Stack
	// Difference: there are two groups, which are compared, and by how many the times of each are divided; nil: they
	// are not.
	Difference []int

	Timeline *Timeline // shown above; nil: none
}

// Group is samples that belong together: those of a transaction.
type Group struct {
	Name   string // short, for a list
	Detail string // shown when it is chosen
}

// Stack is how often a stack was seen in a group, or for how long threads waited with it.
type Stack struct {
	Group  int      // -1: in none
	Frames []string // the outermost first
	Count  uint64
	Wait   time.Duration
}

// data is what the page's script reads.
type data struct {
	Notes  []string `json:"notes"`
	Period int64    `json:"period"` // ns
	Groups []Group  `json:"groups"`
	Names  []string `json:"names"`
	Nodes  [][2]int `json:"nodes"`  // frames: the node of the caller, -1 for none, and the name
	Short  uint64   `json:"short"`  // samples whose innermost frames are left out
	Others int      `json:"others"` // groups that cannot be chosen
	// Difference is that of Profile.
	Difference []int `json:"difference,omitempty"`
	sums             // samples
	Waits      *sums `json:"waits,omitempty"` // µs; nil: there are none

	Timeline *timelineData `json:"timeline,omitempty"` // nil: there is none
}

// sums are samples, or the time of waits.
type sums struct {
	All     uint64      `json:"all"`
	Outside uint64      `json:"outside"` // of no group
	Totals  []uint64    `json:"totals"`  // of each group
	Self    []uint64    `json:"self"`    // of each node, in no other one
	Samples [][3]uint64 `json:"samples"` // group, node + 1 (0: none), sum
	Rest    []uint64    `json:"rest"`    // of each group, what there was no room for in Samples
}

// The size of a page is bounded: some 500 kB in all, as it is written, and 250 kB for a timeline. All of a stack is
// in it but what few samples have.
const (
	maxTreeBytes   = 320 << 10
	maxSampleBytes = 96 << 10 // half of it, if there are waits, and half of it for these
	maxGroupBytes  = 32 << 10
	maxNoteBytes   = 8 << 10
	maxGroups      = 300
	maxNameBytes   = 2048 // of a function
	maxTextBytes   = 512  // of all else
)

// Write writes a profile as a page.
func Write(w io.Writer, p *Profile) error {
	content, err := json.Marshal(newData(p)) // escapes <, > and &
	if err != nil {
		return fmt.Errorf("encoding flame graph: %w", err)
	}
	script := string(Script()) + "\n" + string(TimelineScript()) + "\n" + string(decompress(pageScript))
	style := string(Colors) + pageStyle + string(TimelineStyle)
	title := html.EscapeString(shorten(p.Title, maxTextBytes))
	fill := strings.NewReplacer("{title}", title, "{data}", string(content), "{script}", script,
		"{style}", style, "{script-hash}", hash(script), "{style-hash}", hash(style))
	_, err = fill.WriteString(w, page)
	return err
}

// TimelineData returns what class Timeline reads of a profile, as JSON.
func TimelineData(p *Profile) ([]byte, error) {
	d := newData(p)
	content, err := json.Marshal(map[string]any{"period": d.Period, "names": d.Names, "nodes": d.Nodes,
		"timeline": d.Timeline})
	if err != nil {
		return nil, fmt.Errorf("encoding timeline: %w", err)
	}
	return content, nil
}

// hash returns what the page's policy names a script or a style by: no other runs in it.
func hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
