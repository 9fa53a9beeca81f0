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

// The port is open to whoever reaches it, in a process that is root and has work to do: each of these bounds
// what a stranger can make it hold.
const (
	// maxConnections is several times what asks: two Prometheus servers, the kubelet, and people.
	maxConnections = 32

	// maxHeaderBytes is many times what a scraper sends.
	maxHeaderBytes = 16 << 10

	// requestTimeout is how long a request may take to come in, also after another: a scraper that comes
	// again half a minute later connects again.
	requestTimeout = 5 * time.Second

	// maxScrapes is two Prometheus servers that scrape at the same time, and somebody who looks.
	maxScrapes = 3

	// scrapeTimeout is how long Prometheus waits by default. A scrape takes milliseconds.
	scrapeTimeout = 10 * time.Second

	// writeTimeout ends connections to clients that do not read.
	writeTimeout = scrapeTimeout + 5*time.Second
)

// Server answers by HTTP.
type Server struct {
	listener net.Listener
}

// Open listens at an address, HOST:PORT or :PORT. That the address is in use is its error. The caller must
// Serve or Close; who connects before waits.
func Open(address string) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &Server{listener: listener}, nil
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops to listen. After Serve it does nothing.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers until ctx ends, and returns nil then, without answering what is under way: a scrape that is
// lost is of no use to anybody, and whoever asks must not hold up the end. It is called once.
func (s *Server) Serve(ctx context.Context, gatherer prometheus.Gatherer, probes Probes) error {
	server := &http.Server{
		Handler:        newHandler(gatherer, probes),
		ReadTimeout:    requestTimeout, // of headers and between requests, too
		WriteTimeout:   writeTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ConnState:      limit(maxConnections).track,
		ErrorLog:       log.New(io.Discard, "", 0), // what strangers do wrong
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

// index is what people see who only know the port.
const index = `correlator

/metrics  for Prometheus
/healthz  200 while the correlator does what it has to do all the time; else restart it
/readyz   200 while all processes are served that can be
`

func newHandler(gatherer prometheus.Gatherer, probes Probes) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(&paced{gatherer: gatherer}, promhttp.HandlerOpts{
		DisableCompression:  true, // 30 KB are not worth the CPU time, nor a client's surprise
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	}))
	mux.Handle("GET /healthz", newProbe(probes.Health))
	mux.Handle("GET /readyz", newProbe(probes.Ready))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, index) })
	return mux
}

// answer answers with a text. What a client does with it is its own business.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	io.WriteString(w, text)
}
