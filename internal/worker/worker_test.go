package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/internal/lab/testenv"
)

// deadline is far more than anything here takes on a machine that is busy with other tests.
const deadline = 60 * time.Second

// testMemoryBytes is what a worker of the tests may take.
const testMemoryBytes = 64 << 20

// testKind is a worker that does what a message asks for.
var testKind = Kind{
	Name: "test", Capabilities: []int{unix.CAP_SYS_PTRACE, unix.CAP_SETUID}, MemoryBytes: testMemoryBytes,
	Serve: func(procRoot string, conn *Conn) {
		for {
			message, fds, err := conn.ReceiveDescriptors()
			if err != nil {
				return
			}
			if string(message) == "empty" { // an empty message, with descriptors
				rights := unix.UnixRights(0, 1, 2)
				header := unix.Msghdr{Control: &rights[0]}
				header.SetControllen(len(rights))
				// unix.Sendmsg would send a byte.
				_, _, _ = unix.Syscall(unix.SYS_SENDMSG, uintptr(conn.fd), uintptr(unsafe.Pointer(&header)), 0)
				continue
			}
			answer, fd := serveTest(procRoot, string(message), fds)
			closeAll(fds)
			if conn.Send(answer, fd) != nil {
				return
			}
		}
	},
}

func serveTest(procRoot, message string, fds []int) (answer []byte, fd int) {
	fd = -1
	command, argument, _ := strings.Cut(message, " ")
	switch command {
	case "spin":
		for n := uint64(1); n != 0; n++ {
			answer = answer[:0]
		}
	case "hang":
		time.Sleep(time.Hour)
	case "exit":
		os.Exit(0)
	case "status":
		answer, _ = os.ReadFile(filepath.Join(procRoot, "self/status"))
	case "descriptors":
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			link, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err == nil { // but for the directory itself
				answer = fmt.Appendf(answer, "%s %s\n", e.Name(), link)
			}
		}
	case "allocate":
		size, _ := strconv.Atoi(argument)
		b := make([]byte, size)
		for i := 0; i < size; i += 4096 {
			b[i] = 1
		}
		answer = b[:1]
	case "contents":
		for _, received := range fds {
			b := make([]byte, 64)
			n, _ := unix.Pread(received, b, 0)
			answer = append(answer, b[:n]...)
		}
	case "open":
		fd, _ = unix.Open(argument, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		answer = []byte("opened")
	default:
		answer = []byte(message)
	}
	return answer, fd
}

// holderVariable has the test binary start a worker, print its pid, and wait.
const holderVariable = "WORKER_TEST_HOLDER"

func TestMain(m *testing.M) {
	Main(testKind)
	if os.Getenv(holderVariable) != "" {
		hold()
	}
	os.Exit(m.Run())
}

func hold() {
	spawner, err := NewSpawner("/proc", testKind)
	if err != nil {
		panic(err)
	}
	process, err := spawner.Start()
	if err != nil {
		panic(err)
	}
	fmt.Println(process.PID())
	select {}
}

func start(t *testing.T) *Process {
	t.Helper()
	spawner, err := NewSpawner("/proc", testKind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(spawner.Close)
	process, err := spawner.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Kill()
		<-process.Ended()
	})
	return process
}

func (p *Process) ask(t *testing.T, message string) string {
	t.Helper()
	if err := p.Send([]byte(message)); err != nil {
		t.Fatal(err)
	}
	answer, _, err := p.Receive(time.Now().Add(deadline))
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	return string(answer)
}

// A worker has the capabilities of its kind and cannot get others, no descriptors but its channel,
// and is not to be traced.
func TestConfined(t *testing.T) {
	testenv.NeedRoot(t)
	inherited, err := os.Create(filepath.Join(t.TempDir(), "inherited"))
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	p := start(t)
	status := p.ask(t, "status")
	const capabilities = 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_SETUID
	for _, want := range []string{
		fmt.Sprintf("CapPrm:\t%016x", capabilities), fmt.Sprintf("CapEff:\t%016x", capabilities), "NoNewPrivs:\t1",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	var fds []string
	for line := range strings.Lines(p.ask(t, "descriptors")) {
		fd, link, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(link, "anon_inode:[event") { // the Go runtime's own
			fds = append(fds, fd+" "+strings.TrimRight(link, "0123456789[]"))
		}
	}
	if got := strings.Join(fds, ", "); got != "0 /dev/null, 1 /dev/null, 2 /dev/null, 3 socket:" {
		t.Errorf("descriptors: %s", got)
	}
	if self, err := os.Stat(fmt.Sprintf("/proc/%d/mem", p.PID())); err != nil || self.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("its memory: %v, %v", self, err)
	}
}

// A worker that takes more memory than it may ends, and with it nobody else.
func TestMemoryBounded(t *testing.T) {
	p := start(t)
	if answer := p.ask(t, fmt.Sprintf("allocate %d", testMemoryBytes/4)); len(answer) != 1 {
		t.Errorf("%q", answer)
	}
	if err := p.Send(fmt.Appendf(nil, "allocate %d", 2*testMemoryBytes)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Receive(time.Now().Add(deadline)); !errors.Is(err, ErrEnded) {
		t.Errorf("%v", err)
	}
}

// Messages of any length up to the bound arrive, and descriptors with them.
func TestMessages(t *testing.T) {
	p := start(t)
	for _, size := range []int{1, 4096, MaxMessageBytes} {
		message := strings.Repeat("x", size)
		if got := p.ask(t, message); got != message {
			t.Errorf("%d bytes: %d came back", size, len(got))
		}
	}
	if err := p.Send(make([]byte, MaxMessageBytes+1)); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("too long: %v", err)
	}
	path := filepath.Join(t.TempDir(), "file")
	testenv.WriteFile(t, path, []byte("contents"))
	if err := p.Send([]byte("open " + path)); err != nil {
		t.Fatal(err)
	}
	_, fd, err := p.Receive(time.Now().Add(deadline))
	if err != nil || fd < 0 {
		t.Fatalf("%d, %v", fd, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if got, err := io.ReadAll(file); err != nil || string(got) != "contents" {
		t.Errorf("%q, %v", got, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor is not close-on-exec: %v", err)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Descriptors that come with an empty message, which looks like the end of the worker, are closed.
func TestEmptyMessageWithDescriptors(t *testing.T) {
	p := start(t)
	p.ask(t, "hello")
	before := openDescriptors(t)
	for range 3 {
		if err := p.Send([]byte("empty")); err != nil {
			t.Fatal(err)
		}
		if _, fd, err := p.Receive(time.Now().Add(deadline)); !errors.Is(err, ErrEnded) || fd >= 0 {
			t.Errorf("%d, %v", fd, err)
		}
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Descriptors arrive in their order, and none stays open.
func TestSendDescriptors(t *testing.T) {
	p := start(t)
	before := p.ask(t, "descriptors")
	var fds []int
	var want string
	for i := range MaxDescriptors {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		text := fmt.Sprintf("%d;", i)
		if _, err := unix.Write(fd, []byte(text)); err != nil {
			t.Fatal(err)
		}
		fds, want = append(fds, fd), want+text
	}
	if err := p.SendDescriptors([]byte("contents"), append(fds, fds[0])); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("sending too many: %v", err)
	}
	if err := p.SendDescriptors([]byte("contents"), fds); err != nil {
		t.Fatal(err)
	}
	answer, _, err := p.Receive(time.Now().Add(deadline))
	if err != nil || string(answer) != want {
		t.Errorf("contents %q, %v, want %q", answer, err, want)
	}
	if after := p.ask(t, "descriptors"); after != before {
		t.Errorf("descriptors before:\n%s\nafter:\n%s", before, after)
	}
}

// Workers end with the process that started them, however that ends.
func TestEndWithAgent(t *testing.T) {
	holder := exec.Command("/proc/self/exe")
	holder.Env = append(os.Environ(), holderVariable+"=1")
	var stdout, stderr bytes.Buffer
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	holder.Stdout, holder.Stderr = write, &stderr
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	var pid int
	if _, err := fmt.Fscan(read, &pid); err != nil {
		t.Fatalf("%v: %s%s", err, &stdout, &stderr)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	testenv.Poll(t, deadline, "the end of the worker", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}

func newPool(t *testing.T) *Pool {
	t.Helper()
	pool, err := NewPool("/proc", testKind, new(Counters))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (p *Pool) ask(owner Owner, timeout time.Duration, message string) (answer string, err error) {
	err = p.Call(owner, timeout, []byte(message), func(b []byte, _ int) error {
		answer = string(b)
		return nil
	})
	return answer, err
}

// A worker that hangs is killed and replaced; one that has ended meanwhile is not noticed.
func TestPoolReplaces(t *testing.T) {
	pool := newPool(t)
	owner := Owner{PID: 1, User: "1000"}
	echo := func() {
		t.Helper()
		if answer, err := pool.ask(owner, deadline, "hello"); err != nil || answer != "hello" {
			t.Errorf("%q, %v", answer, err)
		}
	}
	echo()
	if _, err := pool.ask(owner, time.Millisecond, "hang"); !errors.Is(err, ErrTimeout) {
		t.Errorf("one that hangs: %v", err)
	}
	testenv.Poll(t, deadline, "the end of the worker", func() bool { return pool.Stats().Hung == 0 })
	echo()
	pool.mu.Lock()
	idle := pool.idle[len(pool.idle)-1].PID()
	pool.mu.Unlock()
	if err := unix.Kill(idle, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	echo()
	if _, err := pool.ask(owner, deadline, "exit"); !errors.Is(err, ErrEnded) {
		t.Errorf("one that ends: %v", err)
	}
	echo()
	c := pool.counters
	if c.TimedOut.Load() != 1 || c.Ended.Load() < 2 || c.Refused.Load() != 0 {
		t.Errorf("%d timed out, %d ended, %d refused", c.TimedOut.Load(), c.Ended.Load(), c.Refused.Load())
	}
	started, ended := c.Started.Load(), c.Ended.Load()
	if err := pool.Call(owner, deadline, make([]byte, MaxMessageBytes+1), nil); !errors.Is(err, unix.EMSGSIZE) ||
		c.Started.Load() != started || c.Ended.Load() != ended {
		t.Errorf("too long a request: %v, and it cost a worker", err)
	}
	if err := pool.Call(owner, deadline, []byte("x"), func([]byte, int) error { return io.EOF }); err != io.EOF {
		t.Errorf("an error of the caller: %v", err)
	}
}

// A worker gets no huge pages.
func TestNoHugePages(t *testing.T) {
	testenv.NeedHugePages(t)
	if status := start(t).ask(t, "status"); !strings.Contains(status, "\nTHP_enabled:\t0\n") {
		t.Error(status)
	}
}

// A worker that gets no CPU is given up later than one that has used the time of its request, or that hangs.
func TestPatience(t *testing.T) {
	testenv.NeedRoot(t)
	p := start(t)
	const timeout = 50 * time.Millisecond
	request := func(what string, timeout time.Duration) (w *Wait, cpu, took time.Duration) {
		p.ask(t, "hello") // it has begun
		if err := p.Send([]byte(what)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w = p.Wait(timeout)
		if _, _, err := w.Receive(); !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		return w, p.cpuTime(), time.Since(began)
	}
	end := time.Now().Add(deadline)
	w, cpu, took := request("hang", 10*timeout)
	for w.patience != 0 { // it may have got no CPU before it hung
		if time.Now().After(end) {
			t.Fatalf("one that hangs was given up after %v with %v of CPU time, %d more times", took, cpu, w.patience)
		}
		p = start(t)
		w, cpu, took = request("hang", 10*timeout)
	}
	p = start(t)
	w, cpu, took = request("spin", timeout)
	early := cpu < w.maxCPU && w.patience < maxPatience
	if late := cpu >= w.maxCPU+2*timeout && w.patience == maxPatience; early || late {
		t.Errorf("given up after %v with %v of %v, after %d more times", took, cpu, w.maxCPU, w.patience)
	}

	// One CPU, which another process has.
	var cpus, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	for n := 0; one.Count() == 0; n++ {
		if cpus.IsSet(n) {
			one.Set(n)
		}
	}
	rival := exec.Command("sh", "-c", "while :; do :; done")
	rival.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // with a share of its own, whatever this session has
	testenv.Start(t, rival)
	if err := unix.SchedSetaffinity(rival.Process.Pid, &one); err != nil {
		t.Fatal(err)
	}
	p = start(t)
	starve(t, p, &one)
	w, cpu, took = request("spin", timeout)
	_ = rival.Process.Kill() // else it would take long to end the worker
	if w.patience != maxPatience || took < (1+maxPatience)*timeout || cpu >= w.maxCPU {
		t.Errorf("given up after %v with %v of %v, after %d more times", took, cpu, w.maxCPU, w.patience)
	}
	testenv.Poll(t, deadline, "the wait for a CPU to be counted, when it ends", func() bool {
		delays := slices.Collect(maps.Values(p.runDelays().of))
		return len(delays) > 0 && slices.Max(delays) >= timeout
	})
}

// A worker is starved by what its threads have waited for a CPU since it is watched, and by nothing else.
func TestStarved(t *testing.T) {
	began := time.Now()
	const passed = 100 * time.Millisecond
	before := runDelays{at: began, of: map[int]time.Duration{1: time.Hour, 2: time.Second}}
	type delays map[int]time.Duration
	for name, c := range map[string]struct {
		now  delays
		runs bool
		want bool
	}{
		"nothing":                {delays{1: time.Hour, 2: time.Second}, false, false},
		"a thread is runnable":   {nil, true, true},
		"too short":              {delays{1: time.Hour + 24*time.Millisecond, 2: time.Second}, false, false},
		"long enough":            {delays{1: time.Hour + 25*time.Millisecond, 2: time.Second}, false, true},
		"together":               {delays{1: time.Hour + 13e6, 2: time.Second + 12e6}, false, true},
		"another thread ended":   {delays{2: time.Second + 30*time.Millisecond}, false, true},
		"a thread not seen then": {delays{1: time.Hour, 3: time.Minute}, false, false},
		"nothing can be read":    {nil, false, false},
	} {
		if got := before.starved(runDelays{began.Add(passed), c.now, c.runs}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	unread := runDelays{at: began}
	if unread.starved(runDelays{at: began.Add(passed), of: before.of}) {
		t.Error("starved by what was waited before")
	}
}

// starve has a worker share CPUs, of which it gets least.
func starve(t *testing.T, p *Process, cpus *unix.CPUSet) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err == nil {
			err = errors.Join(unix.SchedSetaffinity(tid, cpus), unix.Setpriority(unix.PRIO_PROCESS, tid, 19))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Where sessions have equal shares, it is the worker's, of its own, that has to be less.
	ofSession := fmt.Sprintf("/proc/%d/autogroup", p.PID())
	if err := os.WriteFile(ofSession, []byte("19"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// Requests that hang occupy the workers of their user alone, whose other requests wait for their
// turn, and no others.
func TestPoolByUser(t *testing.T) {
	pool := newPool(t)
	var hanging sync.WaitGroup
	for i := range maxBusyOfUser {
		hanging.Go(func() { _, _ = pool.ask(Owner{PID: i + 1, User: "1000"}, time.Hour, "hang") })
	}
	testenv.Poll(t, deadline, "all workers of the user", func() bool { return pool.Stats().Running == maxBusyOfUser })
	waited := make(chan error, 1)
	go func() {
		_, err := pool.ask(Owner{PID: 99, User: "1000"}, deadline, "hello")
		waited <- err
	}()
	for range 100 {
		if answer, err := pool.ask(Owner{PID: 100, User: "1001"}, deadline, "hello"); err != nil || answer != "hello" {
			t.Fatalf("another user: %q, %v", answer, err)
		}
	}
	testenv.Poll(t, deadline, "the request to wait", func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return len(pool.waiting) == 1
	})
	pool.Close()
	hanging.Wait()
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("a request that waits at the end: %v", err)
	}
}

// A process whose worker hangs gets no other, nor does a user of too many; when they have ended,
// both do.
func TestPoolHung(t *testing.T) {
	pool := newPool(t)
	hang := func(owner Owner) { // as in a system call that cannot be interrupted
		pool.mu.Lock()
		defer pool.mu.Unlock()
		pool.addHung(owner)
	}
	refused := func(owner Owner) bool {
		_, err := pool.ask(owner, deadline, "hello")
		if err != nil && !errors.Is(err, ErrHung) && !errors.Is(err, ErrBusy) {
			t.Errorf("%+v: %v", owner, err)
		}
		return err != nil
	}
	first, other, stranger := Owner{1, "1000"}, Owner{2, "1000"}, Owner{3, "1001"}
	hang(first)
	if !refused(first) || refused(other) || refused(stranger) {
		t.Error("one hangs: that process is not the only one that is refused")
	}
	for i := range maxHungOfUser - 1 {
		hang(Owner{100 + i, "1000"})
	}
	if !refused(first) || !refused(other) || refused(stranger) {
		t.Error("many of a user hang: that user is not the only one that is refused")
	}
	for i := maxHungOfUser; i < maxHung; i++ {
		hang(Owner{100 + i, User(strconv.Itoa(2000 + i))})
	}
	if !refused(Owner{4, User(strconv.Itoa(2000 + maxHungOfUser))}) || refused(stranger) {
		t.Error("as many hang as may: those who cause it are not the only ones that are refused")
	}
	for i := maxHung; i < 2*maxHung; i++ {
		hang(Owner{100 + i, User(strconv.Itoa(2000 + i))})
	}
	if refused(stranger) || !refused(Owner{5, "1002"}) {
		t.Error("twice as many hang: those who were never served are not the only others that are refused")
	}
	for i := 2 * maxHung; i < 4*maxHung; i++ {
		hang(Owner{100 + i, User(strconv.Itoa(2000 + i))})
	}
	if !refused(stranger) {
		t.Error("there is no bound")
	}
	pool.mu.Lock()
	for owner := range pool.hungOf {
		pool.removeHung(owner)
	}
	pool.mu.Unlock()
	if refused(first) || refused(other) || refused(stranger) {
		t.Error("still refused when none hangs any more")
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for user := range pool.users {
		pool.change(user, func(l *load) { l.late = l.late.Add(-suspectTime) })
	}
	if len(pool.users) > 0 || pool.suspect != 0 || pool.busy != 0 {
		t.Errorf("%d users are remembered, %d suspect requests, %d in all", len(pool.users), pool.suspect, pool.busy)
	}
}

// A request that ends its worker ends no more than one other.
func TestPoolRequestThatEndsWorkers(t *testing.T) {
	pool := newPool(t)
	var asking sync.WaitGroup
	for i := range maxIdle {
		asking.Go(func() { _, _ = pool.ask(Owner{PID: i + 1, User: User(strconv.Itoa(i))}, deadline, "hello") })
	}
	asking.Wait()
	if _, err := pool.ask(Owner{PID: 1, User: "1000"}, deadline, "exit"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if n := pool.counters.Ended.Load(); n > 2 {
		t.Errorf("%d workers ended", n)
	}
}

// A user who is suspect while a request begins, and not any more when it ends, leaves nothing behind.
func TestPoolSuspicionEnds(t *testing.T) {
	pool := newPool(t)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.change("1000", func(l *load) { l.late = time.Now() })
	pool.begin("1000")
	if pool.suspect != 1 {
		t.Fatalf("%d requests of suspects", pool.suspect)
	}
	l := pool.users["1000"]
	l.late = l.late.Add(-suspectTime)
	pool.users["1000"] = l
	pool.mu.Unlock()
	pool.leave("1000")
	pool.mu.Lock()
	if pool.suspect != 0 || len(pool.users) != 0 {
		t.Errorf("%d requests of suspects, %d users are left", pool.suspect, len(pool.users))
	}
}

// Those who had a request time out have one worker each and half of all together, and of those who
// wait the one with the fewest is next.
func TestPoolSuspects(t *testing.T) {
	pool := newPool(t)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	user := func(i int) User { return User(strconv.Itoa(i)) }
	for i := range maxBusy {
		pool.change(user(i), func(l *load) { l.late = time.Now() })
	}
	for i := range maxBusy {
		if may := pool.mayServe(user(i)); may != (i < maxBusy/2) {
			t.Fatalf("%d suspects are served: another one is, %v", i, may)
		} else if may {
			pool.begin(user(i))
		}
	}
	if pool.mayServe(user(0)) {
		t.Error("a suspect gets a second worker")
	}
	for i := range maxBusy / 2 {
		if honest := user(maxBusy + i/maxBusyOfUser); pool.mayServe(honest) {
			pool.begin(honest)
		} else {
			t.Fatalf("beside suspects, %d requests of others are served", i)
		}
	}
	first, second := &waiter{user(maxBusy), make(chan struct{})}, &waiter{user(9999), make(chan struct{})}
	pool.waiting = []*waiter{first, second}
	pool.mu.Unlock()
	pool.leave(user(maxBusy))
	pool.mu.Lock()
	select {
	case <-second.ready:
	default:
		t.Error("of those who wait, the one who is served most is next")
	}
	pool.waiting = nil
}
