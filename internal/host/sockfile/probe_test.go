package sockfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Probe answers what Bind would, and makes nothing.
func TestProbe(t *testing.T) {
	eachNetwork(t, testProbe)
}

func testProbe(t *testing.T, network string) {
	dir := t.TempDir()
	path := filepath.Join(dir, "feed")
	if err := Probe(network, path); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it left %v, %v", entries, err)
	}

	s := mustBind(t, network, path)
	if err := Probe(network, path); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	s.conn.Close() // as when an agent is killed: the file stays
	if err := Probe(network, path); err != nil {
		t.Errorf("stale: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the stale socket: %v", err)
	}

	for name, want := range map[string]error{
		filepath.Join(dir, "missing", "feed"):        unix.ENOENT,
		filepath.Join(path, "feed"):                  unix.ENOTDIR,
		filepath.Join(dir, strings.Repeat("f", 108)): unix.ENAMETOOLONG,
	} {
		if err := Probe(network, name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if _, err := bind(network, name); err == nil {
			t.Errorf("%s can be bound", name)
		}
	}
	for _, name := range []string{"file", "locked"} {
		path := filepath.Join(dir, name)
		if name == "locked" {
			name += ".lock"
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Probe(network, path); !errors.Is(err, ErrNotSocket) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
