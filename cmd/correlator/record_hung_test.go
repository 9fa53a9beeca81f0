package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/elfsym"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
)

// hangingNames are the ways in which a process makes whoever reads the names of its functions wait
// for a FUSE server that never answers.
var hangingNames = []struct {
	name   string
	signal syscall.Signal // that ends a recording early
	start  func(t *testing.T) (*fusefs.FS, *demo.Process)
}{
	{"perf map", syscall.SIGTERM, func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		p := startJVMIn(t, fs)
		fs.Overlay("/tmp", fs.Empty())
		fs.Hang(fusefs.Lookup, fmt.Sprintf("/perf-%d.map", p.PID))
		return fs, p
	}},
	{"directory of debug files", syscall.SIGKILL, func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.UserNamespace)
		p := startIn(t, fs, demo.Options{Busy: 1, Gap: -1})
		borrowWork(t, fs, p)
		fs.Overlay("/usr/lib", "/usr/lib")
		fs.Hang(fusefs.Lookup, "/debug")
		return fs, p
	}},
	{"file system of a debug file", syscall.SIGTERM, func(t *testing.T) (*fusefs.FS, *demo.Process) {
		fs := fusefs.Mount(t, fusefs.AllowOther)
		p := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Placement: demo.Placement{UID: fusefs.UID, GID: fusefs.GID,
			By: append(slices.Clone(fs.By), "unshare", "--user", "--map-root-user", "--")}})
		id := hex.EncodeToString(borrowWork(t, fs, p))
		fs.Write("usr/lib/debug/.build-id/"+id[:2]+"/"+id[2:]+".debug", nil)
		p.Chroot(fs.Path(""))
		fs.Hang(fusefs.Statfs, "/usr/lib/debug/.build-id/*/*")
		return fs, p
	}},
}

// startJVMIn is startIn for a JVM with compiled code.
func startJVMIn(t *testing.T, fs *fusefs.FS) *demo.Process {
	t.Helper()
	p := demo.StartJVM(t, demo.JVMOptions{Threads: 1, Busy: true, FramePointers: true,
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

// A recording of a process that makes whoever reads its names wait for ever ends after its duration,
// with what there is, and at once by a signal.
func TestRecordHung(t *testing.T) {
	needSampler(t)
	honest := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Service: "honest"})
	for _, hanging := range hangingNames {
		t.Run(hanging.name, func(t *testing.T) {
			for duration := time.Second; ; duration *= 4 {
				fs, hangs := hanging.start(t)
				hint := fmt.Sprintf("files of demo (%d) could not be read in time", hangs.PID) // and of nobody else
				recorded, services, stderr := recordHung(t, fs, hangs, duration, 0)
				if services["honest"] > 0 && services["demo"] > 0 || duration > deadline {
					assert.Check(t, recorded && services["honest"] != 0 && services["demo"] != 0 && !honest.Ended(),
						"samples of %v\n%s", services, stderr)
					assert.Check(t, strings.Contains(stderr, hint), "no %q in\n%s", hint, stderr)
					break // on a slow machine, both take part only in a longer one
				}
			}
			fs, hangs := hanging.start(t)
			recordHung(t, fs, hangs, time.Second, hanging.signal)
		})
	}
}

// recordHung makes a recording, sends a signal unless it is 0 when the recording waits, and waits for
// the end. It returns whether there is a profile, and the numbers of samples by service.
func recordHung(
	t *testing.T, fs *fusefs.FS, hangs *demo.Process, duration time.Duration, signal syscall.Signal,
) (recorded bool, services map[string]int, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	cmd := exec.Command(installed(t), "record", "-d", duration.String(), "--rate", "997", "-o", path,
		"--unwinder", "frame-pointers")
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = deadline // nobody else may have it open
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	taken(t, fs, hangs)
	if signal != 0 {
		assert.NilError(t, cmd.Process.Signal(signal))
	}
	testenv.Poll(t, deadline, "the end of the recording", func() bool { return reapable(t, cmd.Process.Pid) })
	err := cmd.Wait()
	if signal == syscall.SIGKILL {
		return false, nil, said.String()
	}
	if err != nil { // it may be too short for a slow machine
		assert.Check(t, strings.Contains(said.String(), "nothing was sampled"), "%v\n%s", err, &said)
		return false, nil, said.String()
	}
	services = make(map[string]int)
	for _, sample := range readProfile(t, path).Sample {
		services[strings.Join(sample.Label["service"], " ")]++
	}
	return true, services, said.String()
}

// A recording opens what the process itself may open: not a file of root that the process has
// mounted, in a user namespace of its own, at the path of its perf map.
func TestRecordOpensWithRightsOfProcess(t *testing.T) {
	needSampler(t)
	fs := fusefs.Mount(t, fusefs.UserNamespace)
	p := startJVMIn(t, fs)
	perfMap := fmt.Sprintf("/tmp/perf-%d.map", p.PID)
	t.Cleanup(func() { os.Remove(perfMap) })
	write := func(path, function string, mode os.FileMode, user int) {
		t.Helper()
		assert.NilError(t, errors.Join(os.WriteFile(path, []byte("1000 7fffffff0000 "+function+"\n"), mode),
			os.Chmod(path, mode), os.Chown(path, user, user)))
	}
	named := func(function string) bool {
		t.Helper()
		path := filepath.Join(t.TempDir(), "out.pb.gz")
		out, err := exec.Command(installed(t), "record", "-d", "1s", "--pid", strconv.Itoa(p.PID), "--rate", "997",
			"--unwinder", "frame-pointers", "-o", path).CombinedOutput()
		assert.NilError(t, err, "\n%s", out)
		for _, f := range readProfile(t, path).Function {
			if f.Name == function {
				return true
			}
		}
		return false
	}
	write(perfMap, "own_function", 0o600, fusefs.UID)
	assert.Assert(t, named("own_function"), "the process's own perf map has no effect")

	secret := filepath.Join(fs.Dir, "secret")
	write(secret, "secret_of_root", 0o600, 0)
	fs.Run("mount", "--bind", secret, perfMap)
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	assert.NilError(t, err)
	defer unix.Close(watch)
	_, err = unix.InotifyAddWatch(watch, secret, unix.IN_OPEN|unix.IN_ACCESS)
	assert.NilError(t, err)
	assert.Check(t, !named("secret_of_root"), "names were read from a file that the process may not open")
	if n, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a file that the process may not open was opened (%d bytes of events, %v)", n, err)
	}
}
