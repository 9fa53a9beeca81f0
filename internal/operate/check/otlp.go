package check

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"

	"correlator/internal/host/sockfile"
	"correlator/otlp"
)

func otlpListen(m *machine) finding {
	const loss = "no OTLP is received"
	r := &m.config.Export.Receiver
	if r.Certificate != "" {
		if err := checkPEM(r.Certificate, r.Key, r.ClientAuthorities); err != nil {
			return finding{Missing, err.Error(), loss, "name PEM files that belong together in otlp.listener"}
		}
	}
	network, address := "tcp", r.Listen
	if path, isPath := sockfile.UnixPath(r.Listen); isPath {
		network, address = "unix", path
	}
	err := m.probeListen(network, address)
	if f, found := expiry(r.Certificate, r.Key, "clients refuse the connection"); found && err == nil {
		return f
	}
	return m.bound(r.Listen, err, loss)
}

func listenRemedy(err error) string {
	if of := (*net.OpError)(nil); errors.As(err, &of) && of.Op == "listen" {
		return "name an address of this host and a free port"
	}
	return socketRemedy(err)
}

func (m *machine) destination(d *otlp.Destination) finding {
	authorities, certificate := d.Certificate, d.ClientCertificate
	if !d.Secure() {
		authorities, certificate = "", "" // not used
	}
	if err := checkPEM(certificate, d.ClientKey, authorities); err != nil {
		return finding{Missing, err.Error(), "nothing is exported",
			"name PEM files that belong together, for destination " + d.Name}
	}
	if err := otlp.TryOpen(*d, m.config.Version); err != nil { // the files are fine
		return finding{Missing, err.Error(), "the agent does not start", "correct the variable that destination " +
			d.Name + " needs"}
	}
	detail := d.Endpoint + "; not tried without --connect"
	var err error
	if m.config.Connect {
		detail, err = d.Endpoint+": connected", m.connect()[d.Name]
		if d.Protocol == otlp.HTTPProtobuf {
			detail = d.Endpoint + ": accepts requests"
		}
	}
	f, old := expiry(certificate, d.ClientKey, "the receiver refuses the connection")
	switch {
	case old && err != nil:
		f.detail += "; " + err.Error()
		return f
	case old:
		return f
	case err != nil:
		return finding{Degraded, err.Error(), unreached(err) + " reaches " + d.Name, connectRemedy(err)}
	}
	return ok(detail)
}

// unreached says what does not reach a destination.
func unreached(err error) string {
	var some *otlp.SignalsError
	if !errors.As(err, &some) || !some.Partly {
		return "nothing"
	}
	names := make([]string, len(some.Signals))
	for i, s := range some.Signals {
		names[i] = s.String()
	}
	return "nothing of " + strings.Join(names, " and ")
}

func (m *machine) connectAll() map[string]error {
	var mu sync.Mutex
	var connecting sync.WaitGroup
	failed := map[string]error{}
	for _, d := range m.config.Export.Destinations {
		connecting.Go(func() {
			err := otlp.TryConnect(context.Background(), d, m.config.Version)
			mu.Lock()
			defer mu.Unlock()
			failed[d.Name] = err
		})
	}
	connecting.Wait()
	return failed
}

// connectRemedies are the remedies by the text of the error, which is all that gRPC returns. The
// first match counts.
var connectRemedies = []struct{ text, remedy string }{
	{"no response of OTLP", "correct the endpoint: a proxy, a sign-in page or another service has answered"},
	{"items rejected", "see what the receiver says, and its log: it takes requests, but not what is in them"},
	{"no such host", "correct the host's name, or make it resolvable here (/etc/resolv.conf, DNS)"},
	{"produced zero addresses", "correct the host's name, or make it resolvable here (/etc/resolv.conf, DNS)"},
	{"lookup ", "make names resolvable here: /etc/resolv.conf, and a route to the DNS server"},
	{"connection refused",
		"start the receiver, or correct the port: usual are 4317 for gRPC, 4318 for the protocol http/protobuf"},
	{"no such file or directory", "start the receiver, or correct the socket's path"},
	{"permission denied", "let this user connect to the socket"},
	{"operation not permitted", "allow the connection: a security module or a firewall of this host forbids it"},
	{"network is unreachable", "add a route to the host in the network namespace of this process"},
	{"no route to host", "add a route to the host in the network namespace of this process"},
	{"unknown authority", "name the file of the authority that signed the receiver's certificate (certificate)"},
	{"has expired or is not yet valid", "replace the receiver's certificate, or set the clock of this host"},
	{"certificate is valid for", "connect by a name that the receiver's certificate has"},
	{"not valid for any names", "connect by a name that the receiver's certificate has"},
	{"cannot validate certificate for", "connect by a name that the receiver's certificate has"},
	{"certificate required", "name a certificate that the receiver trusts (client-certificate, client-key)"},
	{"bad certificate", "name a certificate that the receiver trusts (client-certificate, client-key)"},
	{"remote error: tls: ",
		"name another certificate (client-certificate, client-key): the receiver does not trust this one, and its " +
			"log has the reason"},
	{"does not look like a TLS handshake", "the receiver speaks plain text: use http://, or configure TLS there"},
	{"failed to verify certificate", "replace the receiver's certificate, or name its authority (certificate)"},
	{"server preface",
		"check that it is a gRPC port, or set the protocol http/protobuf; if it speaks TLS, use https://"},
	// The latter is what net/http says of a server that speaks before it is asked, as by HTTP/2.
	{"malformed HTTP", noHTTPRemedy}, {"readLoopPeekFailLocked", noHTTPRemedy},
	{"HTTP 401", "see what the receiver wants of headers: is it the right file, and all of it?"},
	{"HTTP 403", "see what the receiver wants of headers: is it the right file, and all of it?"},
	{"HTTP 404",
		"correct the path before /v1 in the endpoint; or leave out of signals what the receiver does not support"},
	{"HTTP 3", "use the URL to which the receiver redirects, which is not followed"},
	{"HTTP ", "see the log of the receiver, or of the proxy before it"},
	// A receiver that refuses the client's certificate may close the connection before the reason
	// is read.
	{"broken pipe", endedRemedy}, {"connection reset", endedRemedy}, {"EOF", endedRemedy},
	{context.DeadlineExceeded.Error(),
		"check that firewalls and network policies allow the connection, and that the port speaks the protocol, " +
			"gRPC unless configured otherwise"},
}

const noHTTPRemedy = "check that it is a port of OTLP over HTTP, or set the protocol grpc; if it speaks TLS, use https://"

const endedRemedy = "see the log of the receiver, which closed the connection: it may require TLS (https://) or " +
	"another client certificate (client-certificate, client-key)"

// proxyRemedies are those of what a proxy answers, or of a connection to it.
var proxyRemedies = []struct{ text, remedy string }{
	{"407", proxyLogin}, {"Proxy Authentication Required", proxyLogin},
	{"proxyconnect", proxyReach}, {"connect handshake", proxyReach}, {"socks connect", proxyReach},
	{"no such host", proxyReach}, {"produced zero addresses", proxyReach}, {"lookup ", proxyReach},
	{"connection refused", proxyReach}, {"is unreachable", proxyReach}, {"no route to host", proxyReach},
	{"HTTP 403", proxyReach}, {"HTTP 502", proxyReach}, {"HTTP 503", proxyReach}, {"HTTP 504", proxyReach},
	{context.DeadlineExceeded.Error(), proxyReach},
}

const (
	proxyLogin = "correct the user and the password in that variable"
	proxyReach = "correct that variable, let the proxy connect to the receiver, or name the receiver in NO_PROXY"
)

func connectRemedy(err error) string {
	remedies := connectRemedies
	if strings.Contains(err.Error(), " (through the proxy ") {
		remedies = slices.Concat(proxyRemedies, connectRemedies)
	}
	for _, r := range remedies {
		if strings.Contains(err.Error(), r.text) {
			return r.remedy
		}
	}
	return "check that the receiver runs and can be reached from here"
}
