package check

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/host/sockfile"
	"correlator/internal/lab/testenv"
)

// Of every socket it is said whether it can be bound, and else what to do. (That it can be bound then, and
// only then, is for the tests of sockfile.)
func TestSockets(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	for _, name := range []string{"stale", "used"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		assert.NilError(t, err)
		defer l.Close()
		if name == "stale" { // what a killed agent leaves
			l.SetUnlinkOnClose(false)
			l.Close()
		}
	}
	testenv.WriteFile(t, filepath.Join(dir, "file"), "")
	theirs := filepath.Join(dir, "theirs")
	assert.NilError(t, errors.Join(os.Mkdir(theirs, 0o755), os.Chown(theirs, testenv.Attacker, testenv.Attacker)))
	for name, set := range map[string]func(c *Config, path string){
		"admin-socket":       func(c *Config, path string) { c.AdminSocket = path },
		"feed-socket":        func(c *Config, path string) { c.FeedSocket = path },
		"otlp-listen":        func(c *Config, path string) { c.Export.Receiver.Listen = "unix:" + path },
		"opencensus-socket":  func(c *Config, path string) { c.Export.OpenCensus.Receiver.Socket = path },
		"live-listen uds://": func(c *Config, path string) { c.LiveListen = []string{"uds:" + path} },
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				path           string
				status         Status
				detail, remedy string
			}{
				{"socket", OK, "can be bound", ""},
				{"stale", OK, "can be bound", ""},
				{"new/socket", OK, "can be bound", ""}, // beside the admin socket
				{"missing/directory/socket", Missing, "no such file", "create its directory"},
				{"file", Missing, "no socket is in the way", "remove that file"},
				{"used", Missing, "in use", "stop the agent that uses it"},
				{"theirs/socket", Missing, "belongs to user", "chown it to root"},
				{strings.Repeat("s", 108), Missing, "too long", "name a shorter path"},
			} {
				m := fakeMachine(t, nil)
				m.config.AdminSocket = filepath.Join(dir, "new", "admin")
				path, listed := filepath.Join(dir, c.path), name
				set(&m.config, path)
				if live := strings.HasSuffix(name, "://"); live && len(c.path) == 108 {
					continue // no URI
				} else if live {
					listed += path
				}
				m.admin = newMachine(m.config).admin
				if name == "admin-socket" && c.path == "used" {
					c.status, c.detail, c.remedy = Degraded, "probably by the agent", "stop that agent"
				}
				found(t, m, listed).verify(t, c.status, c.detail, c.remedy)
				if c.path == "used" { // by the agent that has the admin socket
					m.admin = func() error { return sockfile.ErrInUse }
					found(t, m, listed).verify(t, Degraded, "probably by the agent", "stop that agent")
				}
			}
		})
	}
	m := fakeMachine(t, nil)
	m.config.AdminSocket = filepath.Join(theirs, "new", "admin") // whose directory run would make
	m.admin = newMachine(m.config).admin
	found(t, m, "admin-socket").verify(t, Missing, "belongs to user", "chown it to root")
}
