package recordings

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
)

// TestAll compares the number of frames of each recording with what the README says.
func TestAll(t *testing.T) {
	f, err := os.Open(filepath.Join(directory(t), "README.md"))
	assert.NilError(t, err)
	defer f.Close() //nolint:errcheck // only read
	row := regexp.MustCompile("^\\| `([^`]+)` \\| ([0-9]+) \\|")
	frames := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := row.FindStringSubmatch(lines.Text()); m != nil {
			frames[m[1]], _ = strconv.Atoi(m[2])
		}
	}
	all := All(t)
	assert.Assert(t, len(all) == 41 && len(frames) == 41, "%d recordings, %d described", len(all), len(frames))
	for _, r := range all {
		assert.Check(t, len(r.Frames) == frames[r.Name],
			"%s: %d frames, want %d", r.Name, len(r.Frames), frames[r.Name])
		assert.Check(t, len(r.Closed) != 0, "%s: nobody closed", r.Name)
		assert.Check(t, (r.Format == frame.V1) == (r.Name[:2] == "03") && r.WebSocket == (r.Name[:2] == "41"),
			"%s: format %v, WebSocket %v", r.Name, r.Format, r.WebSocket)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"X> 00\n", "C>00\n", "C> 0\n", "C> zz\n"} {
		r, err := parse(text)
		assert.Check(t, err != nil, "parse(%q) = %+v", text, r)
	}
}
