package waits

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"correlator/internal/out/report"
	"correlator/profile"
)

// Name returns what a frame is shown as.
func Name(f profile.Frame) string {
	switch {
	case f.Name() != "":
		return report.Display(f, f.Name())
	case f.File != nil:
		return fmt.Sprintf("%s+%#x", path.Base(f.File.Path), f.Address)
	}
	return "[unknown]" // addresses of compiled code say nothing
}

// gil is how the Place begins where a thread waits for the interpreter of Python, as far as functions of that have
// names. It waits for some milliseconds each time, until the thread that has it lets go.
const gil = "GIL: "

// Place returns where in a program a thread waited: the innermost function that is no library's, and what it called.
// Without such a function, it is the innermost that does more than wait, or else the address of one without a name.
func Place(frames []profile.Frame) string {
	if slices.ContainsFunc(frames, profile.Frame.TakesGIL) {
		return gil + placeOf(frames)
	}
	return placeOf(frames)
}

func placeOf(frames []profile.Frame) string {
	ofRuntime := slices.ContainsFunc(frames, func(f profile.Frame) bool { return f.Kind().OfRuntime() })
	skipped := func(f profile.Frame) bool {
		return f.Name() == "" || f.IsInlined() || f.Kind() == profile.CutFrame || f.Kind() == profile.KernelFrame ||
			ofRuntime && !f.Kind().OfRuntime() || isStub(f)
	}
	first, waiter, unnamed, at := -1, -1, -1, -1
	for i, f := range frames {
		if skipped(f) {
			if unnamed < 0 && f.Name() == "" && f.File != nil && f.Kind() == profile.NativeFrame && !ofLibrary(f) {
				unnamed = i
			}
			continue
		}
		if first < 0 {
			first = i
		}
		if waiter < 0 && !onlyWaits(f) {
			waiter = i
		}
		if !ofLibrary(f) {
			at = i
			break
		}
	}
	switch {
	case at >= 0:
	case waiter >= 0:
		at = waiter
	case unnamed >= 0 && !ofRuntime:
		at = unnamed
	case first >= 0:
		at = first
	case len(frames) > 0:
		return Name(frames[0])
	default:
		return "[unknown]"
	}
	text := Name(frames[at])
	for i := at - 1; i >= max(first, 0); i-- { // what it called, or what that called: of libraries, some have no names
		if called := frames[i]; !skipped(called) {
			text = shortName(called) + " < " + text
			break
		}
	}
	if file := frames[at].SourceFile(); file != "" {
		text += "  " + path.Base(file)
		if line := frames[at].Line; line > 0 {
			text += ":" + strconv.FormatUint(uint64(line), 10)
		}
	}
	return text
}

// isStub reports whether a frame is of code by which the engines of Node.js and Java enter and leave functions.
func isStub(f profile.Frame) bool {
	return f.Kind() == profile.V8Frame && strings.HasPrefix(f.Name(), "V8::") ||
		f.Kind() == profile.JVMFrame && f.Name() == "StubRoutines"
}

// shortName returns the name of a Java method without its package, and of a Go function without what leads to its own.
func shortName(f profile.Frame) string {
	name := Name(f)
	if f.Kind() == profile.JVMFrame {
		dot := strings.LastIndexByte(name[:max(strings.LastIndexByte(name, '.'), 0)], '.')
		return name[dot+1:]
	}
	plain, _, _ := strings.Cut(name, "[")   // not of arguments of types
	before, _, _ := strings.Cut(plain, "(") // nor of others
	if slash := strings.LastIndexByte(before, '/'); slash >= 0 && !strings.ContainsAny(plain, "<: ") {
		return name[slash+1:]
	}
	return name
}

func begins(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// onlyWaits reports whether a frame is of a function by which all wait, whatever for: of the C library, HotSpot, Java,
// Python, and the runtimes of Go and Node.js.
func onlyWaits(f profile.Frame) bool {
	switch {
	case f.Kind() == profile.JVMFrame:
		return begins(f.Name(), "jdk.internal.misc.Unsafe.park", "java.util.concurrent.locks.",
			"java.util.concurrent.ForkJoinPool.managedBlock", "java.util.concurrent.ForkJoinPool.unmanagedBlock",
			"java.lang.Object.wait")
	case f.Kind() == profile.PythonFrame:
		return waitsInPython.MatchString(f.SourceFile() + " " + f.Name())
	case f.Kind().OfRuntime():
		return false
	}
	return ofCLibrary(f) || begins(f.Name(), "Monitor::", "Mutex::", "Parker::", "PosixSemaphore::", "os::Platform",
		"PlatformEvent::", "PlatformMonitor::", "PlatformMutex::",
		"runtime.futex", "runtime.note", "runtime.mPark", "runtime.usleep", "runtime.epoll", "runtime.netpoll",
		"internal/runtime/syscall", "runtime/internal/syscall") || waitsInLibuv(f)
}

// waitsInPython matches the file and the name of functions of Python by which threads wait for each other.
var waitsInPython = regexp.MustCompile(`/lib/python[^/]*/(threading|queue)\.py ` +
	`(\w+\.)*(wait|wait_for|acquire|_acquire_restore|get|put)$`)

// waitsInLibuv reports whether a frame is of a function of libuv, which may be part of the program, by which it waits.
func waitsInLibuv(f profile.Frame) bool {
	return begins(f.Name(), "uv_cond_", "uv_sem_", "uv_mutex_")
}

// ofCLibrary reports whether a frame is of the C library, the loader or the vDSO.
func ofCLibrary(f profile.Frame) bool {
	return f.File != nil &&
		begins(path.Base(f.File.Path), "libc.", "libc-", "libpthread", "ld-", "linux-vdso", "[vdso]")
}

// ofLibrary reports whether a frame is of what comes with the language, as far as its name tells, or, in Python, of a
// program that was installed: it calls the packages in which the work is.
func ofLibrary(f profile.Frame) bool {
	switch {
	case f.Kind() == profile.JVMFrame:
		return begins(f.Name(), "java.", "javax.", "jdk.", "sun.", "com.sun.") ||
			!strings.Contains(f.Name(), ".") // HotSpot's own code, such as SafepointBlob
	case f.Kind() == profile.PythonFrame:
		return strings.Contains(f.SourceFile(), "/lib/python") || ofFrozen.MatchString(f.SourceFile()) ||
			path.Base(path.Dir(f.SourceFile())) == "bin" && path.Ext(f.SourceFile()) == ""
	case f.Kind() == profile.V8Frame:
		return f.SourceFile() == "" || begins(f.SourceFile(), "node:")
	case f.Kind() == profile.PHPFrame:
		return f.SourceFile() == ""
	case f.File != nil:
		return ofCLibrary(f) || begins(path.Base(f.File.Path), "libjvm.") ||
			begins(f.Name(), "golang.org/x/sys/") || ofGo.MatchString(f.Name()) || waitsInLibuv(f)
	}
	return false
}

// ofFrozen matches what the engine has as files of modules that are part of Python's executable: no paths.
var ofFrozen = regexp.MustCompile(`^(_bootstrap|_bootstrap_external|codecs|genericpath|os|posixpath|runpy|` +
	`zipimport)\.py$`)

// ofGo matches functions of Go's standard library that may wait, or call those that do.
var ofGo = regexp.MustCompile(`^(bufio|compress|context|crypto|database|encoding|fmt|internal|io|log|mime|net|os|` +
	`runtime|sync|syscall|testing|text|time|vendor)[./]`)
