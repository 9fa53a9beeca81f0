// Package asynclog makes loggers for what peers cause, as often as they like, where nobody may wait
// for the log: a goroutine writes the lines, of each message only so many, and what is left out is
// counted.
package asynclog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// maxRepeated is how many lines of one message are written in an interval: 1.7 a second are 30 MB
	// a day at most, and whoever reads them sees what it is that repeats.
	maxRepeated = 100
	interval    = time.Minute

	// maxWaiting is how many lines wait while writing takes its time: half a megabyte.
	maxWaiting = 1024
)

// Logger is a logger whose methods return at once.
type Logger struct {
	*zap.Logger
	below     *zap.Logger
	lines     chan line
	repeated  atomic.Uint64 // lines beyond maxRepeated
	unwritten atomic.Uint64 // lines beyond maxWaiting
	stop      chan struct{}
	end       func() // closes stop
	done      chan struct{}
}

type line struct {
	core   zapcore.Core
	entry  zapcore.Entry
	fields []zapcore.Field
}

// New returns a Logger that writes by another one. The caller must Close it.
func New(below *zap.Logger) *Logger {
	l := &Logger{below: below, lines: make(chan line, maxWaiting),
		stop: make(chan struct{}), done: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.stop) })
	l.Logger = below.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(&waiting{core, l}, interval, maxRepeated, 0,
			zapcore.SamplerHook(func(_ zapcore.Entry, decision zapcore.SamplingDecision) {
				if decision&zapcore.LogDropped != 0 {
					l.repeated.Add(1)
				}
			}))
	}))
	go l.run()
	return l
}

// Close writes the lines that wait, until the context ends. What is logged afterwards is lost. Closing
// again does nothing but wait.
func (l *Logger) Close(ctx context.Context) {
	l.end()
	select {
	case <-l.done:
	case <-ctx.Done():
	}
}

func (l *Logger) run() {
	defer close(l.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case line := <-l.lines:
			line.write()
		case <-ticker.C:
			l.report()
		case <-l.stop:
			for range len(l.lines) {
				line := <-l.lines
				line.write()
			}
			l.report()
			return
		}
	}
}

// write writes a line. An error is not reported: it is the log that fails.
func (l *line) write() { _ = l.core.Write(l.entry, l.fields) }

// report logs how many lines were left out since the last report, if any.
func (l *Logger) report() {
	repeated, unwritten := l.repeated.Swap(0), l.unwritten.Swap(0)
	if repeated+unwritten > 0 {
		l.below.Warn("log lines were left out", zap.Uint64("repeated", repeated),
			zap.Uint64("not_written_in_time", unwritten))
	}
}

// waiting is a core that leaves writing to the goroutine.
type waiting struct {
	zapcore.Core
	l *Logger
}

// With implements [zapcore.Core].
func (w *waiting) With(fields []zapcore.Field) zapcore.Core {
	return &waiting{w.Core.With(fields), w.l}
}

// Check implements [zapcore.Core].
func (w *waiting) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if w.Enabled(entry.Level) {
		return checked.AddCore(entry, w)
	}
	return checked
}

// Write implements [zapcore.Core].
func (w *waiting) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	select {
	case w.l.lines <- line{w.Core, entry, slices.Clone(fields)}:
	default:
		w.l.unwritten.Add(1)
	}
	return nil
}
