package live

import (
	"errors"
	"io"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"
)

// A log that nobody reads does not hold up guests, who are logged for those who debug.
func TestStuckLog(t *testing.T) {
	read, write := io.Pipe()
	level := zap.NewAtomicLevelAt(zapcore.ErrorLevel) // what Open itself logs would wait
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()),
		zapcore.AddSync(write), level))
	uri := newSocket(t)
	l, err := Open(Config{Listen: []string{uri}}, testAbout, nil, log)
	assert.NilError(t, err)
	t.Cleanup(func() {
		_ = read.Close()
		shutdown(t, l)
	})
	level.SetLevel(zapcore.DebugLevel)
	for range 3 {
		dial(t, uri, "")
	}
}

// An embedded broker that can accept nobody, which tries again and again, does not fill the log.
func TestAcceptFailedRepeats(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	l, err := Open(Config{Listen: []string{newSocket(t)}}, testAbout, nil, zap.New(core))
	assert.NilError(t, err)
	e := events{l.events, l}
	const failures = 300
	for range failures {
		e.AcceptFailed("uds:/x", errors.New("too many open files"))
	}
	shutdown(t, l)
	written, left := 0, uint64(0)
	for _, line := range logs.All() {
		if n, is := line.ContextMap()["repeated"].(uint64); is {
			left += n
		} else {
			written++
		}
	}
	assert.Check(t, written != 0 && left >= failures/2 && uint64(written)+left == failures,
		"%d lines, and %d left out", written, left)
}

// That changes are refused is logged once, and counted.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	l := &Live{log: zap.New(core)}
	for _, refused := range []int{0, 2, 3} {
		l.published(refused, nil)
	}
	if n := l.counters.refused.Load(); n != 5 || logs.Len() != 1 || logs.All()[0].Level != zapcore.WarnLevel {
		t.Errorf("%d refused, %v", n, logs.All())
	}
}
