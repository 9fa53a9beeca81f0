package unwind

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// engineLog keeps what the engine logs as warnings and errors during a synchronization: it returns no
// errors, and what it refuses is native code then.
type engineLog struct {
	mu    sync.Mutex
	lines []string
}

// maxLogLines bounds what is kept of a synchronization.
const maxLogLines = 16

var _ slog.Handler = (*engineLog)(nil)

// Enabled reports whether a level is kept.
func (l *engineLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle keeps a line.
func (l *engineLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) < maxLogLines {
		l.lines = append(l.lines, r.Message[:min(len(r.Message), maxFailureBytes)])
	}
	return nil
}

// WithAttrs returns the handler: the engine's lines have no attributes.
func (l *engineLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns the handler.
func (l *engineLog) WithGroup(string) slog.Handler { return l }

// forget begins anew.
func (l *engineLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

// first returns the first line that was kept about a file, or else the first that names none, "" for neither.
func (l *engineLog) first(path string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ofNone := ""
	for _, line := range l.lines {
		if strings.Contains(line, path) {
			return line
		}
		if ofNone == "" && !strings.Contains(line, "/") {
			ofNone = line
		}
	}
	return ofNone
}
