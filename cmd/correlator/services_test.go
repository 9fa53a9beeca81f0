package main

import (
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"correlator/internal/agent"
	"correlator/internal/testenv"
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
	a, err := agent.New(cfg.Config, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	end := s.serve(t.Context(), a) // which has not ended when the agent has
	ended := make(chan struct{})
	go func() {
		end()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("the services do not end")
	}
}
