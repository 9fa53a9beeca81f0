package watch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
	"correlator/procscan"
	"correlator/procscan/internal/child"
)

func TestMain(m *testing.M) {
	child.Main(m, map[string]func() error{"events": runEvents, "renames": runRenames})
}

// eventsSpec is for a process with the role "events": it watches, maps the library itself, and
// prints "ready" when that was reported. For each line of input it maps the library again, and
// prints how often libraries were reported, by pid.
type eventsSpec struct {
	Library string
	Size    int  // of a ring
	NoLock  bool // sets RLIMIT_MEMLOCK to 0 before
}

// refused is printed before the error when the process may not watch.
const refused = "denied: "

func runEvents() error {
	var spec eventsSpec
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &spec); err != nil {
		return err
	}
	if spec.NoLock {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{}); err != nil {
			return err
		}
	}
	w, err := openEventWatcher(procscan.OnlineCPUs, spec.Size)
	if errors.Is(err, procscan.ErrDenied) {
		fmt.Println(refused + err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	var mu sync.Mutex
	libraries := make(map[int]int)
	mapped := make(chan struct{}, 16)
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(func(e Event) {
			if e.Kind != EventLibrary {
				return
			}
			mu.Lock()
			libraries[e.PID]++
			mu.Unlock()
			if e.PID == os.Getpid() {
				mapped <- struct{}{}
			}
		})
	}()
	mapOwn := func() error {
		_, err := child.MapSpec{Path: spec.Library}.Apply()
		if err == nil {
			<-mapped
		}
		return err
	}
	if err := mapOwn(); err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		if _, err := stdin.ReadString('\n'); err != nil {
			return errors.Join(w.Close(), <-ended)
		}
		if err := mapOwn(); err != nil {
			return err
		}
		mu.Lock()
		err := json.NewEncoder(os.Stdout).Encode(libraries)
		mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// manyRenames is more than a ring would hold records of.
const manyRenames = ringBytes / headerSize

// runRenames is for a process with the role "renames": on every CPU it renames a thread as often as
// it can. It prints "ready" when each was renamed manyRenames times.
func runRenames() error {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	renamed := make(chan error)
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			go renameOn(cpu, renamed)
		}
	}
	for range all.Count() {
		if err := <-renamed; err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func renameOn(cpu int, renamed chan<- error) {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(cpu)
	err := unix.SchedSetaffinity(0, &one)
	names := [2][]byte{[]byte("one\x00"), []byte("other\x00")}
	for i := 0; err == nil; i++ {
		if i == manyRenames {
			renamed <- nil
		}
		err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&names[i%2][0])), 0, 0, 0)
	}
	renamed <- err
}

// refusal runs a watcher that must fail, and returns its output.
func refusal(t *testing.T, spec eventsSpec, attr *syscall.SysProcAttr) string {
	t.Helper()
	cmd := child.Command(t, "events")
	cmd.SysProcAttr = attr
	line, err := json.Marshal(spec)
	assert.NilError(t, err)
	cmd.Stdin = strings.NewReader(string(line) + "\n")
	return child.Output(t, cmd)
}

func asNobody(capabilities ...uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: child.Nobody, Gid: child.Nobody},
		AmbientCaps: capabilities,
	}
}

// Without the capability, or with it in a user namespace only, the error names it.
func TestEventsDenied(t *testing.T) {
	testenv.NeedRoot(t)
	paranoid, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	assert.NilError(t, err)
	if level := strings.TrimSpace(string(paranoid)); level == "0" || level == "-1" {
		testenv.Missing(t, "needs kernel.perf_event_paranoid to be 1 or more: else everything is permitted")
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	for name, attr := range map[string]*syscall.SysProcAttr{
		"nobody":         asNobody(),
		"other rights":   asNobody(unix.CAP_SYS_PTRACE, unix.CAP_IPC_LOCK),
		"user namespace": {Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids},
	} {
		t.Run(name, func(t *testing.T) {
			output := refusal(t, eventsSpec{Size: ringBytes}, attr)
			assert.Check(t, strings.HasPrefix(output, refused) && strings.Contains(output, "CAP_PERFMON"),
				"printed %q", output)
		})
	}
}

// The error distinguishes a kernel or sandbox without perf events from one that denies them.
func TestEventsUnsupported(t *testing.T) {
	for errno, want := range map[unix.Errno]error{
		unix.ENOSYS:     errors.ErrUnsupported,
		unix.ENOENT:     errors.ErrUnsupported,
		unix.EOPNOTSUPP: errors.ErrUnsupported,
		unix.EPERM:      procscan.ErrDenied,
		unix.EACCES:     procscan.ErrDenied,
		unix.EMFILE:     unix.EMFILE,
	} {
		err := classifyPerf(errno)
		assert.Check(t, errors.Is(err, want) && errors.Is(err, errno), "%v becomes %v", errno, err)
	}
	err := classifyPerf(unix.EMFILE)
	assert.Check(t, err == unix.EMFILE, "EMFILE becomes %v", err)
}

// A process without CAP_IPC_LOCK may lock only so much memory for rings. CAP_PERFMON is enough for
// rings of the usual size, except on kernels where perf events need CAP_SYS_ADMIN, too.
func TestEventsCapability(t *testing.T) {
	testenv.NeedRoot(t)
	capabilities := []uintptr{unix.CAP_PERFMON}
	if testenv.PerfNeedsAdmin(t) {
		output := refusal(t, eventsSpec{Size: ringBytes, NoLock: true}, asNobody(capabilities...))
		if !strings.HasPrefix(output, refused) || !strings.Contains(output, "kernel.perf_event_paranoid above 2") {
			t.Errorf("printed %q", output)
		}
		capabilities = append(capabilities, unix.CAP_SYS_ADMIN)
	}
	const tooLarge = 8 << 20 // for each CPU; kernel.perf_event_mlock_kb gives 516 KiB
	output := refusal(t, eventsSpec{Size: tooLarge, NoLock: true}, asNobody(capabilities...))
	assert.Check(t, strings.HasPrefix(output, refused) && strings.Contains(output, "CAP_IPC_LOCK"),
		"printed %q", output)
	cmd := child.Command(t, "events")
	cmd.SysProcAttr = asNobody(capabilities...)
	child.StartReady(t, cmd, eventsSpec{Library: sharedLibrary(t), Size: ringBytes, NoLock: true})
}

// sharedLibrary returns a file that every user can map.
func sharedLibrary(t testing.TB) string {
	t.Helper()
	path := child.SharedDir(t) + "/" + eventLibrary
	assert.NilError(t, os.WriteFile(path, make([]byte, os.Getpagesize()), 0o666))
	// whatever the umask
	assert.NilError(t, os.Chmod(path, 0o666))
	return path
}

// A watcher in another pid namespace reports itself by its pid there, and no process outside.
func TestEventsInNestedNamespace(t *testing.T) {
	testenv.NeedRoot(t)
	cmd := child.Command(t, "events")
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	inside := child.StartReady(t, cmd, eventsSpec{Library: sharedLibrary(t), Size: ringBytes})
	f := createLibrary(t)
	for round := 2; round < 5; round++ {
		mapOnEachCPU(t, f)
		_, err := inside.Stdin.Write([]byte("\n"))
		assert.NilError(t, err)
		var libraries map[int]int
		line, err := inside.Stdout.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &libraries)
		}
		assert.NilError(t, err, "%q", line)
		assert.Check(t, len(libraries) == 1 && libraries[1] == round,
			"round %d: libraries reported, by pid: %v", round, libraries)
	}
}
