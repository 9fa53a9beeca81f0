package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
)

// hangingNames are the ways in which a process makes whoever reads the names of its functions wait
// for a FUSE server that never answers.
var hangingNames = map[string]func(t *testing.T, service string) hung{
	"perf map": func(t *testing.T, service string) hung {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		p := startJVMIn(t, fs, service)
		fs.Overlay("/tmp", fs.Empty())
		fs.Hang(fusefs.Lookup, fmt.Sprintf("/perf-%d.map", p.PID))
		return hung{fs, p}
	},
	"directory of debug files": func(t *testing.T, service string) hung {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		p := startIn(t, fs, demo.Options{Service: service, Busy: 1, Gap: -1})
		borrowWork(t, fs, p)
		fs.Overlay("/usr/lib", "/usr/lib")
		fs.Hang(fusefs.Lookup, "/debug")
		return hung{fs, p}
	},
	"file system of a debug file": func(t *testing.T, service string) hung {
		fs := fusefs.Mount(t, fusefs.AllowOther)
		by := append(slices.Clone(fs.By), "unshare", "--user", "--map-root-user", "--")
		p := demo.Start(t, demo.Options{Service: service, Busy: 1, Gap: -1,
			Placement: demo.Placement{UID: fusefs.UID, GID: fusefs.GID, By: by}})
		id := hex.EncodeToString(borrowWork(t, fs, p))
		fs.Write("usr/lib/debug/.build-id/"+id[:2]+"/"+id[2:]+".debug", nil)
		p.Chroot(fs.Path(""))
		fs.Hang(fusefs.Statfs, "/usr/lib/debug/.build-id/*/*")
		return hung{fs, p}
	},
}

// startJVMIn is startIn for a JVM with compiled code.
func startJVMIn(t *testing.T, fs *fusefs.FS, service string) *demo.Process {
	t.Helper()
	p := demo.StartJVM(t, demo.JVMOptions{Threads: 1, Busy: true, FramePointers: true, Service: service,
		Placement: demo.Placement{UID: fusefs.UID, GID: fusefs.GID, By: fs.By}})
	p.Begin(1)
	return p
}

// borrowWork makes a process do its work in a library without names, and returns the library's
// build id.
func borrowWork(t *testing.T, fs *fusefs.FS, p *demo.Process) []byte {
	t.Helper()
	content := buildWork(t)
	path := filepath.Join(fs.Dir, "work.so")
	testenv.WriteFile(t, path, content)
	p.Borrow(path, "work")
	parsed, err := elfsym.ParseFile(bytes.NewReader(content), int64(len(content)))
	assert.Assert(t, err == nil && len(parsed.BuildID) != 0, "%v, %+v", err, parsed)
	return parsed.BuildID
}

// A recording of processes that make whoever reads their names wait for ever ends at once by a signal,
// with what there is.
func TestRecordHung(t *testing.T) {
	t.Parallel()
	needSampler(t)
	honest := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Service: "honest"})
	var all []hung
	var late []string
	for _, start := range hangingNames {
		h := start(t, "hangs")
		all = append(all, h)
		late = append(late, fmt.Sprintf("hangs (%d)", h.process.PID))
	}
	cmd, terminal, path := recordHung(t, all, "honest|hangs", 1+len(all))
	assert.NilError(t, cmd.Process.Signal(syscall.SIGTERM))
	testenv.Poll(t, deadline, "the end of the recording", func() bool { return reapable(t, cmd.Process.Pid) })
	assert.Check(t, cmd.Wait(), "\n%s", terminal)
	sampled := make(map[int64]bool)
	for _, sample := range readProfile(t, path).Sample {
		sampled[sample.NumLabel["pid"][0]] = true
	}
	assert.Check(t, sampled[int64(honest.PID)] && len(sampled) == 1+len(all), "sampled were %v", sampled)
	var hint []string
	testenv.Poll(t, deadline, "a hint", func() bool {
		hint = regexp.MustCompile("files of (.*) could not be read in time").FindStringSubmatch(terminal.String())
		return hint != nil
	})
	for _, name := range late { // there is no telling whether the names of others have been read
		assert.Check(t, strings.Contains(hint[1], name), "no %s among %s", name, hint[1])
	}
}

// One that is killed leaves nobody behind who has its output open.
func TestRecordHungKilled(t *testing.T) {
	t.Parallel()
	needSampler(t)
	cmd, terminal, _ := recordHung(t, []hung{hangingNames["directory of debug files"](t, "killed")}, "killed", 1)
	assert.NilError(t, cmd.Process.Kill())
	testenv.Poll(t, deadline, "the end of the recording", func() bool { return reapable(t, cmd.Process.Pid) })
	err := cmd.Wait()
	assert.Check(t, !errors.Is(err, exec.ErrWaitDelay), "%v\n%s", err, terminal)
}

// recordHung starts a recording of services with so many processes, ends it when there are samples of
// all, and waits until it hangs with those that hang.
func recordHung(
	t *testing.T, all []hung, services string, processes int,
) (cmd *exec.Cmd, terminal *shown, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "out.pb.gz")
	terminal, tty := openTerminal(t, 120)
	cmd = exec.Command(installed(t), "record", "-d", "1h", "--service", services, "--rate", "997",
		"--unwinder", "frame-pointers", "-o", path)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = new(bytes.Buffer), tty, deadline
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	for _, h := range all {
		h.fs.AnswerFirst()
	}
	tty.Close()
	sampled := regexp.MustCompile(fmt.Sprintf(`recording .*: \d{4,} samples, \d+%% in transactions, %d process`,
		processes))
	testenv.Poll(t, deadline, "samples of all", func() bool { return sampled.MatchString(terminal.String()) })
	assert.NilError(t, cmd.Process.Signal(syscall.SIGINT))
	for _, h := range all {
		testenv.Poll(t, deadline, "somebody else to hang", h.taken)
	}
	return cmd, terminal, path
}

// A recording opens what the process itself may open: not a file of root that the process has
// mounted, in a user namespace of its own, at the path of its perf map.
func TestRecordOpensWithRightsOfProcess(t *testing.T) {
	t.Parallel()
	needSampler(t)
	fs := fusefs.Mount(t, fusefs.UserNamespace)
	p := startJVMIn(t, fs, "java")
	perfMap := fmt.Sprintf("/tmp/perf-%d.map", p.PID)
	t.Cleanup(func() { os.Remove(perfMap) })
	write := func(path, function string, mode os.FileMode, user int) {
		t.Helper()
		assert.NilError(t, errors.Join(os.WriteFile(path, []byte("1000 7fffffff0000 "+function+"\n"), mode),
			os.Chmod(path, mode), os.Chown(path, user, user)))
	}
	record := func(enough func(named func(function string) bool) bool) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "out.pb.gz")
		recordUntil(t, nil, func(string, string) bool {
			functions := readProfile(t, path).Function
			return enough(func(function string) bool {
				return slices.ContainsFunc(functions, func(f *pprof.Function) bool { return f.Name == function })
			})
		}, "--pid", strconv.Itoa(p.PID), "--rate", "997", "--unwinder", "frame-pointers", "-o", path)
	}
	write(perfMap, "own_function", 0o600, fusefs.UID)
	record(func(named func(string) bool) bool { return named("own_function") })

	secret := filepath.Join(fs.Dir, "secret")
	write(secret, "secret_of_root", 0o600, 0)
	fs.Run("mount", "--bind", secret, perfMap)
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	assert.NilError(t, err)
	defer unix.Close(watch)
	_, err = unix.InotifyAddWatch(watch, secret, unix.IN_OPEN|unix.IN_ACCESS)
	assert.NilError(t, err)
	record(func(named func(string) bool) bool {
		assert.Check(t, !named("secret_of_root"), "names were read from a file that the process may not open")
		return true
	})
	if n, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a file that the process may not open was opened (%d bytes of events, %v)", n, err)
	}
}
