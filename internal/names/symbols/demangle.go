package symbols

import (
	"runtime"
	"strings"
	"time"

	"github.com/ianlancetaylor/demangle"
	"golang.org/x/sys/unix"

	"correlator/internal/host/self"
	"correlator/internal/host/textcut"
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

	// maxDemangling is for all names of a Demangler, so that those of hostile files leave a worker most of the time
	// that it has to answer. 20,000 of libstdc++'s take it.
	maxDemangling = 100 * time.Millisecond
)

// A Demangler tells what names are in C++ and Rust. Who has written a file has chosen its names: once they have
// taken a tenth of a second of CPU time together, others are not demangled. How long the one before takes is
// not bounded, so names that a process has chosen are demangled in a worker, which is killed when it does not
// answer in time. It is for one goroutine.
type Demangler struct{ spent time.Duration }

// Demangle returns what a C++ or Rust name is in its language, without the types of parameters (as perf
// and pprof show it): "foo::bar<int>" for _ZN3foo3barIiEEvi. It is empty if the name is not mangled, or too
// long, or those before it took too much time.
func (d *Demangler) Demangle(name string) string {
	if !strings.HasPrefix(name, "_") || len(name) > maxMangledBytes || d.spent >= maxDemangling {
		return ""
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := self.Clock(unix.CLOCK_THREAD_CPUTIME_ID)
	demangled := demangled(name)
	d.spent += self.Clock(unix.CLOCK_THREAD_CPUTIME_ID) - began
	return demangled
}

func demangled(name string) (demangled string) {
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
	return textcut.Marked(text, maxDemangledBytes)
}
