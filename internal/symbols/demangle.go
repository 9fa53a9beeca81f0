package symbols

import (
	"github.com/ianlancetaylor/demangle"

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
)

// Demangle returns what a C++ or Rust name is in its language, without the types of parameters (as perf
// and pprof show it): "foo::bar<int>" for _ZN3foo3barIiEEvi. It is empty if the name is not mangled, or too
// long. How long a name takes is not bounded otherwise, and who has written the file has chosen it: names
// that are a process's are demangled in a worker, which is killed when it does not answer in time.
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
