package lifecycle

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"correlator/internal/attach/process"
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

	// maxLogUsers bounds memory. Users in excess share a budget.
	maxLogUsers = 1024

	// logReportInterval is the time between two lines about lines that were dropped.
	logReportInterval = time.Minute
)

// logBudget is how much may still be logged of processes, by the user that they run as.
type logBudget struct {
	dropped *atomic.Uint64 // lines, of all users
	encoder zapcore.Encoder
	burst   int

	mu       sync.Mutex
	users    map[uint32]*userLog
	reported time.Time // when lines were last reported to be dropped
}

// userLog is the budget of a user.
type userLog struct {
	left    int       // bytes
	at      time.Time // of left
	dropped uint64    // lines, since the last report
}

func newLogBudget(dropped *atomic.Uint64) *logBudget {
	return &logBudget{
		dropped: dropped, encoder: zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), burst: logBurst,
		users: make(map[uint32]*userLog),
	}
}

// logger returns a logger that spends a user's budget.
func (b *logBudget) logger(log *zap.Logger, uid uint32) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return &processLog{Core: core, budget: b, uid: uid, encoder: b.encoder}
	}))
}

// spend reports whether a line may be logged, and counts it as dropped if not.
func (b *logBudget) spend(uid uint32, line int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.user(uid, now)
	b.refill(u, now)
	if u.left < line {
		u.dropped++
		b.dropped.Add(1)
		return false
	}
	u.left -= line
	return true
}

// user returns the budget of a user. Those who have all of theirs are forgotten when there are too
// many.
func (b *logBudget) user(uid uint32, now time.Time) *userLog {
	if len(b.users) >= maxLogUsers && b.users[uid] == nil {
		for other, u := range b.users {
			if b.refill(u, now); u.left == b.burst && u.dropped == 0 {
				delete(b.users, other)
			}
		}
		if len(b.users) >= maxLogUsers {
			uid = process.UnknownUser
		}
	}
	if b.users[uid] == nil {
		b.users[uid] = &userLog{left: b.burst, at: now}
	}
	return b.users[uid]
}

func (b *logBudget) refill(u *userLog, now time.Time) {
	if back := int64(now.Sub(u.at).Seconds() * logRate); back > 0 {
		u.left, u.at = int(min(int64(u.left)+back, int64(b.burst))), now
	}
}

// report logs that lines were dropped, at most once in logReportInterval.
func (b *logBudget) report(log *zap.Logger, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines, most uint64
	var users int
	var worst uint32
	for uid, u := range b.users {
		if u.dropped == 0 {
			continue
		}
		lines, users = lines+u.dropped, users+1
		if u.dropped > most {
			worst, most = uid, u.dropped
		}
	}
	if lines == 0 || now.Sub(b.reported) < logReportInterval {
		return
	}
	b.reported = now
	for _, u := range b.users {
		u.dropped = 0
	}
	log.Warn("log lines about processes were dropped: too many for their users", reason("log_dropped_user_budget"),
		zap.Uint64("lines", lines), zap.Int("users", users), zap.Uint32("uid_with_most", worst))
}

// processLog is the core of the loggers of processes. It replaces sampling, by which zap would drop
// lines about all processes alike, uncounted.
type processLog struct {
	zapcore.Core
	budget  *logBudget
	uid     uint32
	encoder zapcore.Encoder // with the fields of With: measures lines
}

// With implements [zapcore.Core].
func (l *processLog) With(fields []zapcore.Field) zapcore.Core {
	fields = shorten(fields)
	encoder := l.encoder.Clone()
	for i := range fields {
		fields[i].AddTo(encoder)
	}
	return &processLog{Core: l.Core.With(fields), budget: l.budget, uid: l.uid, encoder: encoder}
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
	fields = shorten(fields)
	line, err := l.encoder.EncodeEntry(entry, fields)
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
