package receiver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"correlator/internal/host/safedir"
	"correlator/internal/host/sockfile"
	"correlator/internal/lab/testenv"
	"correlator/otlp"
)

// Without TLS only this host may connect. Invalid configurations are errors before anything is
// bound.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string // in the error; empty: none
	}{
		{Config{Listen: "127.0.0.1:4317"}, ""},
		{Config{Listen: "127.9.9.9:0"}, ""},
		{Config{Listen: "[::1]:4317"}, ""},
		{Config{Listen: "localhost:4317"}, ""},
		{Config{Listen: "unix:/run/x.sock", SocketMode: 0o666}, ""},
		{Config{Listen: "unix:///run/x.sock", MaxRequestBytes: 64 << 20}, ""},
		{Config{Listen: "0.0.0.0:4317", Certificate: "c", Key: "k"}, ""},
		{Config{Listen: "0.0.0.0:4317"}, "not a loopback address"},
		{Config{Listen: ":4317"}, "not a loopback address"},
		{Config{Listen: "[::]:4317"}, "not a loopback address"},
		{Config{Listen: "192.0.2.1:4317"}, "not a loopback address"},
		{Config{Listen: "127.0.0.1"}, "neither HOST:PORT nor unix:PATH"},
		{Config{Listen: ""}, "neither HOST:PORT nor unix:PATH"},
		{Config{Listen: "/run/x.sock"}, "neither HOST:PORT nor unix:PATH"},
		{Config{Listen: "unix:"}, "without a path"},
		{Config{Listen: "127.0.0.1:99999"}, "port"},
		{Config{Listen: "127.0.0.1:4317", Key: "k"}, "one without the other"},
		{Config{Listen: "127.0.0.1:4317", ClientAuthorities: "a"}, "without a certificate"},
		{Config{Listen: "127.0.0.1:4317", MaxRequestBytes: -1}, "max-request-bytes"},
		{Config{Listen: "127.0.0.1:4317", MaxRequestBytes: MaxRequestBytes + 1}, "max-request-bytes"},
		{Config{Listen: "unix:/run/x.sock", SocketMode: fs.ModeSetuid | 0o600}, "permissions"},
	} {
		err := c.config.Validate()
		assert.Check(t, (err == nil) == (c.want == "") && (err == nil || strings.Contains(err.Error(), c.want)),
			"%+v: %v, want %q", c.config, err, c.want)
		if c.want != "" {
			if _, err := Open(c.config, &store{}); err == nil {
				t.Errorf("%+v: opened", c.config)
			}
		}
	}
}

// The socket has the configured mode, belongs to one receiver at a time, and is removed in the end.
func TestSocket(t *testing.T) {
	for mode, want := range map[fs.FileMode]fs.FileMode{0: 0o600, 0o666: 0o666, 0o660: 0o660} {
		path := filepath.Join(t.TempDir(), "otlp.sock")
		c := Config{Listen: "unix:" + path, SocketMode: mode}
		r, err := Open(c, &store{})
		assert.NilError(t, err)
		if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|want {
			t.Errorf("mode %o: %v, %v", mode, info.Mode(), err)
		}
		_, err = Open(c, &store{})
		assert.Check(t, errors.Is(err, sockfile.ErrInUse), "opened twice: %v", err)
		assert.Check(t, r.Shutdown(context.Background()))
		_, err = os.Stat(path)
		assert.Check(t, errors.Is(err, fs.ErrNotExist), "after the shutdown: %v", err)
	}
}

// The owner of the socket's directory puts a link to a file of root's in the place of the socket as
// soon as there is one: the receiver does not open there, and the file keeps its mode.
func TestSocketInDirectoryOfAnother(t *testing.T) {
	testenv.NeedRoot(t)
	root := t.TempDir()
	victim, dir := filepath.Join(root, "shadow"), filepath.Join(root, "theirs")
	link, socket := filepath.Join(dir, "link"), filepath.Join(dir, "otlp.sock")
	assert.NilError(t, errors.Join(os.WriteFile(victim, nil, 0o600), os.Mkdir(dir, 0o755),
		os.Chown(dir, testenv.Attacker, -1)))
	testenv.ExchangeNames(t, dir, "link", "otlp.sock")
	for range 200 {
		os.Remove(socket)
		os.Remove(link)
		assert.NilError(t, errors.Join(os.Symlink(victim, link), os.Lchown(link, testenv.Attacker, -1)))
		r, err := Open(Config{Listen: "unix:" + socket, SocketMode: 0o666}, &store{})
		if err == nil {
			assert.Check(t, r.Shutdown(context.Background()))
		}
		unsafe := (*safedir.UnsafeError)(nil)
		assert.Check(t, errors.As(err, &unsafe) && strings.Contains(unsafe.Problem, dir+" belongs to user 1000"),
			"%v, want one that names the directory", err)
		if info, err := os.Stat(victim); err != nil || info.Mode() != 0o600 {
			t.Fatalf("root's file: %v, %v", info.Mode(), err)
		}
	}
}

// TCP on loopback works as a Unix socket does.
func TestLoopback(t *testing.T) {
	s := &store{}
	r, err := Open(Config{Listen: "127.0.0.1:0", MaxRequestBytes: 1000}, s)
	assert.NilError(t, err)
	defer r.Shutdown(context.Background())
	conn := dial(t, r.Addr().String())
	defer conn.Close()
	body := encode(t, metricRequest(gauge(1)))
	_, err = export(conn, otlp.Metrics, body)
	assert.Check(t, err)
	s.only(t)
	_, err = export(conn, otlp.Metrics, make([]byte, 1001))
	wantStatus(t, status.Convert(err), codes.ResourceExhausted, false)
	_, err = Open(Config{Listen: r.Addr().String()}, s)
	assert.Check(t, err != nil, "the port was bound twice")
}

// A handshake that fails is counted, and one that its client gives up; a probe that sends nothing, or ends when the
// handshake has, is not.
func TestMalformedTLS(t *testing.T) {
	a := testenv.NewAuthority(t)
	a.Issue("server")
	config := Config{Listen: "127.0.0.1:0", Certificate: a.File("server.pem"), Key: a.File("server.key")}
	r, err := Open(config, &store{})
	assert.NilError(t, err)
	defer r.Shutdown(context.Background())
	end := func(conn net.Conn) {
		assert.NilError(t, conn.(*net.TCPConn).CloseWrite())
		_, _ = io.Copy(io.Discard, conn) // until the receiver has given up
	}
	send := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.WriteString(conn, text)
			end(conn)
		}
	}
	client := &tls.Config{RootCAs: a.Pool(), ServerName: "127.0.0.1", NextProtos: []string{"h2"}}
	within := func(sent []byte, ends bool) func(net.Conn) {
		return func(conn net.Conn) {
			secure := tls.Client(conn, client)
			_, err := secure.Write(sent)
			assert.NilError(t, err)
			if ends {
				assert.NilError(t, secure.CloseWrite())
			}
			end(conn)
		}
	}
	for _, c := range []struct {
		name  string
		do    func(net.Conn)
		count uint64
	}{
		{"nothing", end, 0},
		{"handshake alone", func(conn net.Conn) {
			assert.NilError(t, tls.Client(conn, client).Handshake())
			end(conn)
		}, 0},
		{"no handshake", send("no handshake"), 1},
		{"half a hello", send("\x16\x03\x01\x02\x00\x01\x00"), 2},
		{"a hello", func(conn net.Conn) {
			assert.Check(t, tls.Client(hangUp{conn}, client).Handshake() != nil)
			end(conn)
		}, 3},
		{"unknown authority", func(conn net.Conn) {
			assert.Check(t, tls.Client(conn, &tls.Config{ServerName: "127.0.0.1"}).Handshake() != nil)
			end(conn)
		}, 4},
		{"HTTP", func(conn net.Conn) {
			_, _ = io.WriteString(conn, "POST /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n")
			answer, _ := io.ReadAll(conn)
			const want = "HTTP/1.0 400 Bad Request\r\n\r\nThis is a port for HTTPS.\n"
			assert.Check(t, string(answer) == want, "%q", answer)
		}, 5},
		{"HTTP/2 without a call", within(opening(), true), 5},
		{"a call", within(append(opening(), call(1)...), true), 5},
		{"half a call", within(append(opening(), call(1)[:20]...), true), 6},
		{"half a call, and no end of TLS", within(append(opening(), call(1)[:4]...), false), 7},
	} {
		conn, err := net.Dial("tcp", r.Addr().String())
		assert.NilError(t, err)
		defer conn.Close()
		c.do(conn)
		testenv.Poll(t, patience, c.name+" is counted so", func() bool {
			return r.Status().Connections == 0 && r.counters.strayCounts()[StrayMalformed] == c.count
		})
	}
	r.Shutdown(context.Background())
	assert.Check(t, r.counters.strayCounts()[StrayMalformed] == 7)
}

// hangUp is a connection whose client does not wait for an answer.
type hangUp struct{ net.Conn }

func (hangUp) Read([]byte) (int, error) { return 0, io.EOF }

// TLS, with client certificates if they are required. Changed files apply to new connections.
func TestTLS(t *testing.T) {
	a, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	a.Issue("server")
	a.Issue("client")
	other.Issue("client")

	s := &store{}
	config := Config{Listen: "127.0.0.1:0", Certificate: a.File("server.pem"), Key: a.File("server.key"),
		ClientAuthorities: a.File("authority.pem")}
	r, err := Open(config, s)
	assert.NilError(t, err)
	defer r.Shutdown(context.Background())
	try := func(from *testenv.Authority) (*tls.ConnectionState, error) {
		var state *tls.ConnectionState
		c := &tls.Config{RootCAs: a.Pool(),
			VerifyConnection: func(s tls.ConnectionState) error { state = &s; return nil }}
		if from != nil {
			c.Certificates = []tls.Certificate{from.Pair("client")}
		}
		conn := dial(t, r.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(c)))
		defer conn.Close()
		body, _ := sound(t, otlp.Traces)
		_, err := export(conn, otlp.Traces, body)
		return state, err
	}
	before, err := try(a)
	assert.NilError(t, err)
	s.only(t)
	for name, from := range map[string]*testenv.Authority{"another authority": other, "none": nil} {
		_, err := try(from)
		assert.Check(t, status.Code(err) == codes.Unavailable, "a client with a certificate of %s: %v", name, err)
	}
	a.Issue("server")
	after, err := try(a)
	assert.NilError(t, err)
	assert.Check(t, !before.PeerCertificates[0].Equal(after.PeerCertificates[0]),
		"a new connection got the old certificate")
	plain := dial(t, r.Addr().String())
	_, err = export(plain, otlp.Traces, nil)
	assert.Check(t, status.Code(err) == codes.Unavailable, "without TLS: %v", err)

	assert.NilError(t, os.WriteFile(a.File("empty.pem"), nil, 0o600))
	for _, spoil := range []func(*Config){
		func(c *Config) { c.Certificate = a.File("none.pem") },
		func(c *Config) { c.ClientAuthorities = a.File("none.pem") },
		func(c *Config) { c.ClientAuthorities = a.File("empty.pem") },
	} {
		bad := config
		spoil(&bad)
		if _, err := Open(bad, s); err == nil {
			t.Errorf("%+v: opened", bad)
		}
	}
}
