package sockfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// Probe answers what Bind would, and makes nothing.
func TestProbe(t *testing.T) {
	eachNetwork(t, testProbe)
}

func testProbe(t *testing.T, network string) {
	dir := t.TempDir()
	path := filepath.Join(dir, "feed")
	assert.Check(t, Probe(network, path))
	entries, err := os.ReadDir(dir)
	assert.Check(t, err == nil && len(entries) == 0, "it left %v, %v", entries, err)

	s := mustBind(t, network, path)
	err = Probe(network, path)
	assert.Check(t, errors.Is(err, ErrInUse), "in use: %v", err)
	s.conn.Close() // as when an agent is killed: the file stays
	assert.Check(t, Probe(network, path), "stale")
	_, err = os.Lstat(path)
	assert.Check(t, err, "the stale socket")

	for name, want := range map[string]error{
		filepath.Join(dir, "missing", "feed"):        unix.ENOENT,
		filepath.Join(path, "feed"):                  unix.ENOTDIR,
		filepath.Join(dir, strings.Repeat("f", 108)): unix.ENAMETOOLONG,
	} {
		err := Probe(network, name)
		assert.Check(t, errors.Is(err, want), "%s: %v, want %v", name, err, want)
		_, err = bind(network, name)
		assert.Check(t, err != nil, "%s can be bound", name)
	}
	for _, name := range []string{"file", "locked"} {
		path := filepath.Join(dir, name)
		if name == "locked" {
			name += ".lock"
		}
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		err := Probe(network, path)
		assert.Check(t, errors.Is(err, ErrNotSocket), "%s: %v", name, err)
	}
}
