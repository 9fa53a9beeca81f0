package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"correlator/internal/host/connlimit"
	"correlator/internal/host/loopback"
	"correlator/internal/host/metric"
	"correlator/internal/host/share"
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

	// requestsPerSecond and requestBurst are the rate of requests of a peer, probes excepted: several
	// times what a person and two Prometheus servers ask for together.
	requestsPerSecond = 10
	requestBurst      = 20
	// maxRatedPeers bounds the table. Further peers share a rate.
	maxRatedPeers = 1024

	// refusalDelay delays the response to a request that exceeds the rate, so that a client in a loop
	// does not repeat it thousands of times a second. The connection counts as idle meanwhile.
	refusalDelay = time.Second

	// maxScrapes is more than one address can ask for at once. Each takes a few milliseconds, and
	// some 100 KB.
	maxScrapes = 32

	// scrapeTimeout is the default timeout of Prometheus. A scrape takes milliseconds.
	scrapeTimeout = 10 * time.Second

	// writeTimeout closes connections to clients that do not read. It begins with the response.
	writeTimeout = 3 * time.Second
)

// Server serves metrics and probes by HTTP. It is a prometheus.Collector of its own counters.
type Server struct {
	metric.Unchecked

	listener *connlimit.Listener
	conns    *connlimit.Table
	rates    *share.Rates[connlimit.Peer]

	tooFast atomic.Uint64 // requests refused because of the rate
	tooSlow atomic.Uint64 // connections closed because the request or the response took too long
	foreign atomic.Uint64 // requests for metrics of a page of another site
}

// Open listens at an address, HOST:PORT or :PORT. The error is EADDRINUSE if the address is in use.
// The caller must call Serve or Close. Clients that connect before Serve wait.
func Open(address string) (*Server, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // no connection lives long enough
		Control: func(_, _ string, raw syscall.RawConn) error {
			// The kernel keeps a connection for a second while its client sends nothing, so that it
			// is not accepted yet. It is served without this option, too.
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
	conns := connlimit.New(maxConnections)
	return &Server{listener: connlimit.NewListener(listener, conns), conns: conns,
		rates: share.NewRates[connlimit.Peer](requestsPerSecond, requestBurst, maxRatedPeers)}
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(metrics chan<- prometheus.Metric) {
	m, conns := metric.Sender{To: metrics, Prefix: "correlator_http_"}, s.conns.Counts()
	m.Gauge("connections", "Open connections to the metrics port.", conns.Open)
	m.Counter("accept_errors_total", "Errors of accepting connections to the metrics port; it is tried again.",
		s.listener.Failures().Count)
	for reason, n := range map[string]uint64{
		"made_room": conns.MadeRoom, "too_many": conns.Refused,
		"rate": s.tooFast.Load(), "slow": s.tooSlow.Load(), "foreign_host": s.foreign.Load(),
	} {
		m.Counter("refused_total", "Connections closed without the requested response.", n, "reason", reason)
	}
}

// Addr returns the address that the server listens at.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening. After Serve it does nothing.
func (s *Server) Close() error { return s.listener.Close() }

// Serve serves requests until ctx ends, and then returns nil. It drops the requests in progress, so
// that no client can delay the shutdown. It must be called once.
func (s *Server) Serve(ctx context.Context, gatherer prometheus.Gatherer, probes Probes) error {
	byPath := map[string]*probe{"/healthz": newProbe(probes.Health), "/readyz": newProbe(probes.Ready)}
	server := &http.Server{
		Handler:        s.limitRate(s.refuseForeign(newHandler(gatherer, byPath)), byPath),
		ReadTimeout:    requestTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // errors of clients
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	server.SetKeepAlivesEnabled(false) // one request per connection
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(&listener{s.listener, s})
	server.Close()
	s.conns.CloseAll()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving metrics: %w", err)
}

// limitRate refuses requests of an address that makes too many, except for probes.
func (s *Server) limitRate(next http.Handler, probes map[string]*probe) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(*conn)
		conn.received.Store(true)
		isProbe := r.Method == http.MethodGet && probes[r.URL.Path] != nil
		if isProbe || s.rates.Allow(conn.Peer(), 1, time.Now()) {
			conn.Begin() // until it is closed
			next.ServeHTTP(w, r)
			return
		}
		s.tooFast.Add(1)
		select {
		case <-time.After(refusalDelay):
		case <-conn.Done(): // replaced by another connection
		}
		writeText(w, http.StatusTooManyRequests, "too many requests from this address\n")
	})
}

// refuseForeign refuses requests for metrics of pages of other sites. One whose name was made to mean
// an address of this host could read them; on other addresses than loopback, by which names scrapers
// come is not known, but browsers say that a script asks.
func (s *Server) refuseForeign(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" && isForeign(r) {
			s.foreign.Add(1)
			writeText(w, http.StatusForbidden, "this server is localhost\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isForeign reports whether a request is one of a page of another site: of a script, or by loopback for
// a name that is none of this host. Scrapers may use any name; what browsers send, they do not.
func isForeign(r *http.Request) bool {
	header := r.Header.Get
	if header("Sec-Fetch-Site") != "" && header("Sec-Fetch-Mode") != "navigate" {
		return true
	}
	browser := header("Sec-Fetch-Site") != "" || header("Origin") != "" || header("Accept-Language") != "" ||
		strings.HasPrefix(header("User-Agent"), "Mozilla/")
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	own, _ := os.Hostname()
	return browser && name != "" && err != nil && !strings.EqualFold(name, own) && loopback.IsForeign(r)
}

type listener struct {
	*connlimit.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, server: l.server}, nil
}

type connKey struct{}

type conn struct {
	*connlimit.Conn
	server   *Server
	received atomic.Bool // the request was received
	slow     atomic.Bool // counted in Server.tooSlow
	writing  bool
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.received.Load() { // later, net/http itself interrupts reading by a deadline
		c.countSlow(err)
	}
	return n, err
}

// Write writes a part of the response. The whole response must be written within writeTimeout from
// its first part.
func (c *conn) Write(b []byte) (int, error) {
	if !c.writing {
		c.writing = true
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails if the connection was closed
	}
	n, err := c.Conn.Write(b)
	c.countSlow(err)
	return n, err
}

// countSlow counts the connection, once, if it is closed because of a timeout.
func (c *conn) countSlow(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.slow.Swap(true) {
		c.server.tooSlow.Add(1)
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
	for path, p := range probes {
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
