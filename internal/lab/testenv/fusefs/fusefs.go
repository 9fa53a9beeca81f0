package fusefs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// UID and GID are the user and group that serve the file system, in the initial user namespace.
const UID, GID = 1000, 1000

// deadline bounds every wait: far more than is needed on a machine that is busy with other tests.
const deadline = 60 * time.Second

// Mode is how the file system is mounted.
type Mode int

const (
	// UserNamespace is what every user can do who may open /dev/fuse: it is mounted in a user and a
	// mount namespace of the user. Others, root included, are denied access to it, but not to an
	// overlay on top of it, which accesses it as the user who mounted the overlay: see FS.Overlay.
	UserNamespace Mode = iota
	// Fusermount is what fusermount3, which is setuid root, does for every user: it is mounted in the
	// initial user namespace, and served by the user. Others are denied access, but not to memory
	// that the user's processes have mapped. It is in a mount namespace of its own.
	Fusermount
	// AllowOther is the same with the option allow_other, which /etc/fuse.conf can allow to users:
	// nobody is denied access.
	AllowOther
)

// FS is a mounted file system. It serves the files of a directory, read-only, as they are at each
// request. Its directories list as empty. The kernel caches names that exist, for good, and the
// contents of a file until it is opened again; every other access is a request.
type FS struct {
	// Dir has directories in it that only its mount namespace shows.
	Dir string
	// By is a command that executes another one as the file system's user in its namespaces. In mode
	// UserNamespace it has all capabilities there.
	By []string

	t      testing.TB
	source string
	server *exec.Cmd
	stdin  *json.Encoder
	done   chan struct{} // a value for each command that the server has carried out
	killed sync.Once
	ended  chan struct{} // closed when the server has ended

	mu    sync.Mutex
	taken []Request
}

// Request is a request that is not answered.
type Request struct {
	Op   Op
	Path string // below the file system's root: "/" or "/name". Of LOOKUP: of the name looked up
	TID  int    // the thread that waits
}

// Mount mounts an empty file system until the end of the test.
func Mount(t testing.TB, mode Mode) *FS {
	t.Helper()
	testenv.NeedRoot(t)
	for _, tool := range []string{"setpriv", "unshare", "nsenter", "mount"} {
		testenv.NeedTool(t, tool)
	}
	dir, err := os.MkdirTemp("", "fusefs-") // not t.TempDir, which other users cannot enter
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	fs := &FS{Dir: dir, t: t, source: filepath.Join(dir, "source"), done: make(chan struct{}),
		ended: make(chan struct{})}
	err = os.Chmod(dir, 0o755)
	for _, name := range []string{"source", "mount", "layers"} {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.Mkdir(path, 0o755), os.Chown(path, UID, GID))
	}
	// The node of a machine where every user may open it, as most have.
	device := filepath.Join(dir, "fuse")
	err = errors.Join(err, unix.Mknod(device, unix.S_IFCHR, int(unix.Mkdev(10, 229))), os.Chmod(device, 0o666))
	assert.NilError(t, err)
	fs.serve(mode, options{Device: device, Source: fs.source, Target: fs.Path("")})
	pid := strconv.Itoa(fs.server.Process.Pid)
	switch mode {
	case UserNamespace:
		fs.By = append(slices.Clone(asUser), "nsenter", "--target", pid, "--user", "--mount",
			"--preserve-credentials", "--")
	default:
		fs.By = append([]string{"nsenter", "--target", pid, "--mount", "--"}, asUser...)
	}
	return fs
}

// asUser executes a command as the file system's user.
var asUser = []string{"setpriv", "--reuid", strconv.Itoa(UID), "--regid", strconv.Itoa(GID), "--clear-groups", "--"}

// serve starts the server and waits until it has mounted the file system.
func (fs *FS) serve(mode Mode, o options) {
	fs.t.Helper()
	self, err := os.Open("/proc/self/exe") // whose path the user may not be able to reach
	assert.NilError(fs.t, err)
	defer self.Close()
	argv := []string{"unshare", "--mount", "--", "/proc/self/fd/3"}
	if mode == UserNamespace {
		argv = append(slices.Clone(asUser), "unshare", "--user", "--map-root-user", "--mount", "--", "/proc/self/fd/3")
	} else {
		o.DropTo, o.AllowOther = UID, mode == AllowOther
	}
	spec, err := json.Marshal(o)
	assert.NilError(fs.t, err)
	fs.server = exec.Command(argv[0], argv[1:]...)
	fs.server.Dir = "/"
	fs.server.ExtraFiles = []*os.File{self}
	fs.server.Env = append(os.Environ(), optionsVariable+"="+string(spec))
	fs.server.Stderr = os.Stderr
	fs.server.SysProcAttr = &syscall.SysProcAttr{}
	stdin, err1 := fs.server.StdinPipe()
	stdout, err2 := fs.server.StdoutPipe()
	assert.NilError(fs.t, errors.Join(err1, err2, fs.server.Start()))
	fs.stdin = json.NewEncoder(stdin)
	fs.t.Cleanup(fs.Kill)
	mounted := make(chan error, 1)
	go func() {
		defer close(fs.ended)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var e event
			switch err := json.Unmarshal(lines.Bytes(), &e); {
			case err != nil:
				mounted <- fmt.Errorf("the server prints %q", lines.Text())
			case e.Mounted:
				mounted <- nil
			case e.Missing != "":
				mounted <- errors.New(e.Missing)
			case e.Taken != nil:
				fs.mu.Lock()
				fs.taken = append(fs.taken, *e.Taken)
				fs.mu.Unlock()
			default:
				fs.done <- struct{}{}
			}
		}
		_ = fs.server.Wait() // it is killed
	}()
	select {
	case err := <-mounted:
		if err != nil {
			testenv.Missing(fs.t, "needs FUSE in a user namespace: "+err.Error())
		}
	case <-fs.ended:
		testenv.Missing(fs.t, fmt.Sprintf("needs user namespaces: the server ended: %v", fs.server.ProcessState))
	}
}

// Path returns the path, in the mount namespace, of a file of the file system.
func (fs *FS) Path(name string) string { return filepath.Join(fs.Dir, "mount", name) }

// Empty returns an empty directory, for Overlay.
func (fs *FS) Empty() string { return filepath.Join(fs.Dir, "layers") }

// Write adds or replaces a file of the file system that belongs to its user, and the directories
// that it is in.
func (fs *FS) Write(name string, content []byte) {
	fs.t.Helper()
	path := filepath.Join(fs.source, name)
	testenv.WriteFile(fs.t, path, content)
	assert.NilError(fs.t, os.Chmod(path, 0o755))
}

// Overlay mounts an overlay at an existing directory, with the file system on top of the directory
// below, which may be that directory itself. It is read-only. If below is empty, the overlay has an
// empty writable directory on top of the file system instead. It needs mode UserNamespace.
func (fs *FS) Overlay(target, below string) {
	fs.t.Helper()
	if below == "" {
		fs.Run("mount", "-t", "tmpfs", "none", fs.Empty())
		fs.Run("mkdir", filepath.Join(fs.Empty(), "upper"), filepath.Join(fs.Empty(), "work"))
		fs.Run("mount", "-t", "overlay", "-o", fmt.Sprintf("userxattr,lowerdir=%s,upperdir=%[2]s/upper,workdir=%[2]s/work",
			fs.Path(""), fs.Empty()), "none", target)
		return
	}
	fs.Run("mount", "-t", "overlay", "-o", "userxattr,lowerdir="+fs.Path("")+":"+below, "none", target)
}

// Run runs a command with By to its end. It must not be one that hangs.
func (fs *FS) Run(argv ...string) {
	fs.t.Helper()
	argv = append(slices.Clone(fs.By), argv...)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	assert.NilError(fs.t, err, "%v: %v\n%s", argv, err, out)
}

// Hang makes the server read requests of this kind and not answer them, from now on. The pattern is
// one of path.Match for Request.Path.
func (fs *FS) Hang(op Op, pattern string) {
	fs.t.Helper()
	fs.command(command{Hang: op, Pattern: pattern})
	fs.AnswerFirst()
}

// Answer answers all requests that wait, and those that come.
func (fs *FS) Answer() {
	fs.t.Helper()
	fs.command(command{Answer: true})
}

func (fs *FS) command(c command) {
	fs.t.Helper()
	assert.NilError(fs.t, fs.stdin.Encode(c), "giving a command to the FUSE server")
	select {
	case <-fs.done:
	case <-fs.ended:
		fs.t.Fatal("the FUSE server has ended")
	case <-time.After(deadline):
		fs.t.Fatal("the FUSE server carries out no commands")
	}
}

// Taken waits until a request that is not answered has been made for which match returns true.
func (fs *FS) Taken(what string, match func(Request) bool) Request {
	fs.t.Helper()
	var found Request
	testenv.Poll(fs.t, deadline, "a request that hangs: "+what, func() bool {
		taken := fs.Requests()
		i := slices.IndexFunc(taken, match)
		if i >= 0 {
			found = taken[i]
		}
		return i >= 0
	})
	return found
}

// Requests returns all requests so far that were not answered when they came.
func (fs *FS) Requests() []Request {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Clone(fs.taken)
}

// Kill kills the server: every request fails, and whoever waited for one goes on or dies. The end
// of the test does it, too.
func (fs *FS) Kill() {
	fs.killed.Do(func() { _ = fs.server.Process.Kill() })
	<-fs.ended
}

// AnswerFirst makes Answer the next cleanup of the test. It is to be called after the start of what
// may hang and is waited for by its own cleanup; Hang does it for what has started already.
func (fs *FS) AnswerFirst() {
	fs.t.Cleanup(func() {
		select {
		case <-fs.ended:
		default:
			fs.Answer()
		}
	})
}
