package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The port is open to everyone who can reach it, in a process that runs as root. These limits bound
// the resources that a client can occupy.
const (
	// maxConnections is several times the number of usual clients: two Prometheus servers, the
	// kubelet and a few people.
	maxConnections = 32

	// maxHeaderBytes is many times the size of a scraper's headers.
	maxHeaderBytes = 16 << 10

	// requestTimeout is the time to receive a request, also on a connection that had one before. A
	// scraper that comes every half a minute reconnects.
	requestTimeout = 5 * time.Second

	// maxScrapes is enough for two Prometheus servers that scrape at the same time, and a person.
	maxScrapes = 3

	// scrapeTimeout is the default timeout of Prometheus. A scrape takes milliseconds.
	scrapeTimeout = 10 * time.Second

	// writeTimeout closes connections to clients that do not read.
	writeTimeout = scrapeTimeout + 5*time.Second
)

// Server serves metrics and probes by HTTP.
type Server struct {
	listener net.Listener
}

// Open listens at an address, HOST:PORT or :PORT. The error is EADDRINUSE if the address is in use.
// The caller must call Serve or Close. Clients that connect before Serve wait.
func Open(address string) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Server{listener: listener}, nil
}

// Addr returns the address that the server listens at.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening. After Serve it does nothing.
func (s *Server) Close() error { return s.listener.Close() }

// Serve serves requests until ctx ends, and then returns nil. It drops the requests in progress, so
// that no client can delay the shutdown. It must be called once.
func (s *Server) Serve(ctx context.Context, gatherer prometheus.Gatherer, probes Probes) error {
	server := &http.Server{
		Handler:        newHandler(gatherer, probes),
		ReadTimeout:    requestTimeout, // also of headers and between requests
		WriteTimeout:   writeTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ConnState:      newConnLimiter(maxConnections).track,
		ErrorLog:       log.New(io.Discard, "", 0), // errors of clients
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving metrics: %w", err)
}

// index is the page for people who only know the port.
const index = `correlator

/metrics  for Prometheus
/healthz  200 while the correlator does what it has to do all the time; else restart it
/readyz   200 while all processes are served that can be
`

func newHandler(gatherer prometheus.Gatherer, probes Probes) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(&paced{gatherer: gatherer}, promhttp.HandlerOpts{
		DisableCompression:  true, // not worth the CPU time for 30 KB
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	}))
	mux.Handle("GET /healthz", newProbe(probes.Health))
	mux.Handle("GET /readyz", newProbe(probes.Ready))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, index) })
	return mux
}

// writeText writes a response. Errors of writing are those of the client.
func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}
