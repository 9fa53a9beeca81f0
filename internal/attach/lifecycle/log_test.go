package lifecycle

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// The processes of one user, which publish long names again and again, fill no log, and take nothing
// from what is logged of another user's.
func TestLogFlood(t *testing.T) {
	const burst, flooder, other = 8 << 10, 4711, 4712
	r := runPrepared(t, func(m *Manager) { m.logBudget = newLogBudget(burst, &m.counters.LogDropped) })
	flooders, attached, pids := make([]*demo.Process, 8), make([]int, 8), make(map[int64]bool)
	for i := range flooders {
		flooders[i] = demo.Start(t, demo.Options{Idle: 1, Manual: true,
			Placement: demo.Placement{UID: flooder, GID: flooder}})
		pids[int64(flooders[i].PID)] = true
	}
	names := [2]string{strings.Repeat("nämé", 1000), strings.Repeat("name", 1000)}
	testenv.Poll(t, deadline, "lines to be dropped", func() bool {
		for i, p := range flooders {
			// One that publishes before its last name was read is tried again at longer and longer intervals.
			if h := r.handler(p); h != nil && h.times() > attached[i] {
				attached[i] = h.times()
				p.Republish(p.Socket, names[attached[i]%2])
			}
		}
		return r.counters.LogDropped.Load() > 5
	})
	var told []observer.LoggedEntry
	testenv.Poll(t, deadline, "that to be logged", func() bool {
		told = r.logs.FilterMessage("log lines about processes were dropped: too many for their users").All()
		return len(told) > 0
	})
	if c := told[0].ContextMap(); c["lines"].(uint64) == 0 || c["users"] != int64(1) ||
		c["uid_with_most"] != uint32(flooder) || c["reason"] != "log_dropped_user_budget" {
		t.Errorf("logged %v", c)
	}

	p := demo.Start(t, demo.Options{Idle: 1, Manual: true, Placement: demo.Placement{UID: other, GID: other}})
	r.attached(p, 1)
	p.Kill()
	r.gone(p)
	var lines []string
	for _, entry := range r.logs.FilterField(zap.Int("pid", p.PID)).All() {
		lines = append(lines, entry.Message)
	}
	assert.Check(t, strings.Join(lines, ", ") == "attached, process gone",
		"logged of another user's process: %q", lines)

	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	written, first, last := 0, time.Time{}, time.Time{}
	logged := make(map[bool]int) // names with and without characters of two bytes
	for _, entry := range r.logs.All() {
		if pid, ok := entry.ContextMap()["pid"].(int64); !ok || !pids[pid] {
			continue
		}
		line, err := encoder.EncodeEntry(entry.Entry, entry.Context)
		assert.NilError(t, err)
		written += line.Len()
		if last = entry.Time; first.IsZero() {
			first = entry.Time
		}
		name, ok := entry.ContextMap()["service"].(string)
		if !ok || name == "demo" {
			continue
		}
		logged[strings.Contains(name, "ä")]++
		if utf8.RuneCountInString(name) > maxLogText+30 || !strings.Contains(name, "…[3744 characters cut]…") {
			t.Errorf("a name of 4000 characters is logged as %q", name)
		}
	}
	assert.Check(t, logged[true] != 0 && logged[false] != 0, "names that were logged: %v", logged)
	if most := burst + int(last.Sub(first).Seconds()+1)*logRate; written > most || written < burst/2 {
		t.Errorf("%d bytes of a user's processes were logged, of at most %d", written, most)
	}
}

// A user has a budget of its own, which comes back in time; lines that were dropped are reported once in a while.
func TestLogBudget(t *testing.T) {
	var dropped atomic.Uint64
	b := newLogBudget(100, &dropped)
	core, logs := observer.New(zapcore.DebugLevel)
	log, now := zap.New(core), time.Now()
	assert.Check(t, b.spend(1, 60, now) && !b.spend(1, 60, now) && b.spend(2, 60, now) && dropped.Load() == 1,
		"a second line of the same user is too much, and one of another is not")
	b.report(log, now)
	b.spend(1, 60, now)
	b.spend(1, 60, now)
	b.spend(2, 60, now)
	b.report(log, now.Add(logReportInterval-1))
	n := logs.Len()
	assert.Check(t, n == 1, "%d reports, want one", n)
	now = now.Add(logReportInterval)
	b.report(log, now)
	b.report(log, now.Add(logReportInterval))
	all := logs.All()
	if c := all[len(all)-1].ContextMap(); len(all) != 2 || c["lines"] != uint64(3) || c["users"] != int64(2) ||
		c["uid_with_most"] != uint32(1) {
		t.Errorf("%+v", all)
	}
	assert.Check(t, b.spend(1, 100, now), "the budget does not come back")
	for uid := range uint32(2 * maxLogUsers) {
		b.spend(10+uid, 101, now)
	}
	if n := len(b.dropped); n != maxLogUsers+1 || b.dropped[process.UnknownUser] != maxLogUsers {
		t.Errorf("%d users are reported, %d lines of others", n, b.dropped[process.UnknownUser])
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"12345678", "12345678"},
		{"größe…", "größe…"}, // 10 bytes
		{"123456789", "123456…[1 characters cut]…89"},
		{strings.Repeat("ö", 100), "öööööö…[92 characters cut]…öö"},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd…[1 characters cut]…\ufffd\ufffd"},
	} {
		got := cut(test.text, 8)
		assert.Check(t, got == test.want, "%q: %q, want %q", test.text, got, test.want)
	}
}
