package sockfile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/host/safedir"
	"correlator/internal/lab/testenv"
)

// networks are the kinds of sockets, with their types.
var networks = map[string]int{"unix": unix.SOCK_STREAM, "unixgram": unix.SOCK_DGRAM}

func eachNetwork(t *testing.T, test func(t *testing.T, network string)) {
	for network := range networks {
		t.Run(network, func(t *testing.T) { test(t, network) })
	}
}

// bound is a server's socket.
type bound struct {
	*File
	conn io.Closer
}

func (b bound) Close() {
	b.Remove()
	b.conn.Close()
}

func bind(network, path string) (b bound, err error) {
	return bindMode(network, path, DefaultMode, func() {})
}

// bindMode calls hasName as soon as the socket has a name.
func bindMode(network, path string, mode fs.FileMode, hasName func()) (b bound, err error) {
	b.File, err = Bind(network, path, mode, func(config net.ListenConfig, path string) (err error) {
		defer hasName()
		if network == "unixgram" {
			b.conn, err = config.ListenPacket(context.Background(), network, path)
			return err
		}
		listener, err := config.Listen(context.Background(), network, path)
		if err == nil {
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			b.conn = listener
		}
		return err
	})
	return b, err
}

func openDir(t *testing.T, path string) *safedir.Dir {
	t.Helper()
	dir, err := safedir.Open(path)
	assert.NilError(t, err)
	t.Cleanup(dir.Close)
	return dir
}

func mustBind(t *testing.T, network, path string) bound {
	t.Helper()
	b, err := bind(network, path)
	assert.NilError(t, err)
	t.Cleanup(b.Close)
	return b
}

// bare binds a socket as another program does.
func bare(t *testing.T, kind int, path string) (fd int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
	assert.NilError(t, err)
	assert.NilError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	return fd
}

func TestMode(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		for _, umask := range []int{0, 0o022, 0o077} {
			path := filepath.Join(t.TempDir(), "socket")
			old := unix.Umask(umask)
			mustBind(t, network, path)
			unix.Umask(old)
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != os.ModeSocket|0o600 {
				t.Errorf("umask %#o: %v, %v", umask, info.Mode(), err)
			}
		}
	})
}

// A socket has the mode that was asked for, whatever the umask, and never one with more rights: as
// soon as it has a name it has the mode less the umask.
func TestOtherModes(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
			for _, umask := range []int{0, 0o022, 0o077} {
				var atOnce fs.FileMode
				path := filepath.Join(t.TempDir(), "socket")
				old := unix.Umask(umask)
				b, err := bindMode(network, path, mode, func() {
					if info, err := os.Lstat(path); err == nil {
						atOnce = info.Mode().Perm()
					}
				})
				unix.Umask(old)
				assert.NilError(t, err)
				t.Cleanup(b.Close)
				info, err := os.Lstat(path)
				if err != nil || info.Mode() != os.ModeSocket|mode || atOnce != mode&^fs.FileMode(umask) {
					t.Errorf("mode %o, umask %#o: at once %o, then %v, %v", mode, umask, atOnce, info.Mode(), err)
				}
			}
		}
	})
}

func TestReplacesStaleSocketOnly(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		dir := t.TempDir()
		path := filepath.Join(dir, "socket")
		refused := func(what string, want error) {
			t.Helper()
			before, err := os.Lstat(path)
			assert.NilError(t, err)
			_, err = bind(network, path)
			assert.Check(t, errors.Is(err, want), "%s: %v, want %v", what, err, want)
			after, err := os.Lstat(path)
			assert.Check(t, err == nil && os.SameFile(before, after), "%s was replaced: %v", what, err)
			os.Remove(path)
		}

		unix.Close(bare(t, networks[network], path))
		ours := mustBind(t, network, path)
		refused("our own live socket", ErrInUse)
		ours.Close()

		for other, kind := range networks {
			if other != network {
				live := bare(t, kind, path)
				if kind == unix.SOCK_STREAM {
					assert.NilError(t, unix.Listen(live, 1))
				}
				refused("a live socket of another kind", ErrInUse)
				unix.Close(live)
			}
		}

		assert.NilError(t, os.WriteFile(path, []byte("precious"), 0o600))
		refused("a file", ErrNotSocket)
		assert.NilError(t, unix.Mkfifo(path, 0o600))
		refused("a FIFO", ErrNotSocket)
		assert.NilError(t, os.Symlink(filepath.Join(dir, "elsewhere"), path))
		refused("a symbolic link", ErrNotSocket)
		assert.NilError(t, os.Mkdir(path, 0o700))
		refused("a directory", ErrNotSocket)

		_, err := bind(network, filepath.Join(dir, "missing/socket"))
		assert.Check(t, errors.Is(err, os.ErrNotExist), "in a missing directory: %v", err)
	})
}

// The name of an abstract socket is a file name like any other here.
func TestAtSign(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		t.Chdir(t.TempDir())
		mustBind(t, network, "@socket")
		_, err := os.Lstat("@socket")
		assert.Check(t, err)
	})
}

// Of servers that start together on a stale socket one gets it, and the others leave it alone.
func TestTogether(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		for range 30 {
			path := filepath.Join(t.TempDir(), "socket")
			unix.Close(bare(t, networks[network], path))
			var winners atomic.Int32
			var all sync.WaitGroup
			start := make(chan struct{})
			for range 4 {
				all.Go(func() {
					<-start
					b, err := bind(network, path)
					if err == nil {
						winners.Add(1)
						t.Cleanup(b.Close)
					} else if !errors.Is(err, ErrInUse) {
						t.Error(err)
					}
				})
			}
			close(start)
			all.Wait()
			if winners.Load() != 1 {
				t.Fatalf("%d servers have the socket", winners.Load())
			}
			conn, err := net.Dial(network, path)
			assert.NilError(t, err)
			conn.Close()
		}
	})
}

func TestWhileAnotherBinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	lock, err := openLock(openDir(t, filepath.Dir(path)), filepath.Base(path), unix.O_CREAT)
	assert.NilError(t, err)
	defer lock.Close()
	_, err = bind("unix", path)
	assert.Check(t, errors.Is(err, ErrInUse), "%v, want ErrInUse", err)
}

// A lock file that others could lock is refused.
func TestForeignLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	assert.NilError(t, os.WriteFile(path+".lock", nil, 0o644))
	_, err := bind("unix", path)
	assert.Check(t, errors.Is(err, ErrNotSocket), "%v, want ErrNotSocket", err)
}

// Remove leaves the socket of another server alone that has taken the path meanwhile.
func TestRemoveLeavesOthersSocket(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		path := filepath.Join(t.TempDir(), "socket")
		ours := mustBind(t, network, path)
		os.Rename(path, path+".old") // keeps the inode number from being given out again
		other := mustBind(t, network, path)
		ours.Close()
		if stat, err := other.dir.Lstat("socket"); err != nil || stat.Dev != other.dev || stat.Ino != other.ino {
			t.Errorf("the other server's socket is gone: %v", err)
		}
		other.Remove()
		_, err := os.Lstat(path)
		assert.Check(t, errors.Is(err, os.ErrNotExist), "our own is not: %v", err)
	})
}

// Where another user owns a directory on the way and exchanges it for a link to one of root's, a
// socket is neither bound nor removed, however often the server starts. Root's own socket there
// stays.
func TestBindWhileNamesAreExchanged(t *testing.T) {
	testenv.NeedRoot(t)
	eachNetwork(t, func(t *testing.T, network string) {
		root := t.TempDir()
		theirs, victim := filepath.Join(root, "theirs"), filepath.Join(root, "victim")
		for _, dir := range []string{victim, theirs, filepath.Join(theirs, "run")} {
			assert.NilError(t, os.Mkdir(dir, 0o755))
			unix.Close(bare(t, networks[network], filepath.Join(dir, "socket"))) // stale
		}
		assert.NilError(t, errors.Join(os.Symlink("../victim", filepath.Join(theirs, "link")),
			os.Chown(theirs, testenv.Attacker, -1)))
		before, err := os.Lstat(filepath.Join(victim, "socket"))
		assert.NilError(t, err)
		testenv.ExchangeNames(t, theirs, "run", "link")
		for range 50 {
			b, err := bind(network, filepath.Join(theirs, "run", "socket"))
			if err == nil {
				b.Close()
			}
			unsafe := (*safedir.UnsafeError)(nil)
			if !errors.As(err, &unsafe) || !strings.Contains(unsafe.Problem, theirs+" belongs to user 1000") {
				t.Fatalf("%v, want one that names the directory", err)
			}
			assert.Assert(t, errors.As(Probe(network, filepath.Join(theirs, "run", "socket")), &unsafe),
				"Probe differs")
		}
		after, err := os.Lstat(filepath.Join(victim, "socket"))
		assert.Check(t, err == nil && os.SameFile(before, after), "root's socket: %v", err)
		entries, err := os.ReadDir(victim)
		assert.Check(t, err == nil && len(entries) == 1, "beside it: %v, %v", entries, err)
	})
}

// In a directory like /tmp, a socket is bound; but not where another user has put something.
func TestSticky(t *testing.T) {
	testenv.NeedRoot(t)
	eachNetwork(t, func(t *testing.T, network string) {
		dir := t.TempDir()
		assert.NilError(t, os.Chmod(dir, os.ModeSticky|0o777))
		path := filepath.Join(dir, "socket")
		mustBind(t, network, path).Close()

		unix.Close(bare(t, networks[network], path))
		for _, theirs := range []string{path, path + ".lock"} {
			assert.NilError(t, os.Lchown(theirs, testenv.Attacker, -1))
			_, err := bind(network, path)
			for _, err := range []error{err, Probe(network, path)} {
				unsafe := (*safedir.UnsafeError)(nil)
				if !errors.As(err, &unsafe) || !strings.HasPrefix(unsafe.Problem, theirs+" belongs to user 1000") {
					t.Errorf("%v, want one that names %s of another", err, theirs)
				}
			}
		}
	})
}
