package config

import (
	"net"
	"os"
	"path/filepath"
	"strings"

	"correlator/internal/host/sockfile"
)

// defaultPort is that of OTLP over gRPC.
const defaultPort = "4317"

// sameAddress reports whether a connection to an endpoint reaches a listener, or another endpoint,
// without looking up names. localhost and the addresses that mean every interface are recognized.
func sameAddress(listener, endpoint string) bool {
	a, aIsPath := sockfile.UnixPath(listener)
	b, bIsPath := sockfile.UnixPath(endpoint)
	if aIsPath || bIsPath {
		return aIsPath == bIsPath && absolute(a) == absolute(b)
	}
	aHost, aPort := hostPort(listener)
	bHost, bPort := hostPort(endpoint)
	return aPort == bPort && aPort != "0" && (sameHost(aHost, bHost) || sameHost(bHost, aHost))
}

func absolute(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}

func hostPort(address string) (host, port string) {
	if _, rest, found := strings.Cut(address, "://"); found {
		address = rest
	}
	address = strings.ToLower(strings.TrimRight(address, "/"))
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return strings.Trim(address, "[]"), defaultPort
	}
	return host, port
}

func sameHost(listener, host string) bool {
	local := func(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }
	ip := net.ParseIP(listener)
	switch {
	case listener == host:
		return true
	case listener == "" || ip.IsUnspecified():
		self, err := os.Hostname()
		return local(host) || err == nil && strings.EqualFold(host, self)
	case listener == "localhost":
		return local(host)
	}
	return ip != nil && ip.Equal(net.ParseIP(host))
}
