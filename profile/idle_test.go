package profile

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// Only who waits in the loop of a pool for work is idle, not who waits in work; nor who waits for what only has such a
// name, or in a loop that may have been run for a request. Pools are those of Java and Python.
func TestIsIdle(t *testing.T) {
	const forkJoin, executor, park = "java.util.concurrent.ForkJoinPool.", "java.util.concurrent.ThreadPoolExecutor.",
		"jdk.internal.misc.Unsafe.park"
	java := func(names ...string) (frames []Frame) {
		frames = append(frames, NewCutFrame(), NewInlinedFrame())
		for _, name := range names {
			frames = append(frames, NewJVMFrame(NewFunction(name, ""), 1))
		}
		return frames
	}
	of := func(file string, names ...string) (frames []Frame) {
		for _, name := range names {
			f := Frame{File: &File{Kind: NativeFrame, Path: file}, Address: 1}
			if name != "" {
				f.Function = NewFunction(name, "")
			}
			frames = append(frames, f)
		}
		return frames
	}
	native := func(names ...string) []Frame { return of("/bin/shop", names...) }
	hotSpot := func(names ...string) []Frame { return of("/jdk/lib/server/libjvm.so", names...) }
	python := func(name, file string) Frame { return NewRuntimeFrame(PythonFrame, NewFunction(name, file), 1) }
	const lib = "/usr/lib/python3.11/"
	const anyio = "/srv/lib/python3.13/site-packages/anyio/_backends/_asyncio.py"
	getting := []Frame{python("Condition.wait", lib+"threading.py"), python("Queue.get", lib+"queue.py")}
	for i, c := range []struct {
		stack []Frame
		want  bool
	}{
		{java(park, forkJoin+"awaitWork", forkJoin+"runWorker", "java.util.concurrent.ForkJoinWorkerThread.run"), true},
		{java("void jdk.internal.misc.Unsafe.park(boolean, long)", "long "+forkJoin+"awaitWork(java.lang.Object, int)",
			"void "+forkJoin+"runWorker(java.lang.Object)"), true},
		{java(park, forkJoin+"awaitWork", forkJoin+"deactivate", forkJoin+"runWorker"), true},
		{java(park, forkJoin+"managedBlock", forkJoin+"runWorker"), false},
		{java(park, "Shop.run", forkJoin+"runWorker"), false},
		{java(park, forkJoin+"awaitWork", "Shop.run", forkJoin+"runWorker"), false},
		{java(park, forkJoin+"awaitWork"), false},
		{java(park, "com.example.ForkJoinPool.awaitWork", "com.example.ForkJoinPool.runWorker"), false},
		{java(park, executor+"getTask", executor+"runWorker", "java.lang.Thread.run"), true},
		{java(park, "Shop.run", executor+"runWorker", "java.lang.Thread.run"), false},
		{java(park, forkJoin+"awaitWork", executor+"runWorker"), false},
		{java(park, "org.apache.tomcat.util.threads.TaskQueue.take",
			"org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask",
			"org.apache.tomcat.util.threads.ThreadPoolExecutor.runWorker"), true},
		{native("runtime.futex", "runtime.stopm", "runtime.findRunnable", "runtime.schedule"), true},
		{native("runtime.epollwait", "runtime.netpoll", "runtime.findrunnable"), true},
		{native("runtime.usleep", "runtime.sysmon"), true},
		{native("runtime.futex", "runtime.notetsleepg", "os/signal.loop"), false},
		{native("epoll_pwait", "uv__io_poll", "uv_run"), true},
		{native("read", "uv__read", "uv__io_poll", "uv_run"), false},
		{native("epoll_pwait", "", "uv_run"), true}, // the library has no other names
		{native("read", "", "uv_run"), false},
		{native("epoll_pwait", "get", "", "uv_run"), false},
		{native("pthread_cond_wait", "uv_cond_wait", "worker", "start_thread"), true},
		{native("pthread_cond_wait", "uv_cond_wait", "node::(anonymous namespace)::PlatformWorkerThread"), true},
		{native("pthread_cond_wait", "uv_cond_wait", "shop::wait"), false},
		{append(native("epoll_pwait"), append([]Frame{NewRuntimeFrame(V8Frame, NewFunction("get", "a.js"), 1)},
			native("epoll_pwait", "uv__io_poll")...)...), false},
		{append(native("epoll_pwait", "uv__io_poll"), NewRuntimeFrame(V8Frame, NewFunction("spawnSync", "a.js"), 1)),
			false},
		{native("epoll_wait", "epoll_dispatch", "event_base_loop", "main"), false}, // perhaps in a request
		{native("epoll_wait", "", "ngx_process_events_and_timers"), true},
		{of("/usr/sbin/haproxy", "epoll_wait", "", "run_poll_loop"), true},
		{native("epoll_wait", "", "run_poll_loop"), false},
		{native("epoll_wait", "aeApiPoll", "aeProcessEvents", "aeMain"), true},
		{native("epoll_wait", "aeProcessEvents", "aeMain"), true},
		{native("epoll_wait", "handle", "aeProcessEvents", "aeMain"), false},
		{native("write", "", "aeMain"), false},
		{java(""), false},
		{java(park, "", "Shop.run"), false},
		{[]Frame{NewJVMFrame(nil, 0)}, false},
		{java(park, executor+"getTask", "", executor+"runWorker"), false},
		{append(native("epoll_pwait", "uv__io_poll"), Frame{Address: 1}), false}, // compiled code
		{native("epoll_pwait", "uv__io_poll", "uv_run", "node::SyncProcessRunner::Run"), false},
		{native("epoll_pwait", "uv__io_poll", "uv_run", "_PyEval_EvalFrameDefault"), false},
		{hotSpot("futex", "PlatformMonitor::wait", "Monitor::wait", "CompileQueue::get"), true},
		{hotSpot("futex", "Monitor::wait", "VMThread::wait_for_operation"), true},
		{hotSpot("futex", "Monitor::wait", "shop", "ServiceThread::service_thread_entry"), false},
		{hotSpot("futex", "PosixSemaphore::wait", "WorkerThread::run"), true},
		{native("futex", "PosixSemaphore::wait", "WorkerThread::run"), false},
		{native("futex", "Monitor::wait", "CompileQueue::get"), false},
		{hotSpot("futex", "Monitor::wait", "GCTask::work", "WorkerThread::run"), false},
		{append(getting[:2:2], python("WorkerThread.run", anyio)), true},
		{append(getting[:2:2], python("WorkerThread.run", "/srv/shop.py")), false},
		{append(getting[:2:2], Frame{Address: 1}, python("WorkerThread.run", anyio)), false}, // in a task
		{getting, false},
		{[]Frame{{Address: 1}, python("_worker", lib+"concurrent/futures/thread.py")}, true},
		{append(native("take_gil.part.0"), python("_worker", lib+"concurrent/futures/thread.py")), false},
		{[]Frame{python("work", "/srv/a.py"), python("_worker", lib+"concurrent/futures/thread.py")}, false},
		{[]Frame{python("_worker", "/srv/thread.py")}, false},
		{[]Frame{python("EpollSelector.select", lib+"selectors.py"),
			python("BaseEventLoop._run_once", lib+"asyncio/base_events.py")}, false}, // perhaps in a request
		{[]Frame{python(forkJoin+"awaitWork", ""), python(forkJoin+"runWorker", "")}, false},
		{nil, false},
	} {
		assert.Check(t, isIdle(c.stack) == c.want, "%d: %v", i, c.stack)
		ofRuntime := func(f Frame) bool { return f.Kind().OfRuntime() }
		if inPool := InPool(c.stack); slices.ContainsFunc(c.stack, Frame.TakesGIL) {
			assert.Check(t, inPool, "%d: %v", i, c.stack) // also who waits for the interpreter there
		} else {
			assert.Check(t, inPool == (c.want && slices.ContainsFunc(c.stack, ofRuntime)), "%d: %v", i, c.stack)
		}
	}
}
