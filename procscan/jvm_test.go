package procscan

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// fakeJVM starts a copy of sleep named java that maps a file named libjvm.so, or not.
func fakeJVM(t *testing.T, name, library string) int {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "library.c")
	testenv.WriteFile(t, source, "int nothing;\n")
	environment := os.Environ()
	if library != "" {
		object := filepath.Join(dir, library)
		build := exec.Command(testenv.NeedTool(t, "cc"), "-shared", "-o", object, source)
		output, err := build.CombinedOutput()
		assert.NilError(t, err, "\n%s", output)
		environment = append(environment, "LD_PRELOAD="+object)
	}
	program := filepath.Join(dir, name)
	testenv.WriteProgram(t, program, testenv.ReadFile(t, testenv.NeedTool(t, "cat")), 0o700)
	cmd := exec.Command(program)
	cmd.Env = environment
	stdin, stdout := testenv.Start(t, cmd)
	_, err := stdin.Write([]byte("x"))
	assert.NilError(t, err)
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // it is loaded
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestJVMs(t *testing.T) {
	scanner := newScanner(t)
	java := fakeJVM(t, "java", "libjvm.so")
	embedded := fakeJVM(t, "jsvc", "libjvm.so")
	other := fakeJVM(t, "java", "libother.so")
	plain := fakeJVM(t, "jsvc", "")
	listed := func(turn int) (pids []int) {
		jvms, _, err := scanner.JVMs(turn, nil)
		assert.NilError(t, err)
		for _, id := range jvms {
			started, err := startTime("/proc", id.PID)
			assert.Check(t, err != nil || started == id.StartTime, "%+v started at %d", id, started)
			pids = append(pids, id.PID)
		}
		return pids
	}
	all := listed(-1)
	for pid, want := range map[int]bool{java: true, embedded: true, other: false, plain: false} {
		assert.Check(t, slices.Contains(all, pid) == want, "%d is among %d: %t", pid, all, !want)
	}
	var turns []int // of 16, in which a JVM is found whose executable is not named java
	for turn := range jvmTurns {
		pids := listed(turn)
		assert.Check(t, slices.Contains(pids, java), "turn %d: java is not among %d", turn, pids)
		if slices.Contains(pids, embedded) {
			turns = append(turns, turn)
		}
	}
	assert.Check(t, slices.Equal(turns, []int{embedded % jvmTurns}), "found in turns %d", turns)
}

// A JVM that is known is looked at in each turn, also when its executable is not named java. One that
// cannot be looked at is told, unless it has ended.
func TestJVMsKnown(t *testing.T) {
	scanner := newScanner(t)
	pid := fakeJVM(t, "jsvc", "libjvm.so")
	handle := openHandle(t, pid)
	known := []ProcessID{handle.Identity()}
	for turn := range jvmTurns {
		jvms, unseen, err := scanner.JVMs(turn, known)
		assert.Check(t, err == nil && slices.Contains(jvms, known[0]) && len(unseen) == 0,
			"turn %d: %v, unseen %v, %v", turn, jvms, unseen, err)
	}
	another := ProcessID{PID: pid, StartTime: known[0].StartTime + 1}
	scanner.watchdog.stuck[pid] = 1 // an earlier probe hangs
	jvms, unseen, err := scanner.JVMs(pid, []ProcessID{another, known[0]})
	assert.Check(t, err == nil && !slices.Contains(jvms, known[0]) && slices.Equal(unseen, known),
		"while it hangs: %v, unseen %v, %v", jvms, unseen, err)
	delete(scanner.watchdog.stuck, pid)
	scanner.watchdog.abandoned = maxStuck
	if _, unseen, err = scanner.JVMs(pid, known); !errors.Is(err, errManyStuck) || !slices.Equal(unseen, known) {
		t.Errorf("after an early end: unseen %v, %v", unseen, err)
	}
	scanner.watchdog.abandoned = 0
	assert.NilError(t, syscall.Kill(pid, syscall.SIGKILL))
	testenv.Poll(t, time.Minute, "its end", func() bool { return !handle.Alive() })
	if jvms, unseen, err = scanner.JVMs(pid, known); err != nil || slices.Contains(jvms, known[0]) || len(unseen) > 0 {
		t.Errorf("after its end: %v, unseen %v, %v", jvms, unseen, err)
	}
}

// One process is looked at alone: the others may hang.
func TestJVM(t *testing.T) {
	scanner := newScanner(t)
	jvm, plain := fakeJVM(t, "jsvc", "libjvm.so"), fakeJVM(t, "java", "")
	scanner.watchdog.abandoned = maxStuck - 1
	scanner.watchdog.stuck[plain] = 1
	id, err := scanner.JVM(jvm)
	assert.Check(t, err == nil && id == openHandle(t, jvm).Identity(), "%+v, %v", id, err)
	delete(scanner.watchdog.stuck, plain)
	id, err = scanner.JVM(plain)
	assert.Check(t, errors.Is(err, ErrNotFound), "%+v, %v", id, err)
	id, err = scanner.JVM(1 << 30)
	assert.Check(t, errors.Is(err, ErrGone), "%+v, %v", id, err)
}

// openHandle opens a process of a test.
func openHandle(t *testing.T, pid int) *Handle {
	t.Helper()
	started, err := startTime("/proc", pid)
	assert.NilError(t, err)
	handle, err := OpenProcess("/proc", ProcessID{PID: pid, StartTime: started})
	assert.NilError(t, err)
	t.Cleanup(func() { handle.Close() })
	return handle
}

func TestCommandLineAndOpenFiles(t *testing.T) {
	cat := testenv.NeedTool(t, "cat")
	held, err := os.Create(filepath.Join(t.TempDir(), "a b\n.jar"))
	assert.NilError(t, err)
	defer held.Close()
	long := strings.Repeat("x", 100<<10)
	cmd := exec.Command(cat, "-", "\xff\n", "", long, long, long)
	cmd.ExtraFiles = []*os.File{held}
	cmd.Stderr = io.Discard
	stdin, _ := testenv.Start(t, cmd)
	handle := openHandle(t, cmd.Process.Pid)
	var arguments []string
	testenv.Poll(t, time.Minute, "the program", func() bool { // it may not have been executed yet
		arguments, err = handle.CommandLine()
		return err != nil && !errors.Is(err, ErrLong) || len(arguments) > 0 && arguments[0] == cat
	})
	want := []string{cat, "-", "\xff\n", "", long, long}
	assert.Check(t, errors.Is(err, ErrLong) && slices.Equal(arguments, want), "%d arguments, %v", len(arguments), err)
	var files []string
	assert.Check(t, handle.OpenFiles(func(file string) bool { files = append(files, file); return true }))
	assert.Check(t, slices.Contains(files, held.Name()), "%q", files)
	calls := 0
	if err := handle.OpenFiles(func(string) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	for most, want := range map[int]error{len(files): nil, len(files) - 1: ErrLong} {
		calls = 0
		err := handle.openFiles(most, func(string) bool { calls++; return true })
		assert.Check(t, errors.Is(err, want) && calls == most, "%d of %d files, %v", calls, len(files), err)
	}
	options := filepath.Join(t.TempDir(), "options")
	for size, isLong := range map[int]bool{maxOptionFile: false, maxOptionFile + 1: true} {
		testenv.WriteFile(t, options, strings.Repeat("x", size))
		text, err := handle.OptionFile(options)
		assert.Check(t, (err != nil) == isLong && (isLong || len(text) == size), "%d of %d bytes, %v", len(text), size,
			err)
	}
	stdin.Close()
	_ = cmd.Wait()
	_, err = handle.CommandLine()
	filesErr := handle.OpenFiles(func(string) bool { return true })
	_, execErr := handle.NoExec("/tmp")
	assert.Check(t, errors.Is(err, ErrGone) && errors.Is(filesErr, ErrGone) && errors.Is(execErr, ErrGone),
		"after the exit: %v, %v, %v", err, filesErr, execErr)
}

func TestNoExec(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	cmd := exec.Command(testenv.NeedTool(t, "unshare"), "--mount", "sh", "-c",
		`mount -t tmpfs -o noexec none "$0" && ln -s "$0" "$0/link" && exec cat`, dir)
	stdin, stdout := testenv.Start(t, cmd)
	_, err := stdin.Write([]byte("x"))
	assert.NilError(t, err)
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // it is mounted
		t.Fatal(err)
	}
	handle := openHandle(t, cmd.Process.Pid)
	for path, want := range map[string]bool{dir: true, dir + "/link": true, "/usr": false} {
		got, err := handle.NoExec(path)
		assert.Check(t, err == nil && got == want, "%s: %t, %v", path, got, err)
	}
	_, err = handle.NoExec("/nonexistent")
	assert.Check(t, errors.Is(err, os.ErrNotExist), err)
}
