package receiver

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"correlator/internal/host/sockfile"
)

const (
	// DefaultMaxRequestBytes is the default limit of most exporters. The protocol recommends 64
	// MiB, which is meant for receivers on a machine of their own.
	DefaultMaxRequestBytes = 4 << 20
	// MaxRequestBytes is the largest limit: more does not fit into a queue in memory.
	MaxRequestBytes = 1 << 30
)

// DefaultSocketMode lets only root connect to a Unix socket.
const DefaultSocketMode = sockfile.DefaultMode

// Config is where a receiver listens and what it accepts.
type Config struct {
	// Listen is unix:PATH or HOST:PORT. Unless there is a Certificate, HOST is localhost or a
	// loopback address.
	Listen string
	// SocketMode is the mode of a Unix socket; 0 is DefaultSocketMode. With 0666 every user of this
	// host may connect, as with a loopback address.
	SocketMode fs.FileMode `key:"socket-mode"`

	// Paths of PEM files, which are read again for each connection. With Certificate and Key the
	// receiver requires TLS.
	Certificate string `key:"certificate"`
	Key         string `key:"key"`
	// ClientAuthorities contains the CAs of client certificates. If it is empty, clients need none.
	ClientAuthorities string `key:"client-authorities"`

	// MaxRequestBytes limits the size of a request, before and after decompression; 0 is
	// DefaultMaxRequestBytes.
	MaxRequestBytes int `key:"max-request-bytes" unit:"bytes"`

	// OnPanic is called for the first panic of a call, which is a defect; nil ignores it. All are
	// counted.
	OnPanic func(value any, stack []byte)
}

// MemoryBytes is the memory that a receiver takes at most, as documented by the package, given the
// limit of a request (0: DefaultMaxRequestBytes): 33 MiB by default.
func MemoryBytes(maxRequestBytes int) int64 {
	if maxRequestBytes == 0 {
		maxRequestBytes = DefaultMaxRequestBytes
	}
	return 15<<20 + int64(maxRequestBytes)*9/2
}

// Validate checks what can be checked without listening.
func (c *Config) Validate() error {
	switch {
	case (c.Certificate == "") != (c.Key == ""):
		return errors.New("certificate and key: one without the other")
	case c.ClientAuthorities != "" && c.Certificate == "":
		return errors.New("client authorities without a certificate: there is no TLS in which clients could show theirs")
	case c.MaxRequestBytes < 0 || c.MaxRequestBytes > MaxRequestBytes:
		return fmt.Errorf("max-request-bytes %d: not in 1 to %d", c.MaxRequestBytes, MaxRequestBytes)
	case c.SocketMode&^fs.ModePerm != 0:
		return fmt.Errorf("socket mode %v: more than permissions", c.SocketMode)
	}
	if path, ok := c.unixPath(); ok {
		if path == "" {
			return errors.New("listen: unix socket without a path")
		}
		return nil
	}
	_, err := c.tcpAddr()
	return err
}

// unixPath returns the path of a Unix socket.
func (c *Config) unixPath() (string, bool) {
	path, ok := strings.CutPrefix(c.Listen, "unix:")
	return strings.TrimPrefix(path, "//"), ok
}

// tcpAddr returns the address to listen on. A name is resolved once, so that the address that was
// checked is the one that is bound.
func (c *Config) tcpAddr() (*net.TCPAddr, error) {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return nil, fmt.Errorf("listen %q: neither HOST:PORT nor unix:PATH", c.Listen)
	}
	addr, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if c.Certificate == "" && !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("listen %s: not a loopback address, and there is no certificate for TLS", c.Listen)
	}
	return addr, nil
}

// listen binds.
func (c *Config) listen() (net.Listener, error) {
	if path, ok := c.unixPath(); ok {
		return sockfile.Listen(path, cmp.Or(c.SocketMode, DefaultSocketMode), sockfile.OwnGroup)
	}
	addr, err := c.tcpAddr()
	if err != nil {
		return nil, err
	}
	return net.ListenTCP("tcp", addr)
}

// serverTLS is the configuration of the server, which reads the certificates again for each
// connection. It reports certificates that cannot be read.
func (c *Config) serverTLS(report func(error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := c.loadTLS()
			if err != nil {
				report(err)
			}
			return config, err
		},
	}
}

// loadTLS reads the certificates as they are now.
func (c *Config) loadTLS() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, fmt.Errorf("reading certificate: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{pair}}
	if c.ClientAuthorities == "" {
		return config, nil
	}
	pem, err := os.ReadFile(c.ClientAuthorities)
	if err != nil {
		return nil, fmt.Errorf("reading client authorities: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading client authorities: %s has none", c.ClientAuthorities)
	}
	return config, nil
}
