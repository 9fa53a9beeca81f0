package demo

import (
	"crypto/rand"
	"encoding/hex"
	"runtime"
	"testing"

	"correlator/internal/lab/testenv"
)

// Flavor is a C library together with a way in which the agent library gets its thread-local
// memory: each needs a different rule to find the variable from outside.
type Flavor uint8

const (
	Glibc         Flavor = iota // TLSDESC, static: within glibc's reserve
	GlibcDynamic                // TLSDESC, dynamic: the reserve is used up
	GlibcDTPMod                 // DTPMOD64
	Musl                        // TLSDESC, dynamic
	MuslPreloaded               // TLSDESC, static: part of the program from its start

	// GlibcUnframed is Glibc with a program without frame pointers. It is not among Flavors.
	GlibcUnframed
)

// Flavors returns all ways to place the variable.
func Flavors() []Flavor {
	return []Flavor{Glibc, GlibcDynamic, GlibcDTPMod, Musl, MuslPreloaded}
}

type flavor struct {
	name, program, library string
	environment            string
	musl, preload          bool
}

func (f Flavor) description() flavor {
	return [...]flavor{
		Glibc: {name: "glibc", program: "demo-glibc", library: "lib-glibc-tlsdesc"},
		GlibcDynamic: {name: "glibc-dynamic", program: "demo-glibc", library: "lib-glibc-tlsdesc",
			environment: "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0"},
		GlibcDTPMod: {name: "glibc-dtpmod", program: "demo-glibc", library: "lib-glibc-dtpmod"},
		Musl:        {name: "musl", program: "demo-musl", library: "lib-musl-tlsdesc", musl: true},
		MuslPreloaded: {name: "musl-preloaded", program: "demo-musl", library: "lib-musl-tlsdesc", musl: true,
			preload: true},
		GlibcUnframed: {name: "glibc-unframed", program: "demo-glibc-unframed", library: "lib-glibc-tlsdesc"},
	}[f]
}

func (f Flavor) String() string { return f.description().name }

// need ends the test when the machine cannot build the flavor.
func (f Flavor) need(t testing.TB) {
	t.Helper()
	testenv.NeedTool(t, "cc")
	if f.description().musl {
		testenv.NeedTool(t, "musl-gcc")
	}
}

// LibraryName returns a unique name like those that the Java agent gives its library when it
// extracts it.
func LibraryName(musl bool) string {
	machine := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	if musl {
		machine = "musl-" + machine
	}
	var unique [32]byte
	rand.Read(unique[:])
	return "elastic-jvmti-linux-" + machine + "-" +
		hex.EncodeToString(unique[:16]) + "-" + hex.EncodeToString(unique[16:]) + ".so"
}
