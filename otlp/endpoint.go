package otlp

import (
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

const defaultPort = "4317"

// endpoint is the address of a destination in grpc's form.
type endpoint struct {
	target string
	tls    bool
	unix   bool
}

// parseEndpoint parses the forms of Destination.Endpoint. The scheme decides about TLS; without one
// insecure does.
func parseEndpoint(s string, insecure bool) (endpoint, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return endpoint{}, errors.New("endpoint: unix socket without a path")
		}
		return endpoint{target: "unix:" + path, unix: true}, nil
	}
	host, secure := s, !insecure
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		switch {
		case err != nil:
			// The error of Parse contains the whole text, which may contain a password.
			return endpoint{}, errors.New("endpoint: not a URL")
		case u.User != nil:
			return endpoint{}, errors.New("endpoint: credentials belong in headers")
		case u.Scheme != "http" && u.Scheme != "https":
			return endpoint{}, fmt.Errorf("endpoint: scheme %q is none of http, https, unix", u.Scheme)
		case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			return endpoint{}, errors.New("endpoint: has more than scheme, host and port, which is all that gRPC has")
		}
		host, secure = u.Host, u.Scheme == "https"
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), defaultPort
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || name == "" || strings.ContainsAny(name, "/@ \t\r\n") {
		return endpoint{},
			errors.New("endpoint: not of the form HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH")
	}
	// Names are looked up when a connection is made. grpc's own resolver, once it has failed (a
	// host that boots has no network yet), waits for up to two minutes whatever the circuit does.
	return endpoint{target: "passthrough:///" + net.JoinHostPort(name, port), tls: secure}, nil
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
	if d.Certificate != "" {
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
