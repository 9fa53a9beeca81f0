package endpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/frame"
	"correlator/internal/host/sockfile"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, printed, network, address string
		format                          frame.Format
	}{
		{"tcp://127.0.0.1", "tcp://127.0.0.1:11235", "tcp", "127.0.0.1:11235", frame.V2},
		{"tcp://0.0.0.0:0", "tcp://0.0.0.0:0", "tcp", "0.0.0.0:0", frame.V2},
		{"TCP-V2://broker.example/", "tcp://broker.example:11235", "tcp", "broker.example:11235", frame.V2},
		{"tcp-v1://localhost", "tcp-v1://localhost:11234", "tcp", "localhost:11234", frame.V1},
		{"tcp://[::1]:99", "tcp://[::1]:99", "tcp", "[::1]:99", frame.V2},
		{"tcp://[::1]", "tcp://[::1]:11235", "tcp", "[::1]:11235", frame.V2},
		{"uds:/run/dots.sock", "uds:///run/dots.sock", "unix", "/run/dots.sock", frame.V2},
		{"uds:///run/dots.sock", "uds:///run/dots.sock", "unix", "/run/dots.sock", frame.V2},
		{"uds-v2:/a@b", "uds:///a@b", "unix", "/a@b", frame.V2},
		{"uds-v1:///run/v1", "uds-v1:///run/v1", "unix", "/run/v1", frame.V1},
		{"ws://host:11233", "ws://host:11233", "tcp", "host:11233", frame.V2},
		{"ws://host:11233/", "ws://host:11233", "tcp", "host:11233", frame.V2},
	} {
		e, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if e.String() != c.printed || e.Network() != c.network || e.Address() != c.address || e.Format() != c.format {
			t.Errorf("%s: %s, %s %s, format %d", c.text, e, e.Network(), e.Address(), e.Format())
		}
		if e.WebSocket() != strings.HasPrefix(c.text, "ws") {
			t.Errorf("%s: WebSocket %v", c.text, e.WebSocket())
		}
		again, err := Parse(e.String())
		assert.Check(t, err == nil && again == e, "%s: printed and parsed again: %+v, %v", c.text, again, err)
	}
}

func TestUser(t *testing.T) {
	for _, c := range []struct{ text, user, secret, printed string }{
		{"tcp://me:s3cret@host:1", "me", "s3cret", "tcp://me@host:1"},
		{"tcp://me@host:1", "me", "", "tcp://me@host:1"},
		{"tcp://:s3cret@host:1", "", "s3cret", "tcp://host:1"},
		{"tcp://a%40b:c%3ad:e@host:1", "a@b", "c:d:e", "tcp://a@b@host:1"},
		{"uds://me:s3cret@/run/x", "me", "s3cret", "uds://me@/run/x"},
		{"ws://a%2fb:x@host:1", "a/b", "x", "ws://a%2Fb@host:1"},
	} {
		e, err := Parse(c.text)
		assert.Check(t, err == nil && e.User == c.user && e.Secret == c.secret && e.String() == c.printed,
			"%s: %+v, %s, %v", c.text, e, e, err)
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{
		"", "tcp", "tcp:", "tcp:host", "tcp://", "tcp://:1", "tcp://host:", "tcp://host:65536", "tcp://host:-1",
		"tcp://host:x", "tcp://::1", "tcp://[::1", "tcp://::1]:1", "tcp://host/path", "tcp://host?x", "http://host",
		"ws://host", "uds:", "uds:relative", "uds://host", "uds://", "uds:/a\x00b", "tcp://a%zz:secret@host",
		"tcp://a:%z@host", "uds://a%z@/x", "uds:/" + strings.Repeat("x", 107), "tcp://ho st",
	} {
		if e, err := Parse(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %+v, %v", text, e, err)
		} else if strings.Contains(err.Error(), "secret") && strings.Contains(text, ":secret@") {
			t.Errorf("%q: the secret is in the error: %v", text, err)
		}
	}
}

func TestParseList(t *testing.T) {
	list, err := ParseList("  tcp://127.0.0.1 uds:/run/x\t tcp-v1://[::]:5 ")
	assert.Check(t, err == nil && len(list) == 3 && list[1].Path == "/run/x" && list[2].Host == "::",
		"%+v, %v", list, err)
	if list, err := ParseList(" "); err != nil || list != nil {
		t.Errorf("an empty list: %v, %v", list, err)
	}
	_, err = ParseList("tcp://a nonsense")
	assert.Check(t, errors.Is(err, ErrInvalid), "a list with nonsense: %v", err)
}

func TestListenDial(t *testing.T) {
	for _, text := range []string{"tcp://127.0.0.1:0", "uds://" + t.TempDir() + "/s"} {
		e, err := Parse(text)
		assert.NilError(t, err)
		l, err := e.Listen(t.Context(), 0o600)
		assert.NilError(t, err)
		if e.Network() == "tcp" {
			e, err = Parse("tcp://" + l.Addr().String())
			assert.NilError(t, err)
		}
		c, err := e.Dial(t.Context())
		assert.NilError(t, err)
		_ = c.Close()
		_ = l.Close()
		if _, err := e.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), e.String()) {
			t.Errorf("%s: connecting without a listener: %v", e, err)
		}
	}
}

// TestListenReplaces checks that the file of a killed broker is replaced, and not that of one that
// lives.
func TestListenReplaces(t *testing.T) {
	e, err := Parse("uds://" + filepath.Join(t.TempDir(), "s"))
	assert.NilError(t, err)
	killed, err := e.Listen(t.Context(), 0o600)
	assert.NilError(t, err)
	_ = killed.(*sockfile.Listener).UnixListener.Close() // as if its process was killed
	_, err = os.Stat(e.Path)
	assert.NilError(t, err)
	l, err := e.Listen(t.Context(), 0o640)
	assert.NilError(t, err)
	info, err := os.Stat(e.Path)
	assert.Check(t, err == nil && info.Mode().Perm() == 0o640, "%v %v", info, err)
	_, err = e.Listen(t.Context(), 0o600)
	assert.Check(t, err != nil, "two listeners at one path")
	_ = l.Close()
	_, err = os.Stat(e.Path)
	assert.Check(t, err != nil, "the file is left")
	e.User = "u"
	_, err = e.Listen(t.Context(), 0o600)
	assert.Check(t, err != nil && strings.Contains(err.Error(), "no user"), err)
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"tcp://a:b@[::1]:9", "uds:/x", "ws://h:1", "uds://u:s@/p", "tcp://a%40b@host"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		e.Secret = "" // not printed
		again, err := Parse(e.String())
		assert.Check(t, err == nil && again == e, "%q: %+v printed as %q is %+v, %v", text, e, e, again, err)
	})
}
