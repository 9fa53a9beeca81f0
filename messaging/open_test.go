package messaging

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// fakeRoot is a directory used as the root of a process, with the socket /run/socket in it, and a
// socket outside, which no path inside may reach.
type fakeRoot struct {
	dir  string
	root *os.File
	in   *receiver
	host *receiver
}

func newFakeRoot(t testing.TB) *fakeRoot {
	t.Helper()
	base := openTempDir(t)
	f := &fakeRoot{dir: filepath.Join(base, "root")}
	mkdir(t, f.dir, 0o755)
	mkdir(t, f.path("/run"), 0o755)
	f.root = openRoot(t, f.dir)
	f.in = listenAt(t, f.path("/run/socket"))
	f.host = listenAt(t, filepath.Join(base, "host"))
	return f
}

func (f *fakeRoot) path(inside string) string { return filepath.Join(f.dir, inside) }

func mkdir(t testing.TB, path string, mode os.FileMode) {
	t.Helper()
	assert.NilError(t, errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)))
}

func symlink(t testing.TB, target, path string) {
	t.Helper()
	assert.NilError(t, os.Symlink(target, path))
}

// reaches checks that messages sent through socket arrive at r, and closes it.
func reaches(t *testing.T, socket *Socket, r interface{ expect(...Message) }) {
	t.Helper()
	s := NewSender(&Counters{}, newTestPoller(t))
	assert.NilError(t, s.Connect(socket, testRegistration))
	r.expect(testRegistration)
	s.Close()
}

func TestDialFollowsPathsInsideTheRoot(t *testing.T) {
	f := newFakeRoot(t)
	mkdir(t, f.path("/var"), 0o755)
	symlink(t, "/run", f.path("/var/run"))
	symlink(t, "../run", f.path("/var/up"))
	symlink(t, "../../../../run", f.path("/var/above"))
	symlink(t, "/var/run/socket", f.path("/link"))
	symlink(t, "link", f.path("/link-to-link"))
	for _, path := range []string{
		"/run/socket",
		"//run/.//socket",
		"/var/run/socket",
		"/var/up/socket",
		"/var/above/socket",
		"/link",
		"/link-to-link",
		"/run/../run/socket",
		"/../../run/socket",
		"/var/run/../run/socket",
	} {
		socket, err := Dial("/proc", f.root, path, ourCredentials(t))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if identity, err := Identify(f.root, path); err != nil || identity != socket.Identity() {
			t.Errorf("%s is %v (%v), connected to %v", path, identity, err, socket.Identity())
		}
		reaches(t, socket, f.in)
	}
}

// Paths may exceed the length of a socket address: a process that binds in its working directory
// has no such limit.
func TestDialLongPaths(t *testing.T) {
	f := newFakeRoot(t)
	for _, length := range []int{100, 107, 108, 109, 300, unix.PathMax - 1} {
		path := "/run"
		for length-len(path) > 210 { // of 255 that a name may have
			path += "/" + strings.Repeat("d", 200)
		}
		assert.NilError(t, mkdirAll(f.root, path))
		path += "/" + strings.Repeat("s", length-len(path)-1)
		r := listenBelow(t, f.root, path)
		socket, err := Dial("/proc", f.root, path, ourCredentials(t))
		if err != nil {
			t.Errorf("%d bytes: %v", len(path), err)
			continue
		}
		reaches(t, socket, r)
	}
}

// mkdirAll makes the directories of a path that would be too long when joined to that of the root.
func mkdirAll(root *os.File, path string) error {
	fd := int(root.Fd())
	for name := range strings.SplitSeq(path[1:], "/") {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil && err != unix.EEXIST {
			return err
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if fd != int(root.Fd()) {
			unix.Close(fd)
		}
		fd = next
	}
	return unix.Close(fd)
}

func listenBelow(t *testing.T, root *os.File, path string) *receiver {
	t.Helper()
	dir, name := filepath.Split(path)
	fd, err := unix.Openat(int(root.Fd()), dir[1:], unix.O_PATH|unix.O_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	short := "/proc/self/fd/" + strconv.Itoa(fd) + "/s"
	r := listenAt(t, short)
	assert.NilError(t, unix.Renameat(fd, "s", fd, name))
	return r
}

func TestDialErrors(t *testing.T) {
	f := newFakeRoot(t)
	mkdir(t, f.path("/dir"), 0o755)
	for _, err := range []error{
		os.WriteFile(f.path("/file"), nil, 0o666),
		unix.Mkfifo(f.path("/fifo"), 0o666),
	} {
		assert.NilError(t, err)
	}
	symlink(t, "/loop", f.path("/loop"))
	symlink(t, "/file", f.path("/to-file"))
	symlink(t, "/nowhere", f.path("/to-nowhere"))
	symlink(t, f.host.path, f.path("/escape"))
	symlink(t, "../host", f.path("/escape-relative"))
	symlink(t, "../../../../../.."+f.host.path, f.path("/escape-far"))
	symlink(t, filepath.Dir(f.host.path), f.path("/escape-dir"))
	for kind, name := range map[int]string{unix.SOCK_STREAM: "/stream", unix.SOCK_SEQPACKET: "/seqpacket"} {
		fd := bindSocket(t, kind, f.path(name))
		defer unix.Close(fd)
		assert.NilError(t, unix.Listen(fd, 1))
	}
	listenAt(t, f.path("/dead")).close()

	for path, want := range map[string]error{
		"/missing":                         ErrNoSocket,
		"/missing/socket":                  ErrNoSocket,
		"/file/socket":                     ErrNoSocket,
		"/to-nowhere":                      ErrNoSocket,
		"/escape":                          ErrNoSocket,
		"/escape-relative":                 ErrNoSocket,
		"/escape-far":                      ErrNoSocket,
		"/escape-dir/host":                 ErrNoSocket,
		"/../host":                         ErrNoSocket,
		"/run/../../host":                  ErrNoSocket,
		f.host.path:                        ErrNoSocket,
		"/":                                ErrNotSocket,
		"/dir":                             ErrNotSocket,
		"/file":                            ErrNotSocket,
		"/to-file":                         ErrNotSocket,
		"/fifo":                            ErrNotSocket,
		"/run/socket/":                     ErrNoSocket,
		"/loop":                            ErrPath,
		"":                                 ErrPath,
		"run/socket":                       ErrPath,
		"./run/socket":                     ErrPath,
		"/run/socket\x00":                  ErrPath,
		"\x00run/socket":                   ErrPath,
		"/" + strings.Repeat("x", 256):     ErrPath,
		"/" + strings.Repeat("run/", 2000): ErrPath,
		"/stream":                          ErrWrongType,
		"/seqpacket":                       ErrWrongType,
		"/dead":                            ErrRefused,
	} {
		socket, err := Dial("/proc", f.root, path, ourCredentials(t))
		assert.Check(t, errors.Is(err, want) && socket == nil, "%.40q: %v, want %v", path, err, want)
		// Identify does not connect, so it returns no errors about the kind of socket.
		if _, err := Identify(f.root, path); want != ErrWrongType && want != ErrRefused && !errors.Is(err, want) {
			t.Errorf("identifying %.40q: %v, want %v", path, err, want)
		}
	}
	f.host.expectNothing()
}

// Magic links, which lead out of the root, are not followed.
func TestDialRefusesMagicLinks(t *testing.T) {
	f := newFakeRoot(t)
	fd, err := unix.Open(f.in.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	link := filepath.Join(f.dir, "link")
	symlink(t, "/proc/self/fd/"+strconv.Itoa(fd), link)
	for _, path := range []string{
		"/proc/self/fd/" + strconv.Itoa(fd),
		"/proc/self/root" + f.in.path,
		"/proc/self/cwd/x",
		"/proc/thread-self/root" + f.in.path,
		link,
	} {
		_, err := Dial("/proc", openRoot(t, "/"), path, ourCredentials(t))
		assert.Check(t, errors.Is(err, ErrPath), "%s: %v, want ErrPath", path, err)
	}
	f.in.expectNothing()
}

// While a process keeps replacing the file at its path, Dial connects to one of its files, but
// never to a socket outside.
func TestDialWhilePathChanges(t *testing.T) {
	f := newFakeRoot(t)
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			next := f.path("/next")
			os.Remove(next)
			var err error
			switch n % 4 {
			case 0:
				err = os.Symlink(f.host.path, next)
			case 1, 3:
				err = os.Link(f.in.path, next)
			case 2:
				err = os.Symlink("../host", next)
			}
			if err := errors.Join(err, os.Rename(next, f.path("/socket"))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	connected, refused := 0, 0
	for connected < 50 || refused < 50 {
		socket, err := Dial("/proc", f.root, "/socket", ourCredentials(t))
		switch {
		case err == nil:
			connected++
			reaches(t, socket, f.in)
		case errors.Is(err, ErrNoSocket):
			refused++
		default:
			t.Fatal(err)
		}
	}
	close(stop)
	swapping.Wait()
	f.host.expectNothing()
}

// A directory that is moved out of the root while a path with ".." is walked does not lead out.
func TestDialWhileDirectoryMovesOut(t *testing.T) {
	f := newFakeRoot(t)
	mkdir(t, f.path("/dir"), 0o755)
	mkdir(t, f.path("/dir/sub"), 0o755)
	outside := filepath.Join(filepath.Dir(f.dir), "dir")
	stop := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() {
		for from, to := f.path("/dir"), outside; ; from, to = to, from {
			if err := os.Rename(from, to); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	walk := strings.Repeat("/sub/..", 500) // takes longer than a move
	for range 200 {
		_, err := Dial("/proc", f.root, "/dir"+walk+"/../host", ourCredentials(t))
		assert.Check(t, errors.Is(err, ErrNoSocket) || errors.Is(err, ErrPath), "a path out of the root: %v", err)
		if socket, err := Dial("/proc", f.root, "/dir"+walk+"/../run/socket", ourCredentials(t)); err == nil {
			reaches(t, socket, f.in)
		}
	}
	close(stop)
	moving.Wait()
	f.host.expectNothing()
}

// A socket that replaces another one at the same path has another identity, even with the same
// inode number.
func TestIdentityOfReplacedSocket(t *testing.T) {
	f := newFakeRoot(t)
	socket, err := Dial("/proc", f.root, "/run/socket", ourCredentials(t))
	assert.NilError(t, err)
	defer socket.Close()
	for range 3 {
		if identity, err := Identify(f.root, "/run/socket"); err != nil || identity != socket.Identity() {
			t.Fatalf("%v (%v), want %v", identity, err, socket.Identity())
		}
	}
	// File systems may use the time of the last tick of the clock.
	testenv.Poll(t, patience, "a tick of the clock", func() bool {
		probe := f.path("/probe")
		assert.NilError(t, os.WriteFile(probe, nil, 0o600))
		var stat unix.Stat_t
		assert.NilError(t, unix.Stat(probe, &stat))
		return unix.TimespecToNsec(stat.Ctim) > socket.Identity().CtimeNs
	})
	// The time of change differs, as it would for a new file with the same inode number.
	assert.NilError(t, os.Chmod(f.in.path, 0o777))
	if identity, err := Identify(f.root, "/run/socket"); err != nil || identity == socket.Identity() {
		t.Errorf("%v (%v) after a change, was the same before", identity, err)
	}
	assert.NilError(t, os.Remove(f.in.path))
	_, err = Identify(f.root, "/run/socket")
	assert.Check(t, errors.Is(err, ErrNoSocket), "removed: %v", err)
	listenAt(t, f.in.path)
	identity, err := Identify(f.root, "/run/socket")
	assert.Check(t, err == nil && identity != socket.Identity(),
		"the new socket has the identity of the old one: %v (%v)", identity, err)
}
