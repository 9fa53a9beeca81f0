package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// listen is a receiver at a real address; config nil is plain text.
func listen(t *testing.T, network, address string, config *tls.Config) (*receiver, string) {
	t.Helper()
	listener, err := net.Listen(network, address)
	assert.NilError(t, err)
	r := &receiver{t: t}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(r.handle), grpc.StatsHandler(wireSizes{}),
	}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	r.server = grpc.NewServer(options...)
	go r.server.Serve(listener)
	t.Cleanup(r.server.Stop)
	return r, listener.Addr().String()
}

// Over real sockets: plain text, TLS and mTLS, as the endpoint and the certificates say.
func TestEndpoints(t *testing.T) {
	a := testenv.NewAuthority(t)
	a.Issue("server")
	a.Issue("client")
	oneSided := &tls.Config{Certificates: []tls.Certificate{a.Pair("server")}}
	mutual := oneSided.Clone()
	mutual.ClientCAs, mutual.ClientAuth = a.Pool(), tls.RequireAndVerifyClientCert

	plain, plainAddr := listen(t, "tcp", "127.0.0.1:0", nil)
	socket := filepath.Join(t.TempDir(), "otlp.sock")
	local, _ := listen(t, "unix", socket, nil)
	secure, secureAddr := listen(t, "tcp", "127.0.0.1:0", oneSided)
	both, bothAddr := listen(t, "tcp", "127.0.0.1:0", mutual)
	old := oneSided.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, oldAddr := listen(t, "tcp", "127.0.0.1:0", old)
	ca := func(d *Destination) { d.Certificate = a.File("authority.pem") }

	for _, c := range []struct {
		name     string
		endpoint string
		set      func(*Destination)
		receiver *receiver // nil: no connection
		err      string
	}{
		{"http", "http://" + plainAddr, func(*Destination) {}, plain, ""},
		{"http goes before a certificate", "http://" + plainAddr, ca, plain, ""},
		{"insecure", plainAddr, func(d *Destination) { d.Insecure = true }, plain, ""},
		{"unix", "unix:" + socket, func(*Destination) {}, local, ""},
		{"https", "https://" + secureAddr, ca, secure, ""},
		{"https goes before insecure", "https://" + secureAddr, func(d *Destination) { ca(d); d.Insecure = true },
			secure, ""},
		{"no scheme is TLS", secureAddr, ca, secure, ""},
		{"mutual", "https://" + bothAddr, func(d *Destination) {
			ca(d)
			d.ClientCertificate, d.ClientKey = a.File("client.pem"), a.File("client.key")
		}, both, ""},
		{"unknown authority", "https://" + secureAddr, func(*Destination) {}, nil, "certificate"},
		{"TLS 1.1", "https://" + oldAddr, ca, nil, "protocol version"},
		{"TLS to plain text", "https://" + plainAddr, ca, nil, "tls"},
		{"nobody", "unix:" + socket + ".not", func(*Destination) {}, nil, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewDestination(c.endpoint)
			d.Name = "a"
			d.Timeout = time.Minute // a busy machine is no failure here
			c.set(&d)
			err := TryConnect(t.Context(), d, "1")
			if c.receiver == nil {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), c.endpoint) {
					t.Fatalf("TryConnect: %v", err)
				}
			} else if err != nil {
				t.Fatalf("TryConnect: %v", err)
			}

			before := 0
			if c.receiver != nil {
				before = len(c.receiver.got())
			}
			x, err := Open(Options{Destinations: []Destination{d}})
			assert.NilError(t, err)
			defer x.Shutdown(t.Context())
			x.Enqueue(NewBatch(Metrics, []byte("x"), 2, time.Now()))
			testenv.Poll(t, time.Minute, "an answer, or an error", func() bool {
				s := x.Status()[0]
				return s.Sent == 2 || s.LastError != nil
			})
			s := x.Status()[0]
			if c.receiver == nil {
				got := s.LastError.String()
				assert.Check(t, strings.HasPrefix(got, "UNAVAILABLE: ") && strings.Contains(got, c.err),
					"last error %q", got)
			} else if got := c.receiver.got(); s.Sent != 2 || len(got) != before+1 {
				t.Errorf("%d requests, status %+v", len(got)-before, s)
			}
		})
	}
}

// A client certificate that is replaced on disk is used for the next connection.
func TestClientCertificateIsReadAgain(t *testing.T) {
	a := testenv.NewAuthority(t)
	a.Issue("client")
	d := NewDestination("https://127.0.0.1:1")
	d.ClientCertificate, d.ClientKey = a.File("client.pem"), a.File("client.key")
	config, err := tlsConfig(&d)
	assert.NilError(t, err)
	first, err := config.GetClientCertificate(nil)
	assert.NilError(t, err)
	a.Issue("client")
	second, err := config.GetClientCertificate(nil)
	assert.Check(t, err == nil && !bytes.Equal(first.Certificate[0], second.Certificate[0]),
		"the certificate is the old one; %v", err)
}

// The compressor that is registered as gzip passes on gzip, and makes gzip of everything else, in
// whatever pieces it comes.
func TestPassingCompressor(t *testing.T) {
	c := encoding.GetCompressor("gzip")
	ours := (&compressor{}).compress([]byte("hello"))
	for _, pieces := range [][]string{
		{""}, {"x"}, {"x", "y"}, {"", "xyz"}, {"hello", "world"}, {"\x1f"}, {"\x1f", "x"},
		{string(ours)}, {string(ours[:1]), string(ours[1:])},
		{string(ours[:1]), "", string(ours[1:2]), string(ours[2:])},
	} {
		var out bytes.Buffer
		w, err := c.Compress(&out)
		assert.NilError(t, err)
		for _, p := range pieces {
			n, err := w.Write([]byte(p))
			assert.Assert(t, n == len(p) && err == nil, "%q: wrote %d, %v", pieces, n, err)
		}
		assert.NilError(t, w.Close())
		in := strings.Join(pieces, "")
		if in == string(ours) {
			if !bytes.Equal(out.Bytes(), ours) {
				t.Errorf("%q: gzip became %x", pieces, out.Bytes())
			}
			in = "hello"
		}
		r, err := gzip.NewReader(&out)
		assert.NilError(t, err, "%q", pieces)
		back, err := io.ReadAll(r)
		assert.Check(t, err == nil && string(back) == in, "%q: read back as %q, %v", pieces, back, err)
	}
}

// A connection whose other end has vanished is given up by the kernel soon.
func TestVanishedReceiver(t *testing.T) {
	r, addr := listen(t, "tcp", "127.0.0.1:0", nil)
	conns := make(chan net.Conn, 1)
	d := NewDestination("http://" + addr)
	d.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		conns <- c
		return c, err
	}
	x, err := Open(Options{Destinations: []Destination{d}})
	assert.NilError(t, err)
	defer x.Shutdown(t.Context())
	x.Enqueue(NewBatch(Metrics, []byte("x"), 1, time.Now()))
	testenv.Poll(t, time.Minute, "a request", func() bool { return len(r.got()) > 0 })
	raw, err := (<-conns).(*net.TCPConn).SyscallConn()
	assert.NilError(t, err)
	var millis int
	raw.Control(func(fd uintptr) { millis, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) })
	if err != nil || millis != 20_000 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, %v", millis, err)
	}
}
