package profile

import (
	"path"
	"slices"
	"strings"
)

// pools are classes of Java whose threads run a loop, in which they wait for the next task.
var pools = map[string]struct{ loop, wait string }{
	"java.util.concurrent.ForkJoinPool":                 {"runWorker", "awaitWork"},
	"java.util.concurrent.ThreadPoolExecutor":           {"runWorker", "getTask"},
	"org.apache.tomcat.util.threads.ThreadPoolExecutor": {"runWorker", "getTask"},
}

// InPool reports whether the stack is that of a thread of a pool of Java or Python that waits for its next task, or is
// about to: it is on no transaction, whatever context was left on it.
func InPool(frames []Frame) bool {
	waiting := "" // the pool
	for i, f := range frames {
		switch {
		case f.IsInlined():
		case f.Kind() == JVMFrame:
			class, method := methodOf(f.Name())
			switch pool, isPool := pools[class]; {
			case !isPool:
				waiting = "" // also of a method whose name is not known
			case method == pool.wait:
				waiting = class
			case class != waiting:
				waiting = ""
			case method == pool.loop:
				return true
			}
		case f.Kind().OfRuntime():
			return f.Kind() == PythonFrame && inPythonPool(f, frames[i+1:])
		}
	}
	return false
}

// inPythonPool reports whether the innermost function of Python is that in which a pool's thread waits.
func inPythonPool(f Frame, callers []Frame) bool {
	switch f.Name() {
	case "_worker":
		return strings.HasSuffix(f.SourceFile(), "/concurrent/futures/thread.py")
	case "Condition.wait": // since Python 3.11 its functions call each other without others between them
		return len(callers) > 1 && callers[0].Name() == "Queue.get" && callers[1].Name() == "WorkerThread.run" &&
			strings.HasSuffix(callers[1].SourceFile(), "/anyio/_backends/_asyncio.py")
	}
	return false
}

// isIdle reports whether the stack of a wait, whose functions have names, is that of a thread that waits for any work
// at all: of a pool, of Go's scheduler, of HotSpot itself, or in an event loop that nothing else can have called.
// Others may be run for one request, as by asyncio.run.
func isIdle(frames []Frame) bool {
	if slices.ContainsFunc(frames, Frame.TakesGIL) { // with what it got
		return false
	}
	if InPool(frames) {
		return true
	}
	if slices.ContainsFunc(frames, func(f Frame) bool {
		return f.Kind().OfRuntime() || f.Kind() == AnonymousFrame || strings.HasPrefix(f.Name(), "_PyEval_") ||
			strings.HasPrefix(f.Name(), "node::SyncProcessRunner::")
	}) { // of whom the loop may have been called
		return false
	}
	for i, f := range frames {
		if f.Kind() == NativeFrame && waitsForWork(f, frames[:i], frames[i+1:]) {
			return true
		}
	}
	return false
}

// methodOf returns class and method of a name with or without return type and arguments.
func methodOf(name string) (class, method string) {
	if before, _, signed := strings.Cut(name, "("); signed {
		name = before[strings.LastIndexByte(before, ' ')+1:]
	}
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		return name[:dot], name[dot+1:]
	}
	return "", name
}

// TakesGIL reports whether a frame is of the function in which threads wait for the interpreter of Python, if it has a
// name.
func (f Frame) TakesGIL() bool {
	name, _, _ := strings.Cut(f.Name(), ".") // what compilers add
	return name == "take_gil"
}

// waitsForWork reports whether a function waits for work: what Go's scheduler and its monitor wait in, libuv's event
// loop and threads, those of HotSpot, and the event loops of nginx, HAProxy and Redis.
func waitsForWork(f Frame, called, callers []Frame) bool {
	of := func(file string) bool { return f.File != nil && strings.HasPrefix(path.Base(f.File.Path), file) }
	switch f.Name() {
	case "runtime.stopm", "runtime.findRunnable", "runtime.findrunnable", "runtime.sysmon":
		return true
	case "uv__io_poll":
		return calls(called, 1, "epoll_")
	case "uv_run", "ngx_process_events_and_timers":
		return calls(called, 2, "epoll_wait", "epoll_pwait") // in a function of its own
	case "aeProcessEvents":
		return len(callers) > 0 && callers[0].Name() == "aeMain" && calls(called, 2, "epoll_wait", "epoll_pwait")
	case "run_poll_loop":
		return of("haproxy") && calls(called, 2, "epoll_wait", "epoll_pwait")
	case "CompileQueue::get", "MonitorDeflationThread::monitor_deflation_thread_entry",
		"ServiceThread::service_thread_entry", "VMThread::wait_for_operation", "WatcherThread::sleep":
		return of("libjvm.") && calls(called, 1, "Monitor::wait")
	case "WorkerThread::run":
		return of("libjvm.") && calls(called, 1, "PosixSemaphore::wait")
	case "uv_cond_wait":
		return len(callers) > 0 && (callers[0].Name() == "worker" ||
			callers[0].Name() == "node::(anonymous namespace)::PlatformWorkerThread")
	}
	return false
}

// calls reports whether one of the n outermost of the functions that were called has a name that begins so.
func calls(called []Frame, n int, prefixes ...string) bool {
	return slices.ContainsFunc(called[max(len(called)-n, 0):], func(f Frame) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(f.Name(), prefix) })
	})
}
