// Package recordings reads the recordings in dots/testdata/recordings for tests: what programs of
// the older implementations sent each other. Their format is described there.
package recordings

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
)

// Side is a side of a connection.
type Side byte

// The sides of a connection.
const (
	Client Side = 'C'
	Broker Side = 'S'
)

// Frame is what one side sent at once.
type Frame struct {
	Line int // in the file
	From Side
	Data []byte // a frame, or the text of a WebSocket message
}

// Recording is one connection.
type Recording struct {
	Name      string // of the file
	Format    frame.Format
	WebSocket bool     // messages of dots-json instead of frames
	Upgrade   []string // lines of HTTP before a WebSocket, "C> " or "S> " before each
	Frames    []Frame
	Closed    []Side // sides that closed, in this order
}

// All returns all recordings, in the order of their numbers.
func All(tb testing.TB) []Recording {
	tb.Helper()
	return match(tb, "[0-9][0-9]-*.*")
}

// Load returns the recording with a number of two digits.
func Load(tb testing.TB, number string) Recording {
	tb.Helper()
	found := match(tb, number+"-*.*")
	assert.Assert(tb, len(found) == 1, "%d recordings have the number %s", len(found), number)
	return found[0]
}

func match(tb testing.TB, pattern string) []Recording {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(directory(tb), pattern))
	assert.Assert(tb, err == nil && len(names) != 0, "no recordings %s: %v", pattern, err)
	all := make([]Recording, 0, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name) //nolint:gosec // a file of this repository
		assert.NilError(tb, err)
		r, err := parse(string(text))
		assert.NilError(tb, err, name)
		r.Name = filepath.Base(name)
		all = append(all, r)
	}
	return all
}

// directory finds the recordings, seen from the directory of the package that is tested.
func directory(tb testing.TB) string {
	tb.Helper()
	above := ""
	for range 6 {
		dir := filepath.Join(above, "testdata", "recordings")
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		above = filepath.Join("..", above)
	}
	tb.Fatal("no directory testdata/recordings above this package")
	return ""
}

// parse parses the text of a recording.
func parse(text string) (Recording, error) {
	var r Recording
	for i, line := range strings.Split(text, "\n") {
		switch {
		case line == "":
		case strings.HasPrefix(line, "#"):
			r.comment(line)
		case len(line) < 3 || line[1:3] != "> " || line[0] != byte(Client) && line[0] != byte(Broker):
			return r, fmt.Errorf("line %d is neither a frame nor a comment", i+1)
		case strings.HasPrefix(line[3:], "HTTP "):
			r.WebSocket = true
			r.Upgrade = append(r.Upgrade, line[:3]+line[8:])
		case r.WebSocket:
			r.Frames = append(r.Frames, Frame{Line: i + 1, From: Side(line[0]), Data: []byte(line[3:])})
		default:
			data, err := hex.DecodeString(line[3:])
			if err != nil {
				return r, fmt.Errorf("line %d: %w", i+1, err)
			}
			r.Frames = append(r.Frames, Frame{Line: i + 1, From: Side(line[0]), Data: data})
		}
	}
	return r, nil
}

// comment takes what comments say about the whole connection.
func (r *Recording) comment(line string) {
	switch {
	case strings.HasPrefix(line, "# participants:"):
		if strings.HasSuffix(line, "frame format v1") {
			r.Format = frame.V1
		}
	case strings.HasPrefix(line, "# client closed"):
		r.Closed = append(r.Closed, Client)
	case strings.HasPrefix(line, "# server closed"):
		r.Closed = append(r.Closed, Broker)
	}
}
