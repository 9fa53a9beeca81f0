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
		return calls(called, "epoll_")
	case "uv_run", "ngx_process_events_and_timers":
		return polls(called)
	case "aeProcessEvents":
		return len(callers) > 0 && callers[0].Name() == "aeMain" && polls(called)
	case "run_poll_loop":
		return of("haproxy") && polls(called)
	case "CompileQueue::get", "MonitorDeflationThread::monitor_deflation_thread_entry",
		"ServiceThread::service_thread_entry", "VMThread::wait_for_operation", "WatcherThread::sleep":
		return of("libjvm.") && calls(called, "Monitor::wait")
	case "WorkerThread::run":
		return of("libjvm.") && calls(called, "PosixSemaphore::wait")
	case "uv_cond_wait":
		return len(callers) > 0 && (callers[0].Name() == "worker" ||
			callers[0].Name() == "node::(anonymous namespace)::PlatformWorkerThread")
	}
	return false
}

// polls reports whether what an event loop called waits for events: by itself, or in a function that the loop has for
// that, which mostly has no name.
func polls(called []Frame) bool {
	switch outermost := len(called) - 1; {
	case outermost < 1:
	case called[outermost].Name() == "", slices.Contains(pollers, called[outermost].Name()):
		called = called[:outermost]
	}
	return calls(called, "epoll_wait", "epoll_pwait")
}

// pollers are functions in which event loops wait.
var pollers = []string{"aeApiPoll", "ngx_epoll_process_events", "_do_poll", "uv__io_poll"}

// calls reports whether the outermost of the functions that were called has a name that begins so.
func calls(called []Frame, prefixes ...string) bool {
	return len(called) > 0 && slices.ContainsFunc(prefixes, func(prefix string) bool {
		return strings.HasPrefix(called[len(called)-1].Name(), prefix)
	})
}
