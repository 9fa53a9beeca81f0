package lifecycle

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/internal/attach/process"
	"correlator/internal/host/share"
)

// This file keeps processes from flooding the log: what is logged of a process goes through a
// processLog, whoever logs it.

const (
	// maxLogText is how many characters of a text are logged, of names and paths. Errors quote them
	// and say more: two attempts to open a library, with their causes, take 300.
	maxLogText  = 256
	maxLogError = 2 * maxLogText

	// logBurst is how many bytes may be logged at once of all processes of a user: two lines for each
	// of as many processes as are served by default. logRate is how many come back per second: 88 MB
	// a day at most, and enough for three processes that start and end each second.
	logBurst = 2 << 20
	logRate  = 1 << 10

	// maxLogUsers is how many users are told apart: see [share.Rates].
	maxLogUsers = 1024

	// logReportInterval is the time between two lines about lines that were dropped.
	logReportInterval = time.Minute
)

// logBudget is how much may still be logged of processes, by the user that they run as.
type logBudget struct {
	counter *atomic.Uint64  // of lines that were dropped, of all users
	encoder zapcore.Encoder // measures lines
	bytes   *share.Rates[uint32]

	mu       sync.Mutex
	dropped  map[uint32]uint64 // lines by user, since the last report
	reported time.Time
}

// newLogBudget returns one by which so many bytes may be logged at once of the processes of a user. It counts the
// lines beyond that.
func newLogBudget(burst int, counter *atomic.Uint64) *logBudget {
	return &logBudget{
		counter: counter, encoder: zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()),
		bytes: share.NewRates[uint32](logRate, burst, maxLogUsers), dropped: make(map[uint32]uint64),
	}
}

// logger returns a logger that spends a user's budget.
func (b *logBudget) logger(log *zap.Logger, uid uint32) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return &processLog{Core: core, budget: b, uid: uid}
	}))
}

// spend reports whether a line may be logged, and counts it as dropped if not.
func (b *logBudget) spend(uid uint32, line int, now time.Time) bool {
	if b.bytes.Allow(uid, line, now) {
		return true
	}
	b.counter.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.dropped[uid]; !known && len(b.dropped) >= maxLogUsers {
		uid = process.UnknownUser
	}
	b.dropped[uid]++
	return false
}

// report logs that lines were dropped, at most once in logReportInterval.
func (b *logBudget) report(log *zap.Logger, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.dropped) == 0 || now.Sub(b.reported) < logReportInterval {
		return
	}
	var lines, most uint64
	var worst uint32
	for uid, dropped := range b.dropped {
		lines += dropped
		if dropped > most {
			worst, most = uid, dropped
		}
	}
	log.Warn("log lines about processes were dropped: too many for their users", reason("log_dropped_user_budget"),
		zap.Uint64("lines", lines), zap.Int("users", len(b.dropped)), zap.Uint32("uid_with_most", worst))
	clear(b.dropped)
	b.reported = now
}

// processLog is the core of the loggers of processes. It replaces sampling, by which zap would drop
// lines about all processes alike, uncounted. What With adds is encoded with each line: an encoder, of
// which zap keeps one for each logger, takes 1 KB.
type processLog struct {
	zapcore.Core
	budget  *logBudget
	uid     uint32
	context []zapcore.Field
}

// With implements [zapcore.Core].
func (l *processLog) With(fields []zapcore.Field) zapcore.Core {
	return &processLog{Core: l.Core, budget: l.budget, uid: l.uid, context: slices.Concat(l.context, shorten(fields))}
}

// Check implements [zapcore.Core].
func (l *processLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

// Write implements [zapcore.Core].
func (l *processLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	fields = slices.Concat(l.context, shorten(fields))
	line, err := l.budget.encoder.EncodeEntry(entry, fields)
	if err != nil {
		return err
	}
	length := line.Len()
	line.Free()
	if !l.budget.spend(l.uid, length, time.Now()) {
		return nil
	}
	return l.Core.Write(entry, fields)
}

// shorten returns fields whose texts are cut.
func shorten(fields []zapcore.Field) []zapcore.Field {
	short := make([]zapcore.Field, len(fields))
	for i, f := range fields {
		switch f.Type {
		case zapcore.StringType:
			f.String = cut(f.String, maxLogText)
		case zapcore.ErrorType:
			f = zap.String(f.Key, cut(f.Interface.(error).Error(), maxLogError))
		case zapcore.StringerType:
			f = zap.String(f.Key, cut(f.Interface.(fmt.Stringer).String(), maxLogText))
		default: // numbers
		}
		short[i] = f
	}
	return short
}

// cut returns a text with at most so many of its characters: of a longer one the beginning and,
// since errors end with their cause, the end, with a mark in between.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	end := limit / 4
	return fmt.Sprintf("%s…[%d characters cut]…%s", string(runes[:limit-end]), len(runes)-limit,
		string(runes[len(runes)-end:]))
}
