package demo

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// Files are a demo program and a library that any number of processes run from, each with a socket
// of its own. Starting another process copies and builds nothing, and may be done concurrently.
type Files struct {
	launcher         *launcher
	program, library string // as the processes see them
	sockets          atomic.Int64
}

// NewFiles builds what processes of this flavor need. All of them must end before the test does, as
// those that this test starts do.
func NewFiles(t testing.TB, flavor Flavor) *Files {
	t.Helper()
	return NewFilesAt(t, flavor, Placement{})
}

// NewFilesAt is NewFiles for processes that run there.
func NewFilesAt(t testing.TB, flavor Flavor, at Placement) *Files {
	t.Helper()
	return makeFiles(t, flavor, "", at)
}

func makeFiles(t testing.TB, flavor Flavor, library string, at Placement) *Files {
	t.Helper()
	flavor.need(t)
	f := flavor.description()
	built := Build(t, f.program, f.library)
	if library == "" {
		library = filepath.Join(built, f.library+".so")
	}
	l := newLauncher(t, at)
	files := &Files{
		launcher: l,
		program:  l.add(filepath.Join(built, f.program), programName, 0o755),
		library:  l.add(library, LibraryName(f.musl), 0o600),
	}
	if f.environment != "" {
		l.env = append(l.env, f.environment)
	}
	if f.preload {
		l.env = append(l.env, "LD_PRELOAD="+files.library)
	}
	return files
}

// addPublisher adds the library that publishes OpenTelemetry's contexts, and returns its path.
func (f *Files) addPublisher(t testing.TB, flavor Flavor) string {
	t.Helper()
	name := "otel-publisher-glibc"
	if flavor.description().musl {
		name = "otel-publisher-musl"
	}
	return f.launcher.add(filepath.Join(Build(t, name), name+".so"), "publisher.so", 0o644)
}

// newSocket returns a path that no process uses yet.
func (f *Files) newSocket() string {
	return filepath.Join(f.launcher.dir, fmt.Sprintf("agent.socket.%d", f.sockets.Add(1)))
}
