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

// isIdleNative reports whether a function waits for work: what Go's scheduler and its monitor wait in, and libuv's
// event loop and threads.
func isIdleNative(name string, called, callers []Frame) bool {
	switch name {
	case "runtime.stopm", "runtime.findRunnable", "runtime.findrunnable", "runtime.sysmon":
		return true
	case "uv__io_poll":
		return len(called) > 0 && strings.HasPrefix(called[len(called)-1].Name(), "epoll_")
	case "uv_cond_wait":
		return len(callers) > 0 && (callers[0].Name() == "worker" ||
			callers[0].Name() == "node::(anonymous namespace)::PlatformWorkerThread")
	}
	return false
}
