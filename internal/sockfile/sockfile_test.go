package sockfile

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
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
	b.File, err = Bind(network, path, func(config net.ListenConfig, path string) (err error) {
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

func mustBind(t *testing.T, network, path string) bound {
	t.Helper()
	b, err := bind(network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// bare binds a socket as another program does.
func bare(t *testing.T, kind int, path string) (fd int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
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

func TestReplacesStaleSocketOnly(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		dir := t.TempDir()
		path := filepath.Join(dir, "socket")
		refused := func(what string, want error) {
			t.Helper()
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bind(network, path); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("%s was replaced: %v", what, err)
			}
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
					if err := unix.Listen(live, 1); err != nil {
						t.Fatal(err)
					}
				}
				refused("a live socket of another kind", ErrInUse)
				unix.Close(live)
			}
		}

		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		refused("a file", ErrNotSocket)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		refused("a FIFO", ErrNotSocket)
		if err := os.Symlink(filepath.Join(dir, "elsewhere"), path); err != nil {
			t.Fatal(err)
		}
		refused("a symbolic link", ErrNotSocket)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		refused("a directory", ErrNotSocket)

		if _, err := bind(network, filepath.Join(dir, "missing/socket")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("in a missing directory: %v", err)
		}
	})
}

// The name of an abstract socket is a file name like any other here.
func TestAtSign(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		t.Chdir(t.TempDir())
		mustBind(t, network, "@socket")
		if _, err := os.Lstat("@socket"); err != nil {
			t.Error(err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
	})
}

func TestWhileAnotherBinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	lock, err := lockPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := bind("unix", path); !errors.Is(err, ErrInUse) {
		t.Errorf("%v, want ErrInUse", err)
	}
}

// A lock file that others could lock is refused.
func TestForeignLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(path+".lock", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := bind("unix", path); !errors.Is(err, ErrNotSocket) {
		t.Errorf("%v, want ErrNotSocket", err)
	}
}

// Remove leaves the socket of another server alone that has taken the path meanwhile.
func TestRemoveLeavesOthersSocket(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		path := filepath.Join(t.TempDir(), "socket")
		ours := mustBind(t, network, path)
		os.Rename(path, path+".old") // keeps the inode number from being given out again
		other := mustBind(t, network, path)
		ours.Close()
		if dev, ino, err := identify(path); err != nil || dev != other.dev || ino != other.ino {
			t.Errorf("the other server's socket is gone: %v", err)
		}
		other.Remove()
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("our own is not: %v", err)
		}
	})
}
