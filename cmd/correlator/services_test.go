package main

import (
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"correlator/internal/agent"
	"correlator/internal/export"
	"correlator/internal/testenv"
	"correlator/otlp"
	"correlator/otlp/receiver"
)

// The services end with the agent, also when it was not a signal that ended that, and the service manager
// hears of it.
func TestServicesEnd(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	notified := filepath.Join(dir, "notify")
	manager, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Bind(manager, &unix.SockaddrUnix{Name: notified})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(manager)
	t.Setenv("NOTIFY_SOCKET", notified)
	cfg := configuration{
		Config: agent.Config{ProcRoot: "/proc", FeedSocket: filepath.Join(dir, "feed"), SamplesDelay: time.Second,
			ScanInterval: time.Second, MaxProcesses: 1},
		AdminSocket: filepath.Join(dir, "admin"), MetricsAddress: "127.0.0.1:0",
	}
	s, err := openServices(&cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(cfg.Config, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	end := s.serve(t.Context(), a) // which has not ended when the agent has
	ended := make(chan struct{})
	go func() {
		end(t.Context())
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("the services do not end")
	}
}

// What was acknowledged before the agent could not be opened is passed on all the same.
func TestServicesClosed(t *testing.T) {
	t.Setenv("GOGC", "100") // or the rest of the tests would have less
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	dir := t.TempDir()
	address, listen := filepath.Join(dir, "otlp"), "unix:"+filepath.Join(dir, "listen")
	cfg := configuration{Export: export.DefaultConfig()}
	cfg.Export.Destinations = []otlp.Destination{otlp.NewDestination("unix:" + address)}
	cfg.Export.Receiver = receiver.Config{Listen: listen}
	cfg.Export.ShutdownTimeout = deadline
	s, err := openServices(&cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	client, err := otlp.Open(otlp.Options{Destinations: []otlp.Destination{otlp.NewDestination(listen)}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	client.Enqueue(otlp.NewBatch(otlp.Traces, encoded(t, spans("shop", 7)), 1, time.Now()))
	if err := client.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := openBackend(t, address) // nobody could have it before
	s.close(t.Context())
	if got := b.Spans(); len(got) != 1 {
		t.Errorf("%d spans arrived of one that was acknowledged", len(got))
	}
}
