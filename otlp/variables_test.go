package otlp

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// setVariables sets variables of the environment, and empties the others that are about proxies.
func setVariables(t *testing.T, list ...string) {
	t.Helper()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD"} {
		t.Setenv(name, "")
		t.Setenv(strings.ToLower(name), "")
	}
	for _, variable := range list {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

// Which proxy a destination's requests go through, or the error: it names the variable and has
// nothing of its value. No request goes around a proxy that was meant.
func TestProxyVariables(t *testing.T) {
	const form = " not of the form http://[USER:PASSWORD@]HOST:PORT"
	h, https, g := "http://receiver:4318", "https://receiver:4318", "http://10.77.0.3:4317"
	for _, c := range []struct {
		endpoint  string
		variables []string
		want      string // the proxy and its variable, or the error
	}{
		{h, nil, ""},
		{h, []string{"HTTP_PROXY=http://user:s3cret@10.77.0.2:3128"}, "10.77.0.2:3128 HTTP_PROXY"},
		{h, []string{"http_proxy=http://user:s3%25ret@10.77.0.2:3128/"}, "10.77.0.2:3128 http_proxy"},
		{h, []string{"HTTP_PROXY=10.77.0.2:3128"}, "10.77.0.2:3128 HTTP_PROXY"},
		{h, []string{"HTTP_PROXY=socks5://[fe80::1]:1080"}, "[fe80::1]:1080 HTTP_PROXY"},
		{h, []string{"HTTPS_PROXY=http://p:1"}, ""},
		{https, []string{"HTTP_PROXY=http://p:1"}, ""},
		{https, []string{"HTTPS_PROXY=https://p"}, "p HTTPS_PROXY"},
		{g, []string{"HTTPS_PROXY=p:1"}, "p:1 HTTPS_PROXY"},
		{g, []string{"HTTP_PROXY=s3cret%zz"}, ""},
		{"unix:/s", []string{"HTTPS_PROXY=s3cret%zz"}, ""},
		{"http://localhost:1", []string{"HTTPS_PROXY=s3cret%zz"}, ""},

		{h, []string{"HTTP_PROXY=http://user:s3cret%ret@10.77.0.2:3128"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=http://user:s3cret#ret@10.77.0.2:3128"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=http://user:s3cret/ret@10.77.0.2:3128"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=http://user:s3cret?ret@10.77.0.2:3128"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=http://user:s3cret[ret@10.77.0.2:3128"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=http://user:12#s3cret@10.77.0.2:3128"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=http://user:12/s3cret@10.77.0.2:3128"}, "HTTP_PROXY:" + form},
		{h, []string{"http_proxy=http://user:12?s3cret@10.77.0.2:3128"}, "http_proxy:" + form},
		{h, []string{`HTTP_PROXY="http://10.77.0.2:3128"`}, "HTTP_PROXY:" + form},
		{h, []string{`HTTP_PROXY='10.77.0.2'`}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=proxy:x"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=proxy:"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=proxy:65536"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=http://"}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY= "}, "HTTP_PROXY:" + form},
		{h, []string{"HTTP_PROXY=ftp://p:1"}, `HTTP_PROXY: scheme "ftp": proxies of the protocol http/protobuf`},
		{h, []string{"HTTP_PROXY=http://p:1", "REQUEST_METHOD=GET"}, "HTTP_PROXY: refusing to use HTTP_PROXY"},
		{g, []string{"HTTPS_PROXY=https://p:1"}, `HTTPS_PROXY: scheme "https": proxies of the protocol grpc are of http`},
		{g, []string{"https_proxy=s3cret%zz"}, "https_proxy:" + form},
		{g, []string{"ALL_PROXY=socks5://p:1"}, "ALL_PROXY: not read here: set HTTPS_PROXY"},
		{h, []string{"all_proxy=http://user:s3cret@p:1", "HTTPS_PROXY=p:1"},
			"ALL_PROXY: not read here: set HTTP_PROXY"},
		{h, []string{"ALL_PROXY=http://q:1", "HTTP_PROXY=p:1"}, "p:1 HTTP_PROXY"},
		{g, []string{"ALL_PROXY=http://q:1", "NO_PROXY=10.77.0.0/16"}, ""},
		{"http://localhost:1", []string{"ALL_PROXY=http://q:1"}, ""},

		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=a, 10.77.0.0/16 ,b"}, ""},
		{g, []string{"HTTPS_PROXY=p:1", "no_proxy=10.77.0.3:4317"}, ""},
		{g, []string{"HTTPS_PROXY=s3cret%zz", "NO_PROXY=*"}, ""},
		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=10.78.0.0/16,.b,*.c,10.1.*,[::1]:9,::2,"}, "p:1 HTTPS_PROXY"},
		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=10.78.0.0/33,http://a/,x y;z,a.b:x,10.7.*"}, "p:1 HTTPS_PROXY"},
		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=a,10.77.0.0/33"}, "NO_PROXY: entry 2 is none of"},
		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=http://10.77.0.3"}, "NO_PROXY: entry 1 is none of"},
		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=a 10.77.0.3"}, "NO_PROXY: entry 1 is none of"},
		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=10.77.*"}, "NO_PROXY: entry 1 is none of"},
		{g, []string{"HTTPS_PROXY=p:1", "NO_PROXY=10.77.0.3:x"}, "NO_PROXY: entry 1 is none of"},
	} {
		setVariables(t, c.variables...)
		d := NewDestination(c.endpoint)
		d.Protocol = map[bool]Protocol{true: GRPC, false: HTTPProtobuf}[c.endpoint == g]
		where, err := d.parseEndpoint()
		assert.NilError(t, err)
		found, err := where.proxy(d.Protocol)
		if strings.Contains(c.want, ": ") {
			if assert.Check(t, err != nil, "%v: %v", c.variables, found) {
				assert.Check(t, strings.HasPrefix(err.Error(), "environment variable "+c.want), "%v: %v", c.variables,
					err)
				assert.Check(t, !strings.Contains(err.Error(), "s3"), "%v", err)
			}
			_, opened := openTransport(&d, "1", &compressor{})
			assert.Check(t, opened != nil && opened.Error() == err.Error(), "%v: %v", c.variables, opened)
			continue
		}
		got := ""
		if found.url != nil {
			got = found.url.Host + " " + found.variable
		}
		assert.Check(t, err == nil && got == c.want, "%s, %v: %q, %v", c.endpoint, c.variables, got, err)
	}
}

// Requests go to the proxy, with its password; what it refuses names it, without.
func TestHTTPProxy(t *testing.T) {
	setVariables(t, "HTTP_PROXY=http://user:s3%25ret@proxy:3128")
	s, d := serveHTTP(t, respondWith(407, "text/plain", "who?"))
	err := TryConnect(t.Context(), d, "1")
	assert.ErrorContains(t, err, "HTTP 407 Proxy Authentication Required: who? (through the proxy proxy:3128 of "+
		"HTTP_PROXY)")
	assert.Check(t, !strings.Contains(err.Error(), "s3"), "%v", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.got[0]
	q.Header["Authorization"] = q.Header["Proxy-Authorization"]
	user, password, _ := (&http.Request{Header: q.Header}).BasicAuth()
	assert.Check(t, q.URL.Host == "receiver" && user == "user" && password == "s3%ret", "%v, %s:%s", q.URL, user,
		password)
}

// The variables that take the place of the system's authorities name some, where they count.
func TestAuthorityVariables(t *testing.T) {
	a, dir := testenv.NewAuthority(t), t.TempDir()
	authority, empty := a.File("authority.pem"), filepath.Join(dir, "empty")
	testenv.WriteFile(t, empty, []byte("# none\n"))
	for _, c := range []struct{ variable, want string }{
		{"SSL_CERT_FILE=" + authority, ""}, {"SSL_CERT_DIR=" + dir, ""}, {"SSL_CERT_DIR=/nowhere:" + dir, ""},
		{"SSL_CERT_FILE=" + empty, "SSL_CERT_FILE: " + empty + " has no certificate"},
		{"SSL_CERT_FILE=/nowhere", "SSL_CERT_FILE: open /nowhere: no such file"},
		{"SSL_CERT_DIR=/nowhere:/neither", "SSL_CERT_DIR: open /nowhere: no such file"},
		{"SSL_CERT_DIR=" + empty, "SSL_CERT_DIR: "},
	} {
		t.Setenv("SSL_CERT_FILE", "")
		t.Setenv("SSL_CERT_DIR", "")
		setVariables(t, c.variable)
		for _, protocol := range []Protocol{GRPC, HTTPProtobuf} {
			for _, plain := range []string{"", "http://host", authority} {
				d := NewDestination("https://host")
				d.Protocol = protocol
				switch plain {
				case "http://host":
					d.Endpoint = plain
				case authority: // of the destination
					d.Certificate = plain
				}
				opened, err := openTransport(&d, "1", &compressor{})
				if err == nil {
					opened.close()
				}
				if c.want == "" || plain != "" {
					assert.Check(t, err == nil, "%s: %v", c.variable, err)
				} else {
					assert.Check(t, err != nil && strings.HasPrefix(err.Error(), "environment variable "+c.want), "%v",
						err)
				}
			}
		}
	}
}

// The resolver's setting is one that it knows.
func TestResolverVariable(t *testing.T) {
	for value, good := range map[string]bool{
		"": true, "netdns=go": true, "http2debug=1,netdns=go+2": true, "netdns=cgo": true, "netdns=1": true,
		"netdns=dns": false, "a=1,netdns=": true, "netdns=go+x": false,
	} {
		t.Setenv("GODEBUG", value)
		d := NewDestination("http://host")
		opened, err := openTransport(&d, "1", &compressor{})
		if err == nil {
			opened.close()
		}
		if good {
			assert.Check(t, err == nil, "%q: %v", value, err)
		} else {
			assert.ErrorContains(t, err, "environment variable GODEBUG: netdns: ")
		}
	}
}
