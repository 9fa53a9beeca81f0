package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"correlator/internal/host/connlimit"
)

// The port is open to everyone who can reach it, in a process that runs as root. These limits bound
// the resources that a client can occupy.
const (
	// maxConnections is many times the number of usual clients: two Prometheus servers, the kubelet
	// and a few people. A new connection replaces the one that has sent nothing for the longest
	// time, so there are enough for a client to send its request before it is the oldest of those
	// that somebody opens in a loop: ten thousand a second, about. Each takes some 8 KB.
	maxConnections = 1024

	// maxHeaderBytes is many times the size of a scraper's headers.
	maxHeaderBytes = 16 << 10

	// requestTimeout is the time to receive a request.
	requestTimeout = 5 * time.Second

	// maxScrapes is more than one address can ask for at once. Each takes a few milliseconds, and
	// some 100 KB.
	maxScrapes = 32

	// scrapeTimeout is the default timeout of Prometheus. A scrape takes milliseconds.
	scrapeTimeout = 10 * time.Second

	// writeTimeout closes connections to clients that do not read. It begins with the response.
	writeTimeout = 3 * time.Second

	// Delays after an error of accept, such as a lack of descriptors or memory, which may pass at
	// any time.
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
)

// Server serves metrics and probes by HTTP. It is a prometheus.Collector of its own counters.
type Server struct {
	listener net.Listener
	front    *front
}

// Open listens at an address, HOST:PORT or :PORT. The error is EADDRINUSE if the address is in use.
// The caller must call Serve or Close. Clients that connect before Serve wait.
func Open(address string) (*Server, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // no connection lives long enough
		Control: func(_, _ string, raw syscall.RawConn) error {
			// The kernel keeps a connection for a second while its client sends nothing, so that it
			// takes no place. It is served without this option, too.
			return raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1)
			})
		},
	}
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return newServer(listener), nil
}

func newServer(listener net.Listener) *Server {
	return &Server{listener: listener, front: &front{conns: connlimit.New(maxConnections)}}
}

var (
	descConnections = prometheus.NewDesc("correlator_http_connections",
		"Connections of clients that ask for metrics and probes.", nil, nil)
	descClosed = prometheus.NewDesc("correlator_http_refused_total",
		"Connections that were closed without the response that was asked for, by reason.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Server) Describe(descs chan<- *prometheus.Desc) {
	descs <- descConnections
	descs <- descClosed
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(metrics chan<- prometheus.Metric) {
	conns := s.front.conns.Counts()
	metrics <- prometheus.MustNewConstMetric(descConnections, prometheus.GaugeValue, float64(conns.Open))
	for reason, n := range map[string]uint64{
		"made_room": conns.MadeRoom, "too_many": conns.Refused,
		"rate": s.front.tooFast.Load(), "slow": s.front.tooSlow.Load(),
	} {
		metrics <- prometheus.MustNewConstMetric(descClosed, prometheus.CounterValue, float64(n), reason)
	}
}

// Addr returns the address that the server listens at.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening. After Serve it does nothing.
func (s *Server) Close() error { return s.listener.Close() }

// Serve serves requests until ctx ends, and then returns nil. It drops the requests in progress, so
// that no client can delay the shutdown. It must be called once.
func (s *Server) Serve(ctx context.Context, gatherer prometheus.Gatherer, probes Probes) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := s.front
	f.probes = map[string]*probe{"/healthz": newProbe(probes.Health), "/readyz": newProbe(probes.Ready)}
	f.next = &handover{addr: s.listener.Addr(), conns: make(chan net.Conn), done: ctx.Done()}
	server := &http.Server{
		Handler:        newHandler(gatherer, f.probes),
		ReadTimeout:    requestTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // errors of clients
	}
	server.SetKeepAlivesEnabled(false) // a client that connects for each request holds nothing meanwhile
	go func() { _ = server.Serve(f.next) }()
	stop := context.AfterFunc(ctx, func() { s.listener.Close() }) // ends accept
	defer func() {
		stop()
		cancel() // ends f.next, for which server.Close waits
		s.listener.Close()
		server.Close()
		f.conns.CloseAll()
	}()
	return s.accept(ctx)
}

// accept accepts connections until ctx ends.
func (s *Server) accept(ctx context.Context) error {
	delay := minAcceptDelay
	for {
		raw, err := s.listener.Accept()
		switch {
		case err == nil:
			delay = minAcceptDelay
			if conn := s.front.conns.Add(raw); conn != nil {
				go s.front.serve(ctx, conn)
			}
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serving metrics: %w", err)
		default:
			select {
			case <-time.After(delay):
				delay = min(2*delay, maxAcceptDelay)
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// index is the page for people who only know the port.
const index = `correlator

/metrics  for Prometheus
/healthz  200 while the correlator does what it has to do all the time; else restart it
/readyz   200 while all processes are served that can be
`

func newHandler(gatherer prometheus.Gatherer, probes map[string]*probe) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(newPaced(gatherer), promhttp.HandlerOpts{
		DisableCompression:  true, // not worth the CPU time for 30 KB
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	}))
	for path, p := range probes { // requests that are not written in the usual way
		mux.Handle("GET "+path, p)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, index) })
	return mux
}

const textPlain = "text/plain; charset=utf-8"

// writeText writes a response. Errors of writing are those of the client.
func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", textPlain)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}
