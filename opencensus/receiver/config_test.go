package receiver

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/sockfile"
	"correlator/internal/lab/testenv"
)

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"":                                   {Socket: "/run/x.sock"},
		"socket without a path":              {},
		"is a path of":                       {Socket: "/run/" + strings.Repeat("x", 200)},
		"more than permissions":              {Socket: "/run/x.sock", SocketMode: fs.ModeSetuid | 0o600},
		"max-connections -1: not in":         {Socket: "/run/x.sock", MaxConnections: -1},
		"max-connections 2000000: not in":    {Socket: "/run/x.sock", MaxConnections: 2_000_000},
		"max-trace-bytes 1000: not in":       {Socket: "/run/x.sock", MaxTraceBytes: 1000},
		"max-trace-bytes 67108865: not in":   {Socket: "/run/x.sock", MaxTraceBytes: 64<<20 + 1},
		"buffer-bytes 8388608: less than 33": {Socket: "/run/x.sock", BufferBytes: 8 << 20},
		"buffer-bytes 1: less than 8388608":  {Socket: "/run/x.sock", BufferBytes: 1, MaxTraceBytes: 1 << 20},
		"socket group: group: unknown group": {Socket: "/run/x.sock", Group: "nobody-has-this"},
	} {
		err := c.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	if d := (&Config{}).withDefaults(); d.SocketMode != 0o660 || d.MaxConnections != 4096 || d.BufferBytes != 256<<20 ||
		d.MaxTraceBytes != 8<<20 {
		t.Errorf("defaults: %+v", d)
	}
}

func TestGroup(t *testing.T) {
	for group, want := range map[string]int{"": sockfile.OwnGroup, "4711": 4711, "0": 0, "root": 0} {
		got, err := (&Config{Group: group}).gid()
		assert.Check(t, err == nil && got == want, "%q: %d, %v, want %d", group, got, err, want)
	}
	for _, group := range []string{"-1", "2147483648", "nobody-has-this"} {
		got, err := (&Config{Group: group}).gid()
		assert.Check(t, err != nil, "%q: %d", group, got)
	}
}

// The socket has the mode and the group that were asked for, and nobody else's place.
func TestSocket(t *testing.T) {
	testenv.NeedRoot(t)
	path := filepath.Join(openDir(t), "oc-daemon.sock")
	stale, err := net.Listen("unix", path)
	assert.NilError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close() // as when an agent is killed: the file stays
	c := Config{Socket: path, Group: "4711"}
	assert.Check(t, c.ProbeGroup(), "probe")
	l := openLab(t, c, Options{})
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil || stat.Mode != unix.S_IFSOCK|0o660 || stat.Gid != 4711 {
		t.Errorf("socket of group %d with mode %o, %v", stat.Gid, stat.Mode, err)
	}
	_, err = Open(c, Options{})
	assert.Check(t, errors.Is(err, sockfile.ErrInUse), "a second receiver: %v", err)
	got := l.Status().Path
	assert.Check(t, got == path, "path %q", got)
	l.finish()
	_, err = os.Lstat(path)
	assert.Check(t, errors.Is(err, fs.ErrNotExist), "after the shutdown: %v", err)
}

// The backlog is the largest that the kernel grants.
func TestBacklog(t *testing.T) {
	l, err := listen(&Config{Socket: filepath.Join(openDir(t), "socket"), SocketMode: 0o600, MaxConnections: 1})
	assert.NilError(t, err)
	defer l.Close()
	want := 0
	_, err = fmt.Sscan(string(testenv.ReadFile(t, "/proc/sys/net/core/somaxconn")), &want)
	assert.NilError(t, err)
	for i := range want { // nobody accepts them; the kernel has room for one more
		fd := connect(t, l.Addr().String())
		defer unix.Close(fd)
		assert.Check(t, i != 0 || l.hasBacklog(), "no backlog")
	}
}
