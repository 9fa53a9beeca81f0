// Package endpoint parses and prints the addresses of DOTS brokers:
//
//	tcp://HOST[:PORT]     TCP, frame format v2, port 11235
//	tcp-v2://HOST[:PORT]  the same
//	tcp-v1://HOST[:PORT]  TCP, frame format v1, port 11234
//	uds:///PATH           a Unix domain socket, frame format v2; uds:/PATH is read as well
//	uds-v2:///PATH        the same
//	uds-v1:///PATH        a Unix domain socket, frame format v1
//	ws://HOST:PORT        WebSocket, subprotocol dots-json; it has no default port
//
// A client's endpoint may have USER:SECRET@ in front of the host or path: a name of the client, and
// the secret it authenticates with.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strconv"
	"strings"

	"correlator/dots/frame"
	"correlator/internal/host/sockfile"
)

// The ports of formats v2 and v1.
const (
	PortV2 = 11235
	PortV1 = 11234
)

// Default is where clients connect, and brokers listen, when they are not told otherwise.
const Default = "tcp://127.0.0.1"

// Environment variables that clients and brokers read.
const (
	EnvironmentEndpoint = "DOTS_ENDPOINT"    // one endpoint of a client, several of a broker
	EnvironmentSecret   = "DOTS_AUTH_SECRET" //nolint:gosec // a name, no secret
)

// maxPath is what sockaddr_un has room for, less the byte that ends it.
const maxPath = 107

// ErrInvalid is wrapped by the errors of Parse.
var ErrInvalid = errors.New("invalid DOTS endpoint")

// Endpoint is the address of a broker.
type Endpoint struct {
	Scheme string // tcp, tcp-v1, uds, uds-v1 or ws
	Host   string // of tcp and ws, without brackets
	Port   uint16 // of tcp and ws
	Path   string // of uds: absolute
	User   string // replaces the client's name, unless empty
	Secret string
}

// Parse parses an endpoint.
func Parse(text string) (Endpoint, error) {
	e, err := parse(text)
	if err != nil {
		// A secret may be in the text, so the text is not in the error.
		return Endpoint{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return e, nil
}

func parse(text string) (Endpoint, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok {
		return Endpoint{}, errors.New("no scheme")
	}
	e := Endpoint{Scheme: strings.ToLower(scheme)}
	switch e.Scheme {
	case "tcp", "tcp-v2":
		e.Scheme, e.Port = "tcp", PortV2
	case "tcp-v1":
		e.Port = PortV1
	case "ws":
	case "uds", "uds-v2":
		e.Scheme = "uds"
	case "uds-v1":
	default:
		return Endpoint{}, fmt.Errorf("unknown scheme %q", scheme)
	}
	authority, slashes := strings.CutPrefix(rest, "//")
	if e.Network() == "unix" {
		if !slashes {
			authority = rest
		}
		return e, e.parsePath(authority)
	}
	if !slashes {
		return Endpoint{}, fmt.Errorf("scheme %s without //", scheme)
	}
	return e, e.parseHost(authority)
}

func (e *Endpoint) parsePath(text string) error {
	// A path may contain @: user information ends before the first slash.
	if at := strings.IndexByte(text, '@'); at >= 0 && at < strings.IndexByte(text, '/') {
		if err := e.parseUser(text[:at]); err != nil {
			return err
		}
		text = text[at+1:]
	}
	switch {
	case !strings.HasPrefix(text, "/"):
		return errors.New("the path of the socket is not absolute")
	case len(text) > maxPath:
		return fmt.Errorf("the path of the socket has more than %d bytes", maxPath)
	case strings.ContainsRune(text, 0):
		return errors.New("the path of the socket contains a zero byte")
	}
	e.Path = text
	return nil
}

func (e *Endpoint) parseHost(text string) error {
	text = strings.TrimSuffix(text, "/")
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		if err := e.parseUser(text[:at]); err != nil {
			return err
		}
		text = text[at+1:]
	}
	if strings.ContainsAny(text, "/?# \t\r\n") {
		return errors.New("something follows the host")
	}
	host, port := text, ""
	colon := strings.LastIndexByte(text, ':')
	if colon > strings.LastIndexByte(text, ']') {
		host, port = text[:colon], text[colon+1:]
		if port == "" {
			return errors.New("no port after the colon")
		}
	}
	switch inner, bracketed := strings.CutPrefix(host, "["); {
	case bracketed:
		if host, bracketed = strings.CutSuffix(inner, "]"); !bracketed {
			return errors.New("no ] after the address")
		}
	case strings.ContainsAny(host, ":[]"):
		return errors.New("an IPv6 address needs brackets")
	}
	if host == "" {
		return errors.New("no host")
	}
	e.Host = host
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return fmt.Errorf("port %q is no number below 65536", port)
		}
		e.Port = uint16(n)
	} else if e.Port == 0 {
		return fmt.Errorf("%s needs a port", e.Scheme)
	}
	return nil
}

func (e *Endpoint) parseUser(text string) (err error) {
	user, secret, _ := strings.Cut(text, ":")
	if e.User, err = url.PathUnescape(user); err != nil {
		return errors.New("the user is not escaped correctly")
	}
	if e.Secret, err = url.PathUnescape(secret); err != nil {
		return errors.New("the secret is not escaped correctly")
	}
	return nil
}

// ParseList parses endpoints with spaces between them, as DOTS_ENDPOINT has them for a broker.
func ParseList(text string) ([]Endpoint, error) {
	var list []Endpoint
	for _, field := range strings.Fields(text) {
		e, err := Parse(field)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// String returns the endpoint as Parse takes it, but without the secret.
func (e Endpoint) String() string {
	user := ""
	if e.User != "" {
		user = url.PathEscape(e.User) + "@"
	}
	if e.Network() == "unix" {
		return e.Scheme + "://" + user + e.Path
	}
	return e.Scheme + "://" + user + e.Address()
}

// Format returns the format of frames at the endpoint; a WebSocket has none.
func (e Endpoint) Format() frame.Format {
	if strings.HasSuffix(e.Scheme, "-v1") {
		return frame.V1
	}
	return frame.V2
}

// WebSocket reports whether messages of dots-json are exchanged at the endpoint instead of frames.
func (e Endpoint) WebSocket() bool { return e.Scheme == "ws" }

// Network returns the network that package net knows it by: "tcp" or "unix".
func (e Endpoint) Network() string {
	if strings.HasPrefix(e.Scheme, "uds") {
		return "unix"
	}
	return "tcp"
}

// Address returns the address that package net knows it by: HOST:PORT, or the path of the socket.
func (e Endpoint) Address() string {
	if e.Network() == "unix" {
		return e.Path
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Listen listens at the endpoint. The caller must close the listener. A Unix socket gets the mode,
// and replaces the file that a killed broker has left; closing the listener removes it. The format,
// and with it the upgrade to WebSocket, is the caller's.
func (e Endpoint) Listen(ctx context.Context, mode fs.FileMode) (net.Listener, error) {
	l, err := e.listen(ctx, mode)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", e, err)
	}
	return l, nil
}

func (e Endpoint) listen(ctx context.Context, mode fs.FileMode) (net.Listener, error) {
	if e.User != "" || e.Secret != "" {
		return nil, errors.New("a broker's endpoint has no user and no secret")
	}
	if e.Network() == "tcp" {
		return new(net.ListenConfig).Listen(ctx, e.Network(), e.Address())
	}
	return sockfile.Listen(e.Path, mode, sockfile.OwnGroup)
}

// Dial connects to the endpoint. The caller must close the connection.
func (e Endpoint) Dial(ctx context.Context) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, e.Network(), e.Address())
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", e, err)
	}
	return c, nil
}
