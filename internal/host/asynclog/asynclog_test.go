package asynclog

import (
	"fmt"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// stuck is a core that takes nothing until it is released, as a pipe that nobody reads.
type stuck struct {
	zapcore.Core
	writing  func() // called by each Write
	released chan struct{}
}

func (s *stuck) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked.AddCore(entry, s)
}

func (s *stuck) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	s.writing()
	<-s.released
	return s.Core.Write(entry, fields)
}

// Nobody waits for a log that takes nothing. Each line is written in the end, or counted.
func TestStuck(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	writing := make(chan struct{})
	below := &stuck{core, sync.OnceFunc(func() { close(writing) }), make(chan struct{})}
	l := New(zap.New(below))
	l.Info("first")
	<-writing
	const excess = 7
	for i := range maxWaiting + excess {
		l.Info(fmt.Sprint("line ", i), zap.Int("i", i))
	}
	l.Close(testenv.Ended())
	close(below.released)
	l.Close(t.Context())
	all := logs.All()
	assert.Assert(t, len(all) == 1+maxWaiting+1 && all[0].Message == "first", "%d lines", len(all))
	for i, line := range all[1 : 1+maxWaiting] {
		assert.Check(t, line.Message == fmt.Sprint("line ", i) && line.ContextMap()["i"] == int64(i),
			"line %d: %+v", i, line)
	}
	last := all[len(all)-1]
	c := last.ContextMap()
	assert.Check(t, c["not_written_in_time"] == uint64(excess) && c["repeated"] == uint64(0), "%s %v", last.Message, c)
}

// A message that repeats fills no log, and takes nothing from others.
func TestRepeated(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	l := New(zap.New(core))
	named := l.With(zap.String("name", "x"))
	for i := range 10 * maxRepeated {
		named.Warn("again", zap.Int("i", i))
	}
	l.Debug("of no interest")
	l.Info("other")
	l.Close(t.Context())
	again := logs.FilterMessage("again").All()
	if len(again) != maxRepeated || again[maxRepeated-1].ContextMap()["i"] != int64(maxRepeated-1) ||
		again[0].ContextMap()["name"] != "x" {
		t.Errorf("%d lines, the last one %v", len(again), again[len(again)-1])
	}
	if logs.FilterMessage("other").Len() != 1 || logs.Len() != maxRepeated+2 {
		t.Errorf("%d lines", logs.Len())
	}
	left := logs.FilterMessage("log lines were left out").All()
	assert.Check(t, len(left) == 1 && left[0].ContextMap()["repeated"] == uint64(9*maxRepeated), left)
}

// Where nothing was left out nothing is said.
func TestComplete(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	l := New(zap.New(core))
	l.Info("a")
	l.Close(t.Context())
	if logs.Len() != 1 {
		t.Errorf("%v", logs.All())
	}
}
