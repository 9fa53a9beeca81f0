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
func Place(frames []profile.Frame) string {
	if slices.ContainsFunc(frames, func(f profile.Frame) bool {
		name, _, _ := strings.Cut(f.Name(), ".") // what compilers add
		return name == "take_gil"
	}) {
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
	first, at := -1, -1
	for i, f := range frames {
		if skipped(f) {
			continue
		}
		if first < 0 {
			first = i
		}
		if !ofLibrary(f) {
			at = i
			break
		}
	}
	if at < 0 {
		at = first
	}
	if at < 0 {
		if len(frames) == 0 {
			return "[unknown]"
		}
		return Name(frames[0])
	}
	text := Name(frames[at])
	for i := at - 1; i >= first; i-- { // what it called, or what that called: of libraries, some have no names
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

// ofLibrary reports whether a frame is of what comes with the language, as far as its name tells.
func ofLibrary(f profile.Frame) bool {
	begins := func(text string, prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
	}
	switch {
	case f.Kind() == profile.JVMFrame:
		return begins(f.Name(), "java.", "javax.", "jdk.", "sun.", "com.sun.") ||
			!strings.Contains(f.Name(), ".") // HotSpot's own code, such as SafepointBlob
	case f.Kind() == profile.PythonFrame:
		return strings.Contains(f.SourceFile(), "/lib/python") || begins(f.SourceFile(), "<frozen ")
	case f.Kind() == profile.V8Frame:
		return begins(f.SourceFile(), "node:")
	case f.Kind() == profile.PHPFrame:
		return f.SourceFile() == ""
	case f.File != nil:
		return begins(path.Base(f.File.Path), "libc.", "libc-", "libpthread", "ld-", "libjvm.", "linux-vdso",
			"[vdso]") ||
			begins(f.Name(), "golang.org/x/sys/") || ofGo.MatchString(f.Name())
	}
	return false
}

// ofGo matches functions of Go's standard library that may wait, or call those that do.
var ofGo = regexp.MustCompile(`^(bufio|compress|context|crypto|database|encoding|fmt|internal|io|log|mime|net|os|` +
	`runtime|sync|syscall|testing|text|time|vendor)[./]`)
