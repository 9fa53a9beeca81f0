package symbols

import (
	"runtime"
	"time"

	"github.com/ianlancetaylor/demangle"
	"golang.org/x/sys/unix"

	"correlator/internal/textcut"
)

const (
	// maxMangledBytes bounds the time and the stack that demangling takes. Of half a million names of so many bytes,
	// made to take long, the worst took 0.25 s; one of libstdc++ takes 5 µs. It is as much of a name as a
	// profile.Function shows.
	maxMangledBytes = 1024

	// maxDemangledBytes bounds what is shown: a name of a few bytes may stand for any number of them, by
	// substitutions in substitutions. The library stops at the power of 2 that follows.
	maxDemangledBytes = 1024
	demangledPower    = 11

	// maxDemangling is for all names of a Demangler: 100,000 of libstdc++'s take it.
	maxDemangling = 500 * time.Millisecond
)

// A Demangler demangles names whose writer is not trusted: once they have taken half a second of CPU time
// together, others are not demangled. It is for one goroutine.
type Demangler struct{ spent time.Duration }

// Demangle is like [Demangle]. It is also empty once the names took too long.
func (d *Demangler) Demangle(name string) string {
	if d.spent >= maxDemangling {
		return ""
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	demangled := Demangle(name)
	d.spent += threadTime() - began
	return demangled
}

func threadTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) // fails for no clock that there is
	return time.Duration(now.Nano())
}

// Demangle returns what a C++ or Rust name is in its language, without the types of parameters (as perf
// and pprof show it): "foo::bar<int>" for _ZN3foo3barIiEEvi. It is empty if the name is not mangled, or too
// long. A name can take 0.25 s: those that a process has chosen are for a [Demangler].
func Demangle(name string) (demangled string) {
	if len(name) > maxMangledBytes {
		return ""
	}
	// The library panics where it finds itself to be wrong.
	defer func() {
		if recover() != nil {
			demangled = ""
		}
	}()
	text, err := demangle.ToString(name, demangle.NoParams, demangle.MaxLength(demangledPower))
	if err != nil || text == name {
		return ""
	}
	return textcut.At(text, maxDemangledBytes)
}
