package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// Rewriting is how threads rewrite their slots without pause.
type Rewriting string

const (
	RewriteNew   Rewriting = "new"   // new ids every time; no transactions are kept
	RewriteCycle Rewriting = "cycle" // 64 transactions per thread, in turn
)

// Options describe how a demo process starts. The zero value is a process with only the main
// thread, which has loaded the library, bound its socket and published its storage.
type Options struct {
	Flavor   Flavor
	Library  string // file of the agent library to copy instead of the flavour's
	LoadFrom string // path, as the process sees it, of the library to load instead of a copy

	Service     string // default "demo"
	Environment string // default "test"
	Socket      string // default a path in Process.Dir

	Busy      int // threads that burn CPU, in transactions and in gaps
	Idle      int // threads that sleep instead
	Untouched int // threads that never touch the thread-local variable

	Transaction time.Duration // default 50 ms
	Gap         time.Duration // between two; default 10 ms, negative: none
	Manual      bool          // transactions only by Begin and End
	Rewrite     Rewriting     // instead of transactions
	Swap        bool          // two slots per thread in turn, as with virtual threads
	Auto        bool          // fill slots only after a registration
	Unsampled   bool          // W3C trace flags 0
	PageOut     bool          // slots are paged out a while after they were written: by command or rewriting, at once

	Hold          bool          // neither load nor publish at the start
	PublishAfter  time.Duration // publish so long after the start
	PublishWithin time.Duration // publish at a random time until so long after the start
	NeverRead     bool          // never read the socket
	ReadAtOnce    bool          // wait for messages instead of polling every 20 ms: one thread less, no wakeups

	OTel bool // OpenTelemetry's contexts are published, too: as of the start, a process context of the Service

	Files *Files // nil: the process gets its own
	Placement
}

// Placement describes as which user and where a process runs.
type Placement struct {
	PrivateTmp   bool     // a mount namespace of its own with its own /tmp, where all its files are; needs root
	PIDNamespace bool     // a pid namespace of its own, so that the pids it prints are not ours; needs root
	UID, GID     int      // user to run as instead of our own; needs root
	Env          []string // additional environment
	By           []string // command that executes the program, which then runs as UID and GID
	FixedLayout  bool     // everything at the same addresses whenever the program is executed
}

// Rest has the busy threads of all demo processes that tests start from now on sleep three quarters of the time, unless
// they rewrite their slots: for packages whose tests wait for other things than CPU time. Those on a quiet machine, and
// benchmarks, have threads that burn all that they get.
func Rest() { rests = !soaking }

var rests bool

// Start builds and starts a demo process that ends with the test, and waits until it has done what
// the options require.
func Start(t testing.TB, o Options) *Process {
	t.Helper()
	files := o.Files
	if files == nil {
		files = makeFiles(t, o.Flavor, o.Library, o.Placement)
	}
	socket := o.Socket
	if socket == "" {
		socket = files.newSocket()
	}
	if o.LoadFrom != "" {
		files.library = o.LoadFrom
	}
	arguments := o.arguments()
	if _, isTest := t.(*testing.T); isTest && rests {
		arguments = append(arguments, "--rest")
	}
	if o.OTel {
		arguments = append(arguments, "--otel-library", files.addPublisher(t, o.Flavor))
	}
	return files.start(t, socket, arguments)
}

func (f *Files) start(t testing.TB, socket string, arguments []string) *Process {
	t.Helper()
	p := f.launcher.start(t, append([]string{f.program, "--library", f.library, "--socket", socket}, arguments...))
	p.Library = f.library
	p.Socket = socket
	return p
}

func (o Options) arguments() (out []string) {
	text := func(name, value string) {
		if value != "" {
			out = append(out, "--"+name, value)
		}
	}
	count := func(name string, n int) {
		if n != 0 {
			text(name, strconv.Itoa(n))
		}
	}
	flag := func(name string, set bool) {
		if set {
			out = append(out, "--"+name)
		}
	}
	text("service", o.Service)
	text("environment", o.Environment)
	count("threads", o.Busy)
	count("idle", o.Idle)
	count("untouched", o.Untouched)
	count("transaction-ms", int(o.Transaction.Milliseconds()))
	if o.Gap < 0 {
		text("gap-ms", "0")
	} else {
		count("gap-ms", int(o.Gap.Milliseconds()))
	}
	flag("manual", o.Manual)
	text("rewrite", string(o.Rewrite))
	flag("swap", o.Swap)
	flag("auto", o.Auto)
	flag("unsampled", o.Unsampled)
	flag("page-out", o.PageOut)
	flag("hold", o.Hold)
	count("publish-after-ms", int(o.PublishAfter.Milliseconds()))
	count("publish-within-ms", int(o.PublishWithin.Milliseconds()))
	flag("never-read", o.NeverRead)
	flag("read-at-once", o.ReadAtOnce)
	return out
}

// launcher copies the files of a process to where it can see them, and starts it.
type launcher struct {
	t       testing.TB
	at      Placement
	hostDir string // where files are put
	dir     string // the path of that directory for the process
	env     []string
}

func newLauncher(t testing.TB, at Placement) *launcher {
	t.Helper()
	if at.PrivateTmp || at.PIDNamespace || at.UID != 0 || at.GID != 0 {
		testenv.NeedRoot(t)
	}
	// Not t.TempDir: other users cannot enter that, and its length depends on the test's name.
	dir, err := os.MkdirTemp("", "demo-")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &launcher{t: t, at: at, hostDir: dir, dir: dir, env: at.Env}
	l.own(dir, 0o755)
	if at.PrivateTmp {
		l.dir = "/tmp"
	}
	return l
}

func (l *launcher) own(path string, mode os.FileMode) {
	l.t.Helper()
	assert.NilError(l.t, os.Chmod(path, mode))
	if l.at.UID == 0 && l.at.GID == 0 {
		return
	}
	assert.NilError(l.t, os.Chown(path, l.at.UID, l.at.GID))
}

// add copies a file and returns its path as the process will see it.
func (l *launcher) add(source, name string, mode os.FileMode) string {
	l.t.Helper()
	path := filepath.Join(l.hostDir, name)
	testenv.WriteProgram(l.t, path, testenv.ReadFile(l.t, source), mode)
	l.own(path, mode)
	return filepath.Join(l.dir, name)
}

// privateTmp creates a new file system, $2, with the files of $1, and moves it over /tmp; then it
// executes the program.
const privateTmp = `set -e
mkdir "$2"
mount -t tmpfs -o mode=1777 private-tmp "$2"
cp -p "$1"/* "$2"
mount --move "$2" /tmp
shift 2
exec "$@"`

func (l *launcher) start(t testing.TB, argv []string) *Process {
	t.Helper()
	p := run(t, l.command(argv))
	p.Dir = l.dir
	return p
}

func (l *launcher) command(argv []string) *exec.Cmd {
	l.t.Helper()
	attributes := &syscall.SysProcAttr{}
	// Only the last program may get the environment: LD_PRELOAD is built for another C library.
	if len(l.env) > 0 {
		argv = append(append([]string{"env"}, l.env...), argv...)
	}
	if l.at.FixedLayout {
		testenv.NeedTool(l.t, "setarch")
		argv = append([]string{"setarch", "-R"}, argv...)
	}
	if l.at.By != nil {
		argv = append(slices.Clone(l.at.By), argv...)
	} else if l.at.UID != 0 || l.at.GID != 0 {
		testenv.NeedTool(l.t, "setpriv")
		argv = append([]string{"setpriv", "--reuid", strconv.Itoa(l.at.UID), "--regid", strconv.Itoa(l.at.GID),
			"--clear-groups", "--"}, argv...)
	}
	if l.at.PrivateTmp {
		attributes.Unshareflags = syscall.CLONE_NEWNS // also makes the mounts private
		argv = append([]string{"sh", "-c", privateTmp, "sh", l.hostDir, filepath.Join(l.hostDir, ".tmp")}, argv...)
	}
	if l.at.PIDNamespace {
		attributes.Cloneflags = syscall.CLONE_NEWPID
	}
	command := exec.Command(argv[0], argv[1:]...)
	command.Dir = "/"
	command.SysProcAttr = attributes
	return command
}
