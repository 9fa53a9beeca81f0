package otlp

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// defaultPort is that of OTLP over gRPC. A URL without a port, for HTTP, means that of its scheme.
const defaultPort = "4317"

// endpoint is the address of a destination.
type endpoint struct {
	host string // HOST:PORT, or the path of a Unix socket
	tls  bool
	unix bool
	base url.URL // by HTTP: with the path, but no other part
}

// parseEndpoint parses the endpoint of a destination.
func (d *Destination) parseEndpoint() (endpoint, error) {
	return parseEndpoint(d.Protocol, d.Endpoint, d.Insecure)
}

// parseEndpoint parses the forms of Destination.Endpoint. The scheme decides about TLS; without one
// insecure does.
func parseEndpoint(p Protocol, s string, insecure bool) (endpoint, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return endpoint{}, errors.New("endpoint: unix socket without a path")
		}
		e := endpoint{host: path, unix: true}
		if p == HTTPProtobuf {
			e.base = url.URL{Scheme: "http", Host: "localhost"}
		}
		return e, nil
	}
	host, port, e := s, defaultPort, endpoint{tls: !insecure}
	switch {
	case strings.Contains(s, "://"):
		u, err := parseURL(p, s)
		if err != nil {
			return endpoint{}, err
		}
		host, e.tls = u.Host, u.Scheme == "https"
		if p == HTTPProtobuf {
			e.base = *u
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
	case p == HTTPProtobuf:
		return endpoint{}, errors.New("endpoint: none of http://, https:// and unix:, one of which http/protobuf needs")
	}
	name, given, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	} else {
		port = given
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || name == "" || strings.ContainsAny(name, "/@ \t\r\n") {
		return endpoint{},
			errors.New("endpoint: not of the form HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH")
	}
	e.host = net.JoinHostPort(name, port)
	return e, nil
}

// parseURL parses an endpoint with a scheme.
func parseURL(p Protocol, s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		// The error of Parse contains the whole text, which may contain a password.
		return nil, errors.New("endpoint: not a URL")
	case u.User != nil:
		return nil, errors.New("endpoint: credentials belong in headers")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("endpoint: scheme %q is none of http, https, unix", u.Scheme)
	case u.RawQuery != "" || u.Fragment != "": // which would be shown; a query may contain a password
		return nil, errors.New("endpoint: has a query or a fragment, which OTLP does not have")
	case p != HTTPProtobuf && strings.Trim(u.Path, "/") != "":
		return nil, errors.New("endpoint: has more than scheme, host and port, which is all that gRPC has; " +
			"a path needs the protocol http/protobuf")
	}
	return u, nil
}

// target returns the address in grpc's form. Names are looked up when a connection is made. grpc's
// own resolver, once it has failed (a host that boots has no network yet), waits for up to two
// minutes whatever the circuit does.
func (e endpoint) target() string {
	if e.unix {
		return "unix:" + e.host
	}
	return "passthrough:///" + url.PathEscape(e.host) // of an IPv6 address there may be a zone
}

// url returns where requests of a signal go by HTTP: below the endpoint, or exactly there (OTLP
// exporter specification, "Endpoint URLs for OTLP/HTTP").
func (e endpoint) url(s Signal, exact bool) *url.URL {
	u := e.base
	u.Path = cmp.Or(u.Path, "/")
	if exact {
		return &u
	}
	return u.JoinPath(s.Path())
}

// credentials reads the certificates of a destination.
func (e endpoint) credentials(d *Destination) (credentials.TransportCredentials, error) {
	if !e.tls {
		return insecure.NewCredentials(), nil
	}
	config, err := tlsConfig(d)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}

// tlsConfig returns a configuration with the receiver's authorities and our certificate.
func tlsConfig(d *Destination) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.Certificate == "" {
		if err := checkAuthorities(); err != nil {
			return nil, err
		}
	} else {
		pem, err := os.ReadFile(d.Certificate)
		if err != nil {
			return nil, fmt.Errorf("reading certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading certificate: %s has none", d.Certificate)
		}
	}
	if d.ClientCertificate != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(d.ClientCertificate, d.ClientKey)
			if err != nil {
				return nil, fmt.Errorf("reading client certificate: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return load()
		}
	}
	return config, nil
}
