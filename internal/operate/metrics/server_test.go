package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
)

// deadline limits waits for what takes milliseconds on an idle machine.
const deadline = 30 * time.Second

// serve serves until the test ends or end is called, and returns the address.
func serve(t *testing.T, gatherer prometheus.Gatherer, probes Probes) (address string, end func()) {
	t.Helper()
	_, address, end = serveOn(t, gatherer, probes)
	return address, end
}

// serveOn is serve, and returns the server, too.
func serveOn(
	t *testing.T, gatherer prometheus.Gatherer, probes Probes,
) (server *Server, address string, end func()) {
	t.Helper()
	server, err := Open("127.0.0.1:0")
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, gatherer, probes) }()
	stopped := false
	end = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			assert.Check(t, err, "server ended with %v", err)
		case <-time.After(deadline):
			t.Error("server does not end")
		}
	}
	t.Cleanup(end)
	return server, server.Addr().String(), end
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	assert.NilError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	assert.NilError(t, err)
	return response.StatusCode, string(text)
}

func TestPaths(t *testing.T) {
	source, notReady := &fakeAgent{}, errors.New("ends")
	source.counters.Messages.SamplesSent.Store(4000)
	source.ready.Store(&notReady)
	address, _ := serve(t, NewGatherer(testBuild, agent.NewCollector(source)), source)
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"/", 200, "/metrics"},
		{"/metrics", 200, "\ncorrelator_samples_sent_total 4000\n"},
		{"/healthz", 200, "ok\n"},
		{"/readyz", 503, "ends\n"},
		{"/debug/pprof/", 404, "not found"},
		{"/metrics/x", 404, "not found"},
	} {
		if status, body := get(t, "http://"+address+c.path); status != c.status || !strings.Contains(body, c.body) {
			t.Errorf("%s: %d %q, want %d and %q", c.path, status, body, c.status, c.body)
		}
	}
	response, err := http.Post("http://"+address+"/metrics", "text/plain", strings.NewReader("x"))
	assert.NilError(t, err)
	response.Body.Close()
	assert.Check(t, response.StatusCode == http.StatusMethodNotAllowed, "POST: %s", response.Status)
}

// The probes report the present state and its reason.
func TestProbes(t *testing.T) {
	source := &fakeAgent{}
	address, _ := serve(t, NewGatherer(testBuild), source)
	for path, set := range map[string]func(error){
		"/healthz": func(err error) { source.health.Store(&err) },
		"/readyz":  func(err error) { source.ready.Store(&err) },
	} {
		for _, err := range []error{nil, errors.New("fetching samples has not gone on for 41s"), nil} {
			set(err)
			wantStatus, want := 200, "ok\n"
			if err != nil {
				wantStatus, want = 503, err.Error()+"\n"
			}
			testenv.Poll(t, deadline, fmt.Sprintf("%s: %d %q", path, wantStatus, want), func() bool {
				status, body := get(t, "http://"+address+path) // may be the result of just before
				return status == wantStatus && body == want
			})
		}
	}
}

// A probe that hangs fails, and is not called again in the meantime.
func TestProbeThatHangs(t *testing.T) {
	hang, asked := make(chan struct{}), make(chan struct{}, 10)
	p := newProbe(func() error {
		asked <- struct{}{}
		<-hang
		return nil
	})
	p.timeout = 10 * time.Millisecond
	for range 5 {
		err := p.result()
		assert.Assert(t, errors.Is(err, errSlow), "%v, want errSlow", err)
	}
	assert.Check(t, len(asked) == 1, "asked %d times", len(asked))
	close(hang)
	p.timeout = deadline
	err := p.result()
	assert.Check(t, err, "%v when it does not hang any more", err)
}

type gathererFunc func() ([]*dto.MetricFamily, error)

func (f gathererFunc) Gather() ([]*dto.MetricFamily, error) { return f() }

// The number of scrapes that hang is limited, and probes still work.
func TestScrapesThatHang(t *testing.T) {
	hang, began := make(chan struct{}), make(chan struct{}, maxScrapes)
	gatherer := gathererFunc(func() ([]*dto.MetricFamily, error) {
		began <- struct{}{}
		<-hang
		return nil, nil
	})
	probes := map[string]*probe{"/healthz": newProbe(func() error { return nil })}
	server := httptest.NewServer(newHandler(gatherer, probes)) // without the limit for an address
	defer server.Close()
	statuses := make(chan int, maxScrapes+1)
	for range maxScrapes + 1 {
		go func() {
			response, err := http.Get(server.URL + "/metrics")
			if err != nil {
				t.Error(err)
				statuses <- 0
				return
			}
			response.Body.Close()
			statuses <- response.StatusCode
		}()
	}
	<-began
	status := <-statuses
	assert.Check(t, status == http.StatusServiceUnavailable, "one scrape more: %d", status)
	status, _ = get(t, server.URL+"/healthz")
	assert.Check(t, status == http.StatusOK, "healthz: %d", status)
	close(hang)
	for range maxScrapes {
		status := <-statuses
		assert.Check(t, status == http.StatusOK, "a scrape that hung: %d", status)
	}
}

// As many scrapes at once as an address may ask for refuse nobody's: those of other addresses have
// room beside them.
func TestScrapesAtOnce(t *testing.T) {
	assert.Check(t, requestBurst < maxScrapes, "one address can take all %d scrapes", maxScrapes)
	address, _ := serve(t, NewGatherer(testBuild, agent.NewCollector(&fakeAgent{})), &fakeAgent{})
	var clients sync.WaitGroup
	for range requestBurst {
		clients.Go(func() {
			response, err := http.Get("http://" + address + "/metrics")
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			assert.Check(t, response.StatusCode == http.StatusOK, response.Status)
		})
	}
	clients.Wait()
}

// The number of connections is limited, and a further one replaces the one that has been silent for
// the longest time.
func TestConnectionsAreLimited(t *testing.T) {
	server, address, _ := serveOn(t, NewGatherer(testBuild), &fakeAgent{})
	var conns []net.Conn
	for range maxConnections + 8 {
		conns = append(conns, dial(t, address))
		fmt.Fprint(conns[len(conns)-1], "GET") // otherwise, the kernel keeps it for a while
	}
	status, _ := get(t, "http://"+address+"/healthz")
	assert.Check(t, status == http.StatusOK, "one connection more: %d", status)
	for i, conn := range conns[:8] {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %v, want it closed", i, err)
		}
	}
	counts := refused(t, server)
	assert.Check(t, counts["made_room"] >= 8 && counts["too_many"] == 0, counts)
	fmt.Fprint(conns[len(conns)-1], " /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	if response, err := http.ReadResponse(bufio.NewReader(conns[len(conns)-1]), nil); err != nil {
		t.Errorf("the last connection: %v", err)
	} else {
		response.Body.Close()
	}
}

// dial opens a connection that fails when the deadline is over.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	assert.NilError(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(deadline))
	return conn
}

func TestHeadersAreLimited(t *testing.T) {
	address, _ := serve(t, NewGatherer(testBuild), &fakeAgent{})
	request, err := http.NewRequest("GET", "http://"+address+"/healthz", nil)
	assert.NilError(t, err)
	request.Header.Set("X-Long", strings.Repeat("x", maxHeaderBytes+8192)) // net/http adds some slop
	response, err := http.DefaultClient.Do(request)
	assert.NilError(t, err)
	response.Body.Close()
	assert.Check(t, response.StatusCode == http.StatusRequestHeaderFieldsTooLarge, response.Status)
}

// Serve ends in spite of open connections, and its port is free again.
func TestServeEnds(t *testing.T) {
	address, end := serve(t, NewGatherer(testBuild), &fakeAgent{})
	get(t, "http://"+address+"/healthz") // leaves an idle connection
	silent, err := net.Dial("tcp", address)
	assert.NilError(t, err)
	defer silent.Close()
	end()
	again, err := Open(address)
	assert.NilError(t, err)
	again.Close()
}

// oneClient is a listener that accepts one connection.
type oneClient struct {
	conn  chan net.Conn
	close func()
	ended <-chan struct{}
}

func listenForOne() (l *oneClient, client net.Conn) {
	client, server := net.Pipe()
	ended, end := context.WithCancel(context.Background())
	l = &oneClient{conn: make(chan net.Conn, 1), ended: ended.Done(), close: end}
	l.conn <- server
	return l, client
}

func (l *oneClient) Addr() net.Addr { return &net.TCPAddr{} }
func (l *oneClient) Close() error   { l.close(); return nil }
func (l *oneClient) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

type failing struct {
	*oneClient
	failures int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, syscall.EMFILE
	}
	return l.oneClient.Accept()
}

// Whatever keeps connections from being accepted is counted, and they are accepted later.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, client := listenForOne()
		defer client.Close()
		ctx, cancel := context.WithCancel(t.Context())
		server, ended := newServer(&failing{listener, 3}), make(chan error)
		go func() { ended <- server.Serve(ctx, NewGatherer(testBuild), &fakeAgent{}) }()
		fmt.Fprint(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		response, err := io.ReadAll(client)
		assert.Check(t, err == nil && strings.HasPrefix(string(response), "HTTP/1.1 200 "), "%q, %v", response, err)
		got := gather(t, server)["correlator_http_accept_errors_total"].GetMetric()[0].GetCounter().GetValue()
		assert.Check(t, got == 3, "%v errors", got)
		cancel()
		assert.NilError(t, <-ended)
	})
}

// Neither half a request nor a slow one delays the end of Serve.
func TestServeEndsAtOnce(t *testing.T) {
	for _, request := range []string{"GET /met", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			listener, client := listenForOne()
			defer client.Close()
			ctx, cancel := context.WithCancel(t.Context())
			hang, ended := make(chan struct{}), make(chan error)
			go func() {
				ended <- newServer(listener).Serve(ctx, gathererFunc(func() ([]*dto.MetricFamily, error) {
					<-hang
					return nil, nil
				}), &fakeAgent{})
			}()
			fmt.Fprint(client, request)
			synctest.Wait()
			began := time.Now()
			cancel()
			if err := <-ended; err != nil || time.Since(began) > 0 {
				t.Errorf("%q: ended with %v after %v", request, err, time.Since(began))
			}
			close(hang)
		})
	}
}

func TestServeFails(t *testing.T) {
	server, err := Open("127.0.0.1:0")
	assert.NilError(t, err)
	server.Close()
	err = server.Serve(t.Context(), NewGatherer(testBuild), &fakeAgent{})
	assert.Check(t, errors.Is(err, net.ErrClosed), "error %v", err)
}

func TestOpenInUse(t *testing.T) {
	first, err := Open("127.0.0.1:0")
	assert.NilError(t, err)
	defer first.Close()
	_, err = Open(first.Addr().String())
	assert.Check(t, errors.Is(err, syscall.EADDRINUSE), "error %v", err)
}

// A page of another site gets no metrics, also where its name was made to mean this host.
func TestForeignHosts(t *testing.T) {
	server, address, _ := serveOn(t, NewGatherer(testBuild), &fakeAgent{})
	own, err := os.Hostname()
	assert.NilError(t, err)
	const browser = "Accept-Language=de"
	for _, c := range []struct {
		host, path, header string
		want               int
	}{
		{"localhost:9464", "/metrics", browser, http.StatusOK},
		{"127.0.0.1", "/metrics", browser, http.StatusOK},
		{"10.0.0.1:9464", "/metrics", browser, http.StatusOK}, // by an address nobody is misled
		{own, "/metrics", browser, http.StatusOK},
		{"node.example", "/metrics", "", http.StatusOK}, // a scraper, by a proxy or a name in /etc/hosts
		{"rebound.example", "/metrics", browser, http.StatusForbidden},
		{"rebound.example:9464", "/metrics", "Origin=http://rebound.example", http.StatusForbidden},
		{"rebound.example", "/metrics", "User-Agent=Mozilla/5.0", http.StatusForbidden},
		{"localhost", "/metrics", "Sec-Fetch-Site=cross-site", http.StatusForbidden},
		{"node.example", "/healthz", browser, http.StatusOK},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+c.path, nil)
		assert.NilError(t, err)
		request.Host = c.host
		if name, value, found := strings.Cut(c.header, "="); found {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		assert.NilError(t, err)
		response.Body.Close()
		assert.Check(t, response.StatusCode == c.want, "%+v: %s", c, response.Status)
	}
	conn := dial(t, address)
	fmt.Fprint(conn, "GET /metrics HTTP/1.0\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	assert.Check(t, err == nil && strings.Contains(line, " 200 "), "without a host: %q, %v", line, err)
	counts := refused(t, server)
	assert.Check(t, counts["foreign_host"] == 4, counts)
}
