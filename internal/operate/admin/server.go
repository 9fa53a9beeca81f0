// Package admin serves the status of a running agent, and the samples that it keeps, on a Unix socket to which
// only its own user, root, may connect. The clients are `status` and `explain`, or anything that speaks HTTP:
//
//	curl --unix-socket /run/correlator/admin.sock http://correlator/status
//	curl --unix-socket /run/correlator/admin.sock http://correlator/samples?id=4bf92f35
package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"

	"correlator/bpf"
	"correlator/internal/host/safedir"
	"correlator/internal/host/sockfile"
	"correlator/internal/out/agent"
	"correlator/internal/out/export"
	"correlator/internal/stacks/sampling"
)

// DefaultSocket is the default path of the socket.
const DefaultSocket = "/run/correlator/admin.sock"

const (
	// Clients are root and on this machine, but may be stopped at any moment. So may the agent: a
	// machine without CPU to spare must not cost an answer that the client still waits for.
	requestTimeout  = 2 * statusTimeout
	responseTimeout = 2 * statusTimeout

	// maxHeaderBytes is more than curl sends.
	maxHeaderBytes = 16 << 10

	// dirMode lets everybody see that there is a socket. Its own mode says who may connect.
	dirMode = 0o755
)

// Source reports the status of the agent. It must be safe for concurrent use.
type Source interface {
	Status() agent.Status
	Waits() *sampling.WaitsStatus // of Status, which also reads what workers take
}

// Export reports what is sent and received by OTLP; nil: nothing is. It must be safe for concurrent
// use.
type Export func() *export.Status

// Server serves an admin socket.
type Server struct{ listener *sockfile.Listener }

// Open binds the admin socket, and returns the errors of sockfile.Listen. It creates the directory if
// only that is missing. The caller must Close. Clients that connect before Serve wait.
func Open(path string) (*Server, error) {
	if err := safedir.Mkdir(filepath.Dir(path), dirMode); err != nil {
		return nil, fmt.Errorf("opening admin socket: %w", err)
	}
	l, err := sockfile.Listen(path, sockfile.DefaultMode, sockfile.OwnGroup)
	if err != nil {
		return nil, fmt.Errorf("opening admin socket: %w", err)
	}
	return &Server{l}, nil
}

// Serve serves until Close, and then returns nil; export and keeper may be nil. It must be called once.
func (s *Server) Serve(source Source, export Export, keeper Keeper) error {
	mux, times := http.NewServeMux(), newTimes(bpf.ReadInstant())
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		status := Status{Status: source.Status()}
		if export != nil {
			status.OTLP = export()
		}
		if keeper != nil {
			status.Slow = keeper.Slow()
		}
		times.correct(&status, bpf.ReadInstant())
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status) // an error means that the client is gone
	})
	mux.HandleFunc("GET "+samplesPath, func(w http.ResponseWriter, r *http.Request) {
		serveSamples(w, r, source, keeper)
	})
	server := http.Server{
		Handler:           mux,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      responseTimeout,
		IdleTimeout:       requestTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // the client gets the error
	}
	defer server.Close() // ends connections
	if err := server.Serve(s.listener); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serving admin socket: %w", err)
	}
	return nil
}

// Close ends Serve, and removes the socket. It may be called again.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
