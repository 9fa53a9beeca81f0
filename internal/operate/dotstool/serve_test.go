package dotstool

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"

	"correlator/dots/broker"
	"correlator/dots/client"
	"correlator/dots/schema"
	"correlator/internal/lab/testenv"
)

// A log that nobody reads holds up neither guests nor the end.
func TestServeStuckLog(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	defer read.Close() //nolint:errcheck // a test
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()),
		zapcore.AddSync(write), zapcore.DebugLevel))
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, &ServeOptions{Endpoints: []string{"uds://" + path}, MemoryMiB: 64, Log: log})
	}()
	const patience = 20 * time.Second
	testenv.Poll(t, patience, "the socket", func() bool {
		c, err := net.Dial("unix", path)
		return err == nil && c.Close() == nil
	})
	within, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for _, kind := range []schema.Kind{schema.Bool, schema.String, schema.UUID} { // first one, then conflicts
		c, err := client.Dial(within, "uds://"+path, client.Options{})
		assert.NilError(t, err)
		defer c.Close()
		s := schema.MustStruct("Room", schema.Flags{},
			schema.Property{Name: "id", Tag: 1, Type: schema.Builtin(kind)})
		assert.NilError(t, c.Describe(s))
		assert.NilError(t, c.Ping(within))
	}
	cancel()
	select {
	case err := <-ended:
		assert.Check(t, err)
	case <-within.Done():
		t.Error("serves still")
	}
}

// A guest that repeats a description is logged once.
func TestTypeConflict(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	var e broker.Events = &events{log: zap.New(core), conflicts: make(map[string]uint32)}
	for range 3 {
		e.TypeConflict(2, "Room")
		e.TypeConflict(2, "Ring")
	}
	e.TypeConflict(3, "Room")
	e.TypeConflict(3, "Room")
	var got []any
	for _, line := range logs.All() {
		got = append(got, line.ContextMap()["id"], line.ContextMap()["type"])
	}
	want := []any{uint32(2), "Room", uint32(2), "Ring", uint32(3), "Room"}
	assert.Assert(t, len(got) == len(want), got)
	for i := range got {
		assert.Check(t, got[i] == want[i], got)
	}
}
