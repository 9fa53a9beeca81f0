package profile

import (
	"slices"
	"strings"
)

// pools are classes of Java whose threads run a loop, in which they wait for the next task.
var pools = map[string]struct{ loop, wait string }{
	"java.util.concurrent.ForkJoinPool":                 {"runWorker", "awaitWork"},
	"java.util.concurrent.ThreadPoolExecutor":           {"runWorker", "getTask"},
	"org.apache.tomcat.util.threads.ThreadPoolExecutor": {"runWorker", "getTask"},
}

// IsIdle reports whether the stack of a wait is that of a thread that waits for any work at all: of a pool of threads,
// of Go's scheduler, or of an event loop. It is on no transaction then, whatever context was left on it. Native
// functions are only known once they have names.
func IsIdle(frames []Frame) bool {
	waiting := "" // the pool
	for i, f := range frames {
		if f.IsInlined() {
			continue
		}
		switch f.Kind() {
		case JVMFrame:
			class, method := methodOf(f.Name())
			switch pool := pools[class]; {
			case method == pool.wait && method != "":
				waiting = class
			case class != waiting:
				waiting = ""
			case method == pool.loop:
				return true
			}
		case PythonFrame:
			return isIdlePython(f, frames[:i], frames[i+1:])
		case V8Frame, PHPFrame:
			return false
		case NativeFrame:
			if waiting == "" && isIdleNative(f.Name(), frames[:i], frames[i+1:]) {
				return true
			}
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

// isIdlePython reports whether the innermost function of Python is that of a pool's thread, or of an event loop, and
// does not wait for the interpreter, with what it got.
func isIdlePython(f Frame, called, callers []Frame) bool {
	switch {
	case slices.ContainsFunc(called, Frame.TakesGIL):
		return false
	case f.Name() == "_worker":
		return strings.HasSuffix(f.SourceFile(), "/concurrent/futures/thread.py")
	case f.Name() == "Condition.wait": // since Python 3.11 its functions call each other without others between them
		return len(callers) > 1 && callers[0].Name() == "Queue.get" && callers[1].Name() == "WorkerThread.run" &&
			strings.HasSuffix(callers[1].SourceFile(), "/anyio/_backends/_asyncio.py")
	case !strings.HasSuffix(f.SourceFile(), "/selectors.py"):
		return false
	}
	for _, caller := range callers {
		if caller.Kind() == PythonFrame {
			return strings.HasSuffix(caller.Name(), "_run_once") &&
				strings.HasSuffix(caller.SourceFile(), "/asyncio/base_events.py")
		}
	}
	return false
}

// TakesGIL reports whether a frame is of the function in which threads wait for the interpreter of Python, if it has a
// name.
func (f Frame) TakesGIL() bool {
	name, _, _ := strings.Cut(f.Name(), ".") // what compilers add
	return name == "take_gil"
}

// isIdleNative reports whether a function waits for work: what Go's scheduler and its monitor wait in, libuv's event
// loop and threads, those of HotSpot, and the event loops of libevent, nginx, HAProxy and Redis.
func isIdleNative(name string, called, callers []Frame) bool {
	switch name {
	case "runtime.stopm", "runtime.findRunnable", "runtime.findrunnable", "runtime.sysmon":
		return true
	case "uv__io_poll":
		return calls(called, 1, "epoll_")
	case "uv_run", "event_base_loop", "ngx_process_events_and_timers", "run_poll_loop", "aeMain", "aeProcessEvents":
		return calls(called, 2, "epoll_wait", "epoll_pwait") // in a function of its own
	case "CompileQueue::get", "MonitorDeflationThread::monitor_deflation_thread_entry",
		"ServiceThread::service_thread_entry", "VMThread::wait_for_operation", "WatcherThread::sleep":
		return calls(called, 1, "Monitor::wait")
	case "WorkerThread::run":
		return calls(called, 1, "PosixSemaphore::wait")
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
