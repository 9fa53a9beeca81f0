package unwind

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/internal/lab/testenv/fusefs"
)

// startHanging starts a process with the library of a JVM, the page of whose variables is that of a
// file: whoever reads them waits for the file's server.
func startHanging(t *testing.T, fs *fusefs.FS, library, file string) Target {
	t.Helper()
	program := filepath.Join(fs.Dir, "hang") // which the user can reach
	compile := exec.Command(testenv.NeedTool(t, "cc"), "-o", program, "testdata/hang.c", "-ldl")
	out, err := compile.CombinedOutput()
	assert.NilError(t, err, "\n%s", out)
	argv := append(slices.Clone(fs.By), program, library, file)
	cmd := exec.Command(argv[0], argv[1:]...)
	_, stdout := testenv.Start(t, cmd)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	assert.Assert(t, err == nil && line == "ready\n", "%q, %v", line, err)
	target := identify(t, cmd.Process.Pid)
	target.User = "another" // for whom nothing is known that was read for others
	return target
}

// A process that makes reading its memory hang costs a worker, and is left out. Another JVM is unwound by
// the next worker, beside the one that hangs.
func TestHangingMemory(t *testing.T) {
	e := openEngine(t)
	e.sample(t)
	const depth = 10
	other := startJVM(t, "17", 1, depth)
	e.synchronize(t, other.target)

	fs := fusefs.Mount(t, fusefs.Fusermount)
	fs.Write("page", make([]byte, os.Getpagesize()))
	hanging := startHanging(t, fs, filepath.Join(javaHomes["17"], "lib/server/libjvm.so"), fs.Path("page"))
	fs.Hang(fusefs.Read, "/page")
	_, err := e.Synchronize(t.Context(), hanging)
	assert.Assert(t, errors.Is(err, ErrKilled), err)
	fs.Taken("reading the variables", func(fusefs.Request) bool { return true })
	s := e.Status()
	if e.counters.TimedOut.Load() != 1 || len(s.Quarantined) != 1 || s.Quarantined[0].PID != hanging.ID.PID ||
		s.Quarantined[0].Reason != "the worker did not answer in time" || s.Unreaped != 1 {
		t.Errorf("%d workers timed out, %+v", e.counters.TimedOut.Load(), s)
	}
	_, err = e.Synchronize(t.Context(), hanging)
	assert.Check(t, errors.Is(err, ErrQuarantined), err)
	same := other.target // and so is all of its user, while the worker hangs
	same.User, same.Program = hanging.User, "another"
	_, err = e.Synchronize(t.Context(), same)
	assert.Check(t, errors.Is(err, ErrQuarantined), err)
	e.synchronize(t, other.target)
	e.awaitWhole(t, other.target, depth)
	if s := e.Status(); s.Unreaped != 1 || s.Synchronized != 1 || s.Failure != "" {
		t.Errorf("%+v", s)
	}
	fs.Answer()
	testenv.Poll(t, deadline, "the end of the worker that hung", func() bool { return e.Status().Unreaped == 0 })
	e.synchronize(t, same)
	if c := e.counters; c.Started.Load() != 2 || c.TimedOut.Load() != 1 {
		t.Errorf("%d workers started, %d timed out", c.Started.Load(), c.TimedOut.Load())
	}
}

// A file of a file system that a process serves is not read at all.
func TestHangingFile(t *testing.T) {
	e := openEngine(t)
	library, err := os.ReadFile(filepath.Join(javaHomes["17"], "lib/server/libjvm.so"))
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	fs := fusefs.Mount(t, fusefs.AllowOther)
	fs.Write("libjvm.so", library)
	fs.Write("page", make([]byte, os.Getpagesize()))
	hanging := startHanging(t, fs, fs.Path("libjvm.so"), fs.Path("page"))
	for _, op := range []fusefs.Op{
		fusefs.Lookup, fusefs.Getattr, fusefs.Open, fusefs.Read, fusefs.Statfs, fusefs.Flush,
	} {
		fs.Hang(op, "/*")
	}
	if _, err := e.Synchronize(t.Context(), hanging); !errors.Is(err, ErrNotReady) ||
		!strings.Contains(err.Error(), "file system that may never answer (fuse)") {
		t.Error(err)
	}
	requests := fs.Requests()
	assert.Check(t, len(requests) == 0, "it was accessed: %+v", requests)
	if c := e.counters; c.FilesSkipped.Load() == 0 || c.Started.Load() != 1 {
		t.Errorf("%d files were skipped, %d workers started", c.FilesSkipped.Load(), c.Started.Load())
	}
}
