package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"correlator/internal/host/terminal"
	"correlator/internal/out/record"
	"correlator/profile"
)

// Format is the form of a profile.
type Format string

// The formats.
const (
	PProf  Format = "pprof"  // compressed, for go tool pprof
	Folded Format = "folded" // a line for each stack, for flamegraph.pl and the like
	HTML   Format = "html"   // a flame graph in one file
)

// Formats returns all formats.
func Formats() []Format { return []Format{PProf, Folded, HTML} }

// extensions are what files of a format are named by.
var extensions = map[Format]string{PProf: ".pb.gz", Folded: ".folded", HTML: ".html"}

// FormatOf returns the format of a file by its name, PProf if that says nothing.
func FormatOf(path string) Format {
	switch filepath.Ext(path) {
	case ".html", ".htm":
		return HTML
	case ".folded":
		return Folded
	}
	return PProf
}

// FileName returns the name of a file of a format, after the time.
func (f Format) FileName(at time.Time) string {
	return at.Format("correlator-20060102-150405") + extensions[f]
}

// Encode returns a recording in a format. Names are those that frames have; about is what the page of
// HTML says.
func Encode(f Format, r *record.Recording, about About) ([]byte, error) {
	return encode(f, r, nil, about)
}

func encode(f Format, r *record.Recording, names *symbolNames, about About) ([]byte, error) {
	var content bytes.Buffer
	var err error
	switch f {
	case Folded:
		err = writeFolded(&content, r, names)
	case HTML:
		err = writeHTML(&content, r, names, about)
	default:
		err = buildProfile(r, names).Write(&content)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding profile: %w", err)
	}
	return content.Bytes(), nil
}

// writeFolded writes a line for each stack of a service: frames from the outermost on, separated by
// semicolons, and how often it was seen. If there are waits, these are stacks, too, which end with waitText, and all
// numbers are microseconds.
func writeFolded(w io.Writer, r *record.Recording, names *symbolNames) error {
	counts := make(map[string]uint64)
	separator := strings.NewReplacer(";", ":")
	add := func(key *record.Key, count uint64, innermost ...string) {
		line := []string{serviceText(key.Process)}
		line = append(append(line, names.frameTexts(key.Process, r.Stacks[key.Stack])...), innermost...)
		for i := range line {
			line[i] = separator.Replace(line[i])
		}
		counts[strings.Join(line, ";")] += count
	}
	each := uint64(1)
	if r.Waits != nil {
		each = uint64(r.Period().Microseconds())
	}
	for key, samples := range r.Samples {
		add(&key, samples*each)
	}
	for key, of := range r.Waits {
		add(&key.Key, uint64(of.Sum.Microseconds()), waitText(&key, r.Stacks[key.Stack]))
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%s %d\n", line, min(counts[line], math.MaxInt64))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// waitText is the innermost frame of threads that waited: what for.
func waitText(key *record.WaitKey, frames []profile.Frame) string {
	wait := key.Wait()
	text := "[" + string(wait.Kind(key.Process.PID, frames))
	if cause := wait.Cause(); cause != "" {
		text += " " + terminal.Escape(cause)
	}
	return text + "]"
}
