package otlp

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpproxy"
)

// The libraries below read variables of the environment, and ignore what they cannot read: a
// request would go around the proxy, or the certificates of the system would be trusted. So these
// variables are checked first. An error names the variable and never contains its value, which may
// have a password.

// proxySetting is what requests to a destination go through; the zero value is none.
type proxySetting struct {
	variable string   // that names it
	url      *url.URL // nil: none
}

// through follows an error of a request: whoever reads it looks for the receiver otherwise.
func (p proxySetting) through() string {
	if p.url == nil {
		return ""
	}
	return fmt.Sprintf(" (through the proxy %s of %s)", p.url.Host, p.variable)
}

// proxy returns the proxy of a protocol's requests. net/http and grpc read the same variables; for
// grpc every endpoint is one of HTTPS.
func (e endpoint) proxy(p Protocol) (proxySetting, error) {
	if e.unix {
		return proxySetting{}, nil
	}
	config, target := httpproxy.FromEnvironment(), &url.URL{Scheme: "https", Host: e.host}
	used, name := &config.HTTPSProxy, "HTTPS_PROXY"
	if p == HTTPProtobuf && !e.tls {
		target.Scheme, used, name = "http", &config.HTTPProxy, "HTTP_PROXY"
	}
	all := *used == ""
	if all && os.Getenv("ALL_PROXY") == "" && os.Getenv("all_proxy") == "" {
		return proxySetting{}, nil
	}
	if !all && os.Getenv(name) == "" {
		name = strings.ToLower(name)
	}
	u, wrong := parseProxy(*used, p)
	*used = "http://proxy.invalid" // whether there is one for the target does not depend on which
	switch of, err := config.ProxyFunc()(target); {
	case err != nil:
		return proxySetting{}, fmt.Errorf("environment variable %s: %w", name, err)
	case of == nil: // by NO_PROXY, or on this host
		return proxySetting{}, nil
	case all: // which curl and others read, and these libraries do not
		return proxySetting{}, fmt.Errorf("environment variable ALL_PROXY: not read here: set %s, or name the receiver "+
			"in NO_PROXY", name)
	case wrong != nil:
		return proxySetting{}, fmt.Errorf("environment variable %s: %w", name, wrong)
	}
	if err := checkNoProxy(config, target); err != nil {
		return proxySetting{}, fmt.Errorf("environment variable NO_PROXY: %w", err)
	}
	return proxySetting{name, u}, nil
}

// parseProxy parses the URL of a proxy, whose scheme may be left out. url.Parse finds a host in
// almost everything.
func parseProxy(value string, p Protocol) (*url.URL, error) {
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	if err != nil || u.Hostname() == "" || strings.ContainsAny(u.Host, "<>\"'\\") || strings.HasSuffix(u.Host, ":") ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || !isPort(u.Port()) {
		return nil, errors.New("not of the form http://[USER:PASSWORD@]HOST:PORT, " +
			"in which % # / ? [ ] of a password are percent-encoded")
	}
	schemes := []string{"http", "https", "socks5", "socks5h"}
	if p == GRPC {
		schemes = schemes[:1] // grpc would speak plain text to the others
	}
	if !slices.Contains(schemes, u.Scheme) {
		return nil, fmt.Errorf("scheme %q: proxies of the protocol %s are of %s", u.Scheme, p, strings.Join(schemes,
			", "))
	}
	return u, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

// checkNoProxy returns an error for an entry of NO_PROXY that matches nothing, although it was meant to
// match a request, which goes through a proxy. What was meant for others is nobody's concern.
func checkNoProxy(config *httpproxy.Config, target *url.URL) error {
	host := target.Hostname()
	for i, entry := range strings.Split(config.NoProxy, ",") {
		entry = strings.TrimSpace(entry)
		_, notPrefix := netip.ParsePrefix(entry)
		if strings.Contains(entry, "/") && notPrefix == nil {
			continue
		}
		for _, part := range strings.FieldsFunc(entry, func(r rune) bool { return unicode.IsSpace(r) || r == ';' }) {
			meant := part
			if _, after, found := strings.Cut(meant, "://"); found {
				meant = after
			}
			meant, _, _ = strings.Cut(meant, "/")
			if name, port, err := net.SplitHostPort(meant); err == nil && !isPort(port) {
				meant = name
			}
			network := strings.TrimRight(meant, ".0") // of an address whose mask is wrong
			like := *config
			like.NoProxy = meant
			direct, _ := like.ProxyFunc()(target)
			pattern, _ := path.Match(meant, host)
			inNetwork := meant != part && network != "" && strings.HasPrefix(host, network+".")
			if direct == nil || pattern || inNetwork {
				return fmt.Errorf("entry %d is none of HOST, .DOMAIN, ADDRESS, CIDR and *, with commas between them", i+1)
			}
		}
	}
	return nil
}

// checkAuthorities returns an error unless the variables that take the place of the system's
// authorities name some.
func checkAuthorities() error {
	const file, dirs = "SSL_CERT_FILE", "SSL_CERT_DIR"
	if name := os.Getenv(file); name != "" {
		pem, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", file, err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return fmt.Errorf("environment variable %s: %s has no certificate", file, name)
		}
	}
	var first error
	for _, dir := range filepath.SplitList(os.Getenv(dirs)) { // some list all that distributions have
		_, err := os.ReadDir(dir)
		if err == nil {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("environment variable %s: %w", dirs, err)
		}
	}
	return first
}

// checkResolver returns an error for a value of the resolver's setting in GODEBUG that means
// nothing to it.
func checkResolver() error {
	for setting := range strings.SplitSeq(os.Getenv("GODEBUG"), ",") {
		value, ours := strings.CutPrefix(strings.TrimSpace(setting), "netdns=")
		for part := range strings.SplitSeq(value, "+") {
			if ours && part != "go" && part != "cgo" && strings.Trim(part, "0123456789") != "" {
				return fmt.Errorf("environment variable GODEBUG: netdns: %q is none of go, cgo and a number", part)
			}
		}
	}
	return nil
}
