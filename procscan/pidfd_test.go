package procscan

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan/internal/child"
)

func TestStartTime(t *testing.T) {
	for _, comm := range []string{"plain", "a) R 1 2 3 (", ")", "(((", ") ) ) 4", "new\nline) "} {
		t.Run(comm, func(t *testing.T) {
			p := child.StartHost(t, child.HostSpec{Comm: comm})
			plain := identityOf(t, os.Getpid())
			got, err := startTime("/proc", p.PID)
			assert.NilError(t, err)
			// After the last parenthesis comes field 3, the state.
			text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
			assert.NilError(t, err)
			fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
			if want := fields[22-3]; strconv.FormatUint(got, 10) != want || got < plain.StartTime {
				t.Errorf("start time %d, want %s of %q", got, want, text)
			}
		})
	}
}

func TestParseStartTime(t *testing.T) {
	const head, tail = "7 (a) R 1 2) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18", " 20 21\n"
	for _, c := range []struct {
		stat string
		want uint64
		ok   bool
	}{
		{head + " 18446744073709551615" + tail, 1<<64 - 1, true},
		{head + " 0", 0, true},
		{head, 0, false},
		{head + " -1" + tail, 0, false},
		{head + " 18446744073709551616" + tail, 0, false},
		{"", 0, false},
		{")", 0, false},
	} {
		got, err := statField([]byte(c.stat), 22)
		assert.Check(t, (got == c.want || !c.ok) && (err == nil) == c.ok, "%q: %d, %v", c.stat, got, err)
	}
}

func TestPidfd(t *testing.T) {
	live := child.StartSleep(t)
	fd, err := openPidfd(live.PID)
	assert.NilError(t, err)
	defer unix.Close(fd)
	assert.Check(t, !exited(fd), "a living process has exited")
	assert.NilError(t, live.Cmd.Process.Kill())
	testenv.Poll(t, child.Timeout, "the exit", func() bool { return exited(fd) })
	state := child.State(t, live.PID)
	assert.Check(t, state == "Z", "exited in state %s", state)
	live.Cmd.Wait()
	assert.Check(t, exited(fd), "a reaped process has not exited")
	_, err = openPidfd(live.PID)
	assert.Check(t, errors.Is(err, ErrGone), "pidfd of a reaped process: %v", err)
}

func TestPidfdOfThread(t *testing.T) {
	tids, err := os.ReadDir("/proc/self/task")
	assert.NilError(t, err)
	probed := 0
	for _, entry := range tids {
		tid, err := strconv.Atoi(entry.Name())
		assert.NilError(t, err)
		if tid == os.Getpid() {
			continue
		}
		probed++
		fd, err := openPidfd(tid)
		assert.Check(t, errors.Is(err, ErrGone), "pidfd of thread %d: %d, %v", tid, fd, err)
	}
	assert.Check(t, probed != 0, "no other thread")
}

// A process whose main thread has ended is a zombie in stat, but alive.
func TestLeaderless(t *testing.T) {
	p := child.StartReady(t, child.Command(t, "leaderless"), nil)
	testenv.Poll(t, child.Timeout, "the end of the main thread", func() bool { return child.State(t, p.PID) == "Z" })
	h := openPID(t, p.PID)
	assert.Check(t, h.Alive(), "not alive, while other threads run")
	// Its memory is not visible: maps is that of the main thread.
	_, err := newScanner(t).Process(p.PID)
	assert.Check(t, errors.Is(err, ErrNotFound), "probing it: %v", err)
}

func init() {
	if os.Getenv(child.RoleVariable) == "leaderless" {
		runtime.LockOSThread() // main must run on the main thread
	}
}

func runLeaderless() error {
	go func() {
		stdin := bufio.NewReader(os.Stdin)
		stdin.ReadString('\n')
		fmt.Println("ready")
		stdin.ReadByte()
		os.Exit(0)
	}()
	unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return errors.New("exit(2) returned")
}

// In a new pid namespace, where a process can choose the next pid, runNamespace tests its reuse.
func TestNamespaceAndReuse(t *testing.T) {
	testenv.NeedRoot(t)
	cmd := child.Command(t, "namespace")
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	dir := t.TempDir()
	p := child.StartReady(t, cmd, dir)

	inner := filepath.Join("/proc", strconv.Itoa(p.PID), "root", dir)
	if _, err := NewScanner(inner); err == nil || !strings.Contains(err.Error(), "another pid namespace") {
		t.Errorf("the procfs of an inner namespace: %v", err)
	}
}

// runNamespace is a test that runs as pid 1 of a pid namespace, whose procfs it mounts at the given
// directory.
func runNamespace() error {
	var procRoot string
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &procRoot); err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return fmt.Errorf("pid %d in a new namespace, want 1", os.Getpid())
	}
	if _, err := NewScanner("/proc"); err == nil || !strings.Contains(err.Error(), "another pid namespace") {
		return fmt.Errorf("the procfs of the outer namespace: %v", err)
	}
	if err := unix.Mount("proc", procRoot, "proc", 0, ""); err != nil {
		return err
	}
	s, err := NewScanner(procRoot)
	if err != nil {
		return err
	}
	library := child.MapSpec{Path: filepath.Join(os.TempDir(), realName), Unlink: true}
	if _, err := library.Apply(); err != nil {
		return err
	}
	if err := checkOwnProcRoot(s, procRoot); err != nil {
		return err
	}
	if err := checkReuse(procRoot); err != nil {
		return err
	}
	fmt.Println("ready")
	stdin.ReadByte()
	return nil
}

// checkOwnProcRoot finds and opens the library that this process itself maps.
func checkOwnProcRoot(s *Scanner, procRoot string) error {
	var all []Found
	if _, err := s.Sweep(nil, func(f Found) { all = append(all, f) }); err != nil {
		return err
	}
	if len(all) != 1 || all[0].PID != 1 || len(all[0].Libraries) != 1 {
		return fmt.Errorf("the sweep found %+v", all)
	}
	h, err := OpenProcess(procRoot, all[0].ProcessID)
	if err != nil {
		return err
	}
	defer h.Close()
	f, err := h.OpenMapped(all[0].Libraries[0])
	if err != nil {
		return err
	}
	return f.Close()
}

func checkReuse(procRoot string) error {
	start := func() (*exec.Cmd, ProcessID, error) {
		cmd := exec.Command("/proc/self/exe") // in the outer /proc
		cmd.Env = append(os.Environ(), child.RoleVariable+"=host")
		if _, err := cmd.StdinPipe(); err != nil { // never written to: it waits for its first line
			return nil, ProcessID{}, err
		}
		if err := cmd.Start(); err != nil {
			return nil, ProcessID{}, err
		}
		stat, err := os.ReadFile(filepath.Join(procRoot, strconv.Itoa(cmd.Process.Pid), "stat"))
		if err != nil {
			return nil, ProcessID{}, err
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		started, err := strconv.ParseUint(fields[22-3], 10, 64)
		return cmd, ProcessID{cmd.Process.Pid, started}, err
	}

	first, id, err := start()
	if err != nil {
		return err
	}
	h, err := OpenProcess(procRoot, id)
	if err != nil {
		return err
	}
	defer h.Close()
	if _, err := h.Credentials(); err != nil {
		return fmt.Errorf("before the reuse: %w", err)
	}
	first.Process.Kill()
	first.Wait()

	for try := 0; ; try++ {
		last := []byte(strconv.Itoa(id.PID - 1))
		if err := os.WriteFile(filepath.Join(procRoot, "sys/kernel/ns_last_pid"), last, 0); err != nil {
			return err
		}
		second, reused, err := start()
		if err != nil {
			return err
		}
		defer func() { second.Process.Kill(); second.Wait() }()
		if reused.PID == id.PID && reused.StartTime != id.StartTime {
			break
		}
		if try == 200 {
			return fmt.Errorf("pid %d is not reused", id.PID)
		}
		second.Process.Kill()
		second.Wait()
	}

	if h.Alive() {
		return errors.New("alive after its exit, because its pid was reused")
	}
	_, credsErr := h.Credentials()
	_, rootErr := h.OpenRoot()
	_, mapsErr := h.ExecutableMappings()
	_, libErr := h.OpenMapped(Mapping{Start: 0x1000, End: 0x2000, Path: "/etc/passwd"})
	_, openErr := OpenProcess(procRoot, id)
	for _, err := range []error{credsErr, rootErr, mapsErr, libErr, openErr} {
		if !errors.Is(err, ErrGone) {
			return fmt.Errorf("after the reuse: %v, %v, %v, %v, %v", credsErr, rootErr, mapsErr, libErr, openErr)
		}
	}
	return nil
}
