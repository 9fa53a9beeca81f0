package check

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"gotest.tools/v3/assert"

	"correlator/internal/host/sockfile"
	"correlator/internal/lab/testenv"
	"correlator/otlp"
)

// authority issues certificates, and starts servers that use them.
type authority struct {
	*testenv.Authority
	t *testing.T
}

func newAuthority(t *testing.T) *authority { return &authority{testenv.NewAuthority(t), t} }

// join writes two files into one.
func (a *authority) join(name, first, second string) {
	a.t.Helper()
	var text []byte
	for _, part := range []string{first, second} {
		read := testenv.ReadFile(a.t, a.File(part))
		text = append(text, read...)
	}
	testenv.WriteFile(a.t, a.File(name), text)
}

// serve starts a gRPC server with an issued certificate, or without TLS if name is empty. If
// clients is not nil the server requires a client certificate of that authority.
func (a *authority) serve(name string, version uint16, clients *authority) (address string) {
	a.t.Helper()
	var options []grpc.ServerOption
	if name != "" {
		config := &tls.Config{Certificates: []tls.Certificate{a.Pair(name)}, MaxVersion: version}
		if clients != nil {
			config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients.Pool()
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(a.t, err)
	server := grpc.NewServer(options...)
	go server.Serve(listener)
	a.t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// Each reason why a connection fails has its own remedy. The errors are those of gRPC over real
// sockets.
func TestConnect(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	later, before := time.Now().Add(time.Hour*48), time.Now().Add(-time.Hour)
	a.IssueAs("good", &x509.Certificate{IPAddresses: loopback, NotAfter: later})
	a.IssueAs("expired", &x509.Certificate{IPAddresses: loopback, NotAfter: before})
	a.IssueAs("elsewhere",
		&x509.Certificate{DNSNames: []string{"elsewhere"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
			NotAfter: later})
	a.IssueAs("nameless", &x509.Certificate{NotAfter: later})
	other.IssueAs("client", &x509.Certificate{NotAfter: later})
	a.IssueAs("client", &x509.Certificate{NotAfter: later, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	plain, good := a.serve("", 0, nil), a.serve("good", 0, nil)
	mutual, mutual12 := a.serve("good", 0, a), a.serve("good", tls.VersionTLS12, a)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	closed.Close()
	full, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and is silent
	assert.NilError(t, err)
	defer full.Close()
	_, port, _ := net.SplitHostPort(good)

	trusting := func(d *otlp.Destination) { d.Certificate = a.File("authority.pem") }
	as := func(of *authority) func(*otlp.Destination) {
		return func(d *otlp.Destination) {
			trusting(d)
			d.ClientCertificate, d.ClientKey = of.File("client.pem"), of.File("client.key")
		}
	}
	for _, c := range []struct {
		name, endpoint string
		set            func(*otlp.Destination)
		remedy         string // empty: it works
	}{
		{"plain text", "http://" + plain, nil, ""},
		{"TLS", "https://" + good, trusting, ""},
		{"mutual TLS", "https://" + mutual, as(a), ""},
		{"nobody", "http://" + closed.Addr().String(), nil, "start the receiver"},
		{"no socket", "unix:" + a.File("no.sock"), nil, "start the receiver, or correct the socket's path"},
		{"no name", "http://does-not-exist.invalid", nil, "resolvable here"},
		{"unknown authority", "https://" + good, nil, "name the file of the authority"},
		{"another authority", "https://" + good,
			func(d *otlp.Destination) { d.Certificate = other.File("authority.pem") },
			"name the file of the authority"},
		{"expired", "https://" + a.serve("expired", 0, nil), trusting, "clock"},
		{"another address", "https://" + a.serve("elsewhere", 0, nil), trusting, "a name that the receiver"},
		{"another name", "https://localhost:" + port, trusting, "a name that the receiver"},
		{"no name at all", "https://" + a.serve("nameless", 0, nil), trusting, "a name that the receiver"},
		{"no client certificate", "https://" + mutual, trusting, "client-certificate"},
		{"no client certificate, TLS 1.2", "https://" + mutual12, trusting, "client-certificate"},
		{"client certificate of another authority", "https://" + mutual, as(other), "client-certificate"},
		{"TLS to plain text", "https://" + plain, trusting, "use http://"},
		{"plain text to TLS", "http://" + good, nil, "https://"},
		{"no answer", "https://" + full.Addr().String(), func(d *otlp.Destination) { d.Timeout = time.Second / 10 },
			"that the port speaks the protocol"},
		{"no answer in plain text", "http://" + full.Addr().String(),
			func(d *otlp.Destination) { d.Timeout = time.Second / 10 }, "that the port speaks the protocol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := otlp.NewDestination(c.endpoint)
			d.Name, d.Timeout = "x", time.Minute
			d.Headers = otlp.Headers{"authorization": "s3cret"}
			if c.set != nil {
				c.set(&d)
			}
			m := fakeMachine(t, nil)
			m.config.Export.Destinations = []otlp.Destination{d}
			m.connect = m.connectAll
			found(t, m, "otlp-destination x").verify(t, OK, c.endpoint, "")
			m.config.Connect = true
			f := found(t, m, "otlp-destination x")
			if c.remedy == "" {
				f.verify(t, OK, "connected", "")
				return
			}
			f.verify(t, Degraded, c.endpoint, c.remedy)
			assert.Check(t, f.loss == "nothing reaches x" && !strings.Contains(f.detail, "s3cret"), "%+v", f)
		})
	}
}

// connected returns what is found about a destination of HTTP, which is connected to.
func connected(t *testing.T, endpoint string, headers otlp.Headers) finding {
	t.Helper()
	d := otlp.NewDestination(endpoint)
	d.Name, d.Protocol, d.Timeout, d.Headers = "x", otlp.HTTPProtobuf, time.Minute, headers
	m := fakeMachine(t, nil)
	m.config.Export.Destinations, m.config.Connect = []otlp.Destination{d}, true
	m.connect = m.connectAll
	return found(t, m, "otlp-destination x")
}

// By HTTP, requests without data are sent: their responses have remedies, too.
func TestConnectHTTP(t *testing.T) {
	a := newAuthority(t)
	grpcAddress := a.serve("", 0, nil)
	for _, c := range []struct {
		code   int
		remedy string // empty: it works
	}{
		{200, ""}, {401, "headers"}, {403, "headers"}, {404, "correct the path"}, {308, "redirects"},
		{503, "log of the receiver"}, {0, "set the protocol grpc"},
	} {
		t.Run(strconv.Itoa(c.code), func(t *testing.T) {
			endpoint := "http://" + grpcAddress
			if c.code > 0 {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(c.code)
				}))
				defer server.Close()
				endpoint = server.URL
			}
			if f := connected(t, endpoint, nil); c.remedy == "" {
				f.verify(t, OK, "accepts requests", "")
			} else {
				f.verify(t, Degraded, endpoint, c.remedy)
			}
		})
	}
}

// An answer that no receiver gives is no success, whatever its status.
func TestConnectStrangeAnswers(t *testing.T) {
	for _, c := range []struct{ contentType, body, detail, remedy string }{
		{"text/html", "<title>Sign in", `no response of OTLP: HTTP 200 OK: "<title>Sign in"`, "correct the endpoint"},
		{"application/json", `{"partialSuccess":{"errorMessage":"no"}}`, "accepts requests", ""},
		{"application/json", `{"login":"no such host"}`, "no response of OTLP", "correct the endpoint"},
		{"application/x-protobuf", "\x0a\x02\x08\x03", "3 items rejected, of none", "what the receiver says"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.contentType)
			io.WriteString(w, c.body)
		}))
		f := connected(t, server.URL, nil)
		if c.remedy == "" {
			f.verify(t, OK, c.detail, "")
		} else {
			f.verify(t, Degraded, c.detail, c.remedy)
			f.verify(t, Degraded, server.URL, c.remedy)
		}
		server.Close()
	}
}

// Where requests go through a proxy, what it refuses names it, and the remedy is the proxy's.
func TestConnectProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		code, _ := strconv.Atoi(q.Header.Get("X"))
		w.WriteHeader(code)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	name := strings.TrimPrefix(proxy.URL, "http://")
	connect := func(code string) finding { return connected(t, "http://receiver.invalid", otlp.Headers{"x": code}) }
	for code, remedy := range map[string]string{
		"407": "the password in that variable", "502": "let the proxy connect to the receiver", "401": "headers",
	} {
		connect(code).verify(t, Degraded, "HTTP "+code, remedy)
		connect(code).verify(t, Degraded, "(through the proxy "+name+" of HTTP_PROXY)", remedy)
	}
	proxy.Close()
	t.Setenv("HTTP_PROXY", "http://user:s3%cret@proxy")
	connect("200").verify(t, Missing, "environment variable HTTP_PROXY: not of the form", "correct the variable")
	t.Setenv("HTTP_PROXY", proxy.URL)
	connect("200").verify(t, Degraded, "refused (through the proxy "+name+" of HTTP_PROXY)", "let the proxy connect")
}

// A receiver that does not support one signal takes the others, whichever comes first.
func TestConnectPartly(t *testing.T) {
	for path, loss := range map[string]string{
		otlp.Profiles.Path(): "nothing of profiles reaches x", otlp.Traces.Path(): "nothing of traces reaches x",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == path {
				w.WriteHeader(404)
			}
		}))
		defer server.Close()
		f := connected(t, server.URL, nil)
		f.verify(t, Degraded, path+": HTTP 404", "leave out of signals")
		assert.Check(t, f.loss == loss, "%s: %s", path, f.loss)
	}
}

// Ports of the OTLP receiver and of the live view.
func TestPorts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer listener.Close()
	used := listener.Addr().String()
	m := fakeMachine(t, nil)
	m.config.Export.Receiver.Listen = "127.0.0.1:0"
	found(t, m, "otlp-listen").verify(t, OK, "can be bound", "")
	m.config.Export.Receiver.Listen, m.config.LiveListen, m.config.AdminSocket = used, []string{"ws://" + used}, "admin"
	for _, name := range []string{"otlp-listen", "live-listen ws://" + used} {
		m.admin = func() error { return nil }
		found(t, m, name).verify(t, Missing, "in use", "a free port")
		m.admin = func() error { return sockfile.ErrInUse } // an agent is running
		found(t, m, name).verify(t, Degraded, "probably by the agent", "stop that agent")
	}
}
