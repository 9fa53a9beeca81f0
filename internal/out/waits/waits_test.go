package waits

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/profile"
)

// The place of a wait is in the program's own code, if there is any.
func TestPlaceOfWait(t *testing.T) {
	libc := &profile.File{Kind: profile.NativeFrame, Path: "/lib/libc.so.6"}
	shop := &profile.File{Kind: profile.NativeFrame, Path: "/bin/shop"}
	libjvm := &profile.File{Kind: profile.NativeFrame, Path: "/jdk/lib/server/libjvm.so"}
	vmlinux := &profile.File{Kind: profile.KernelFrame, Path: "vmlinux"}
	named := func(file *profile.File, name string) profile.Frame {
		return profile.Frame{File: file, Address: 16, Function: profile.NewFunction(name, "")}
	}
	of := func(kind profile.Kind, name, file string) profile.Frame {
		return profile.NewRuntimeFrame(kind, profile.NewFunction(name, file), 7)
	}
	for want, frames := range map[string][]profile.Frame{
		"pthread_mutex_lock < reserve": {named(vmlinux, "futex_wait"), named(libc, "futex"),
			named(libc, "pthread_mutex_lock"), named(shop, "reserve"), named(shop, "main")},
		"lock < reserve": {named(libc, "futex"), named(libc, "lock"), {File: libc, Address: 16}, profile.NewCutFrame(),
			named(shop, "reserve")},
		"reserve": {{File: libc, Address: 16}, named(shop, "reserve")},
		"get < work  work.py:7": {named(libc, "futex"), of(profile.PythonFrame, "get", "/usr/lib/python3.11/queue.py"),
			of(profile.PythonFrame, "work", "/srv/work.py")},
		"linux.Syscall6 < example.org/shop.(*DB).query": {named(shop, "internal/runtime/syscall/linux.Syscall6"),
			named(shop, "example.org/shop.(*DB).query"), named(shop, "main.main")},
		"sort.(*T[...]).get < main.main": {named(shop, "crypto/sort.(*T[...]).get"),
			named(shop, "main.main")},
		"exec.(*Cmd).Run < main.deploy": {named(shop, "internal/runtime/syscall/linux.Syscall6"),
			named(shop, "os.(*Process).wait"), named(shop, "os/exec.(*Cmd).Run"), named(shop, "main.deploy")},
		"futex": {named(libc, "futex"), named(libc, "start_thread")},
		"usleep < shop+0x10": {named(libc, "nanosleep"), named(libc, "usleep"), {File: shop, Address: 16},
			{File: shop, Address: 32}, named(libc, "start_thread")},
		"shop+0x10":        {{File: libc, Address: 16}, {File: shop, Address: 16}},
		"nanosleep < main": {named(libc, "nanosleep"), {File: shop, Address: 16}, named(shop, "main")},
		"Mutex::wait < ServiceThread::entry": {named(libc, "futex"), named(libjvm, "PlatformMonitor::wait"),
			named(libjvm, "Mutex::wait"), named(libjvm, "ServiceThread::entry")},
		"uv_cond_wait < worker": {named(libc, "pthread_cond_wait"), named(shop, "uv_cond_wait"), named(shop, "worker")},
		"Monitor::wait < CompileQueue::get": {named(libc, "futex"), named(libjvm, "os::PlatformMonitor::wait"),
			named(libjvm, "Monitor::wait"), named(libjvm, "CompileQueue::get"), named(libjvm, "Thread::call_run")},
		"runtime.notesleep < runtime.stopm": {named(shop, "runtime.futex"), named(shop, "runtime.notesleep"),
			named(shop, "runtime.stopm"), named(shop, "runtime.findRunnable"), named(shop, "runtime.mcall")},
		"ConditionObject.await < java.util.concurrent.LinkedBlockingQueue.take": {
			of(profile.JVMFrame, "jdk.internal.misc.Unsafe.park", ""),
			of(profile.JVMFrame, "java.util.concurrent.locks.ConditionObject.await", ""),
			of(profile.JVMFrame, "java.util.concurrent.LinkedBlockingQueue.take", ""),
			of(profile.JVMFrame, "java.lang.Thread.run", "")},
		"wait  sync.py:7": {of(profile.PythonFrame, "wait", "/srv/lib/python3.11/site-packages/gunicorn/sync.py"),
			of(profile.PythonFrame, "<module>", "/srv/bin/gunicorn")},
		"select  selectors.py:7": {of(profile.PythonFrame, "select", "/usr/lib/python3.13/selectors.py"),
			of(profile.PythonFrame, "<module>", "/usr/lib/python3/dist-packages/uvicorn/__main__.py"),
			of(profile.PythonFrame, "_run_code", "runpy.py")},
		"Queue.get < WorkerThread.run  _asyncio.py:7": {
			of(profile.PythonFrame, "Condition.wait", "/usr/lib/python3.13/threading.py"),
			of(profile.PythonFrame, "Queue.get", "/usr/lib/python3.13/queue.py"),
			of(profile.PythonFrame, "WorkerThread.run", "/usr/lib/python3/dist-packages/anyio/_backends/_asyncio.py"),
			of(profile.PythonFrame, "Thread._bootstrap", "/usr/lib/python3.13/threading.py")},
		"wait < run  threading.py:7": {of(profile.PythonFrame, "wait", "/usr/lib/python3.8/threading.py"),
			of(profile.PythonFrame, "run", "/usr/lib/python3.8/threading.py")},
		"wait < <module>  work.py:7": {of(profile.PythonFrame, "wait", "/usr/lib/python3.11/threading.py"),
			of(profile.PythonFrame, "<module>", "/srv/bin/work.py")},
		"read < main  main.js:7": {of(profile.V8Frame, "read", "node:fs"), of(profile.V8Frame, "main", "/srv/main.js")},
		"libc.so.6+0x10":         {{File: libc, Address: 16}},
		"[unknown]":              nil,
		"FutureTask.get < Shop.await": {of(profile.JVMFrame, "java.util.concurrent.FutureTask.get", ""),
			of(profile.JVMFrame, "StubRoutines", ""), of(profile.JVMFrame, "Shop.await", "")},
		"SafepointBlob < Shop.sort  Shop.java:7": {of(profile.JVMFrame, "SafepointBlob", ""),
			of(profile.JVMFrame, "Shop.sort", "Shop.java")},
		"GIL: work  work.py:7": {named(libc, "pthread_cond_timedwait"), named(shop, "take_gil"),
			of(profile.PythonFrame, "work", "/srv/work.py")},
		"Cart.add < Shop.run": {of(profile.JVMFrame, "java.shop.Cart.add", ""), of(profile.JVMFrame, "Shop.run", "")},
		"sort < list  n.js:7": {of(profile.V8Frame, "sort", ""), of(profile.V8Frame, "list", "/srv/n.js")},
		"atomics  n.js:7": {named(shop, "Builtin_AtomicsWait"), of(profile.V8Frame, "V8::BuiltinExitFrame", ""),
			of(profile.V8Frame, "atomics", "/srv/n.js")},
	} {
		got := Place(frames)
		assert.Check(t, got == want, "%q, want %q", got, want)
	}
}

// Names are shortened before arguments of types, and of functions.
func TestShortName(t *testing.T) {
	shop := &profile.File{Kind: profile.NativeFrame, Path: "/bin/shop"}
	for name, want := range map[string]string{
		"main.F[...]": "main.F[...]", "slices.SortFunc[...]": "slices.SortFunc[...]",
		"main.Map[...].func1": "main.Map[...].func1", "main.F[go.shape.int]": "main.F[go.shape.int]",
		"example.org/a/b.F[example.org/c.T]": "b.F[example.org/c.T]", "example.org/b.(*T[...]).get": "b.(*T[...]).get",
		"f.constprop.0": "f.constprop.0", "main.f(a/b)": "main.f(a/b)", "f(a.b.c)": "f(a.b.c)", "read": "read",
		"main.(*T).get": "main.(*T).get", "a::f(b/c, d.e.f)": "a::f(b/c, d.e.f)",
	} {
		got := shortName(profile.Frame{File: shop, Function: profile.NewFunction(name, "")})
		assert.Check(t, got == want, "%q of %q, want %q", got, name, want)
	}
}

// That a thread waits for work of any kind is said before its place.
func TestTextOfIdle(t *testing.T) {
	wait := &profile.Wait{State: profile.Futex}
	assert.Equal(t, Text(wait, profile.IdleWait, "Shop.take"), "idle: Shop.take")
	assert.Equal(t, Text(wait, profile.LockWait, "Shop.take"), "Shop.take")
}

// A thread that waits for the GIL is woken by its timer to ask for it, and by who lets go of it at the end.
func TestWaker(t *testing.T) {
	timer := &profile.Waker{Kind: profile.TimerWaker}
	assert.Check(t, Waker(timer, "work") == "timer" && Waker(timer, "GIL: work") == "")
	assert.Check(t, Waker(&profile.Waker{Kind: profile.ThreadWaker, Thread: "hog"}, "GIL: work") == "hog")
}

// What ended most of the waits is said, and of how much if not of all; of many, those who came first are known.
func TestEndedBy(t *testing.T) {
	var sum Total
	says := func(want string) {
		t.Helper()
		got := sum.EndedBy()
		assert.Check(t, got == want, "%q, want %q", got, want)
	}
	says("")
	sum.Add(profile.StateTimes{Sum: 5e6, Count: 1}, "")
	says("")
	sum.Add(profile.StateTimes{Sum: 3e6, Longest: 3e6, Count: 1}, "b")
	says("b (3.0 ms)")
	sum = Total{}
	sum.Add(profile.StateTimes{Sum: 3e6}, "b")
	says("b")
	sum.Add(profile.StateTimes{Sum: 3e6}, "a")
	says("a (3.0 ms)")
	for i := range 2 * maxWakers {
		sum.Add(profile.StateTimes{Sum: 5e6}, fmt.Sprint(i))
	}
	assert.Check(t, len(sum.wakers) == maxWakers && sum.Sum == 6e6+10e6*maxWakers, "%d, %+v", len(sum.wakers),
		sum.StateTimes)
}
