package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"correlator/internal/settings"
	"correlator/internal/sockfile"
	"correlator/otlp"
)

// defaultPort is that of OTLP over gRPC.
const defaultPort = "4317"

// maxHeaderBytes is what servers take of all headers together, most of them.
const maxHeaderBytes = 8 << 10

// readHeader reads the value of a header. The error does not show it, nor the path: who writes the value where
// the name of its file belongs must not find it in the log.
func readHeader(path string) (string, error) {
	text, err := readSome(path, maxHeaderBytes+1)
	switch value := strings.TrimRight(string(text), "\r\n"); {
	case err != nil:
		return "", fmt.Errorf("reading the file: %w", err)
	case len(text) > maxHeaderBytes:
		return "", fmt.Errorf("the file has more than %d bytes", maxHeaderBytes)
	case value == "":
		return "", errors.New("the file is empty")
	default:
		return value, nil
	}
}

// readSome reads limit bytes at most. The error is without the path.
func readSome(path string, limit int64) (text []byte, err error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, limit))
	}
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return text, err
}

// file is one that a key names, or none.
type file struct{ key, path string }

// readable says why it cannot be read.
func (f file) readable() error {
	if f.path == "" {
		return nil
	}
	opened, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	if info, err := opened.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", f.path)
	}
	return nil
}

// checkListener sees what receiver.Config.Validate does not.
func (s *Settings) checkListener() error {
	r := &s.config.Receiver
	if r.Listen == "" {
		return nil
	}
	if path, ok := UnixPath(r.Listen); ok {
		if err := sockfile.CheckPath(path); err != nil {
			return fmt.Errorf("--otlp-listen %s %w", r.Listen, err)
		}
	}
	for _, f := range []file{{"certificate", r.Certificate}, {"key", r.Key}, {"client-authorities", r.ClientAuthorities}} {
		if err := f.readable(); err != nil {
			origin, _ := settings.Origin(s.listener, f.key)
			return fmt.Errorf("%s: otlp.listener.%s: %w", origin, f.key, err)
		}
	}
	return nil
}

// checkTogether refuses destinations that cannot be beside each other, or beside the receiver.
func (s *Settings) checkTogether() error {
	for i, d := range s.destinations {
		if listen := s.config.Receiver.Listen; listen != "" && SameAddress(listen, d.Endpoint) {
			return d.at("endpoint", errors.New("this is what --otlp-listen listens on: what it takes would come back to it for ever"))
		}
		for _, other := range s.destinations[:i] {
			if other.Name == d.Name {
				return d.at("name", fmt.Errorf("two destinations are named %s", d.Name))
			}
			if twice := inCommon(&d.Destination, &other.Destination); len(twice) > 0 && SameAddress(other.Endpoint, d.Endpoint) {
				return d.at("endpoint", fmt.Errorf("destination %s sends %s there already", other.Name, strings.Join(twice, ", ")))
			}
		}
	}
	return nil
}

// inCommon are the signals that both destinations get.
func inCommon(a, b *otlp.Destination) (names []string) {
	for signal := range otlp.NumSignals {
		if a.Takes(signal) && b.Takes(signal) {
			names = append(names, signal.String())
		}
	}
	return names
}

// UnixPath is the path of an endpoint or listener that is a Unix socket.
func UnixPath(address string) (path string, ok bool) {
	path, ok = strings.CutPrefix(address, "unix:")
	return strings.TrimPrefix(path, "//"), ok
}

// SameAddress says whether who connects to endpoint gets to a listener, or to another endpoint, as far as can be
// told without asking for names: localhost and the addresses that mean every interface are seen through.
func SameAddress(listener, endpoint string) bool {
	a, aIsPath := UnixPath(listener)
	b, bIsPath := UnixPath(endpoint)
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
