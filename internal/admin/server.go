// Package admin is how a running agent is asked about itself: over a Unix socket that only its own user,
// root, may connect to. `status` does, and anything that speaks HTTP:
//
//	curl --unix-socket /run/correlator/admin.sock http://correlator/status
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"correlator/internal/agent"
	"correlator/internal/sockfile"
)

// DefaultSocket is where the agent is asked unless it is told otherwise.
const DefaultSocket = "/run/correlator/admin.sock"

const (
	// requestTimeout is for a request to be read, and for an answer to be taken: who connects is root and
	// on this machine, but may be stopped at any moment.
	requestTimeout = 5 * time.Second
	answerTimeout  = 10 * time.Second

	// maxHeaderBytes is more than curl sends.
	maxHeaderBytes = 16 << 10

	// dirMode lets everybody see that there is a socket; who may connect is for the socket to say.
	dirMode = 0o755
)

// Source is what the server tells of. It must be safe for concurrent use.
type Source interface {
	Status() agent.Status
}

// Export is what goes out and comes in by OTLP, as of now; nil is nothing. It must be safe for concurrent use.
type Export func() *OTLP

// Server answers on an admin socket.
type Server struct {
	file     *sockfile.File
	listener net.Listener
}

// Open binds the admin socket, as sockfile.Bind does, which the errors come from. Its directory is made
// if that is all that is missing. The caller must Close; who connects before Serve waits.
func Open(path string) (*Server, error) {
	if err := os.Mkdir(filepath.Dir(path), dirMode); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("opening admin socket: %w", err)
	}
	s := &Server{}
	var err error
	s.file, err = sockfile.Bind("unix", path, func(config net.ListenConfig, path string) (err error) {
		if s.listener, err = config.Listen(context.Background(), "unix", path); err == nil {
			s.listener.(*net.UnixListener).SetUnlinkOnClose(false) // the file may be another's by then
		}
		return err
	})
	if err != nil {
		if s.listener != nil {
			s.listener.Close()
		}
		return nil, fmt.Errorf("opening admin socket: %w", err)
	}
	return s, nil
}

// Serve answers until Close, and returns nil then; export may be nil. It is called once.
func (s *Server) Serve(source Source, export Export) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		status := Status{Status: source.Status()}
		if export != nil {
			status.OTLP = export()
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(status) // what cannot be written, nobody reads
	})
	server := http.Server{
		Handler:           mux,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       requestTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // what a client does wrong is told to the client
	}
	defer server.Close() // connections
	if err := server.Serve(s.listener); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serving admin socket: %w", err)
	}
	return nil
}

// Close ends Serve, and removes the socket. It may be called again.
func (s *Server) Close() error {
	s.file.Remove() // before the socket is closed
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
