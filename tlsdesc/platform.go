package tlsdesc

import (
	"debug/elf"
	"path"
	"strings"
)

// platform is what depends on the machine.
type platform struct {
	// staticResolver is the complete code of the static resolver, which may follow one of
	// landingPads.
	staticResolver string
	landingPads    []string

	// Static variables are between these offsets from the thread pointer.
	staticMin, staticMax int64

	glibcDTV, muslDTV int64 // where the pointer to the DTV is, from the thread pointer
}

// platformOf follows specs/tls.md, "Which kind" and "The thread pointer and the DTV". On x86-64
// static blocks are below the thread pointer, on aarch64 above it (variants II and I of the TLS
// ABI). The ABI of aarch64 reserves the two words at the thread pointer, but musl 1.2.3 begins with
// the first library's block there when the program has no TLS of its own.
func platformOf(machine elf.Machine) (platform, bool) {
	switch machine {
	case elf.EM_X86_64:
		return platform{
			staticResolver: "\x48\x8b\x40\x08\xc3",       // mov 8(%rax),%rax; ret
			landingPads:    []string{"\xf3\x0f\x1e\xfa"}, // endbr64
			staticMin:      -maxOffset,
			staticMax:      -wordBytes,
			glibcDTV:       8, // tcbhead_t.dtv (sysdeps/x86_64/nptl/tls.h)
			muslDTV:        8, // struct pthread.dtv (src/internal/pthread_impl.h)
		}, true
	case elf.EM_AARCH64:
		return platform{
			staticResolver: "\x00\x04\x40\xf9\xc0\x03\x5f\xd6",               // ldr x0,[x0,#8]; ret
			landingPads:    []string{"\x5f\x24\x03\xd5", "\x1f\x20\x03\xd5"}, // bti c; nop
			staticMin:      0,
			staticMax:      maxOffset,
			glibcDTV:       0,  // tcbhead_t.dtv (sysdeps/aarch64/nptl/tls.h)
			muslDTV:        -8, // struct pthread.dtv, its last field (src/internal/pthread_impl.h)
		}, true
	}
	return platform{}, false
}

// resolverBytes is enough of a resolver's code to recognize the static one.
const resolverBytes = 16

// isStatic reports whether code, the beginning of a resolver, is the static one.
func (p platform) isStatic(code []byte) bool {
	rest := string(code)
	for _, pad := range p.landingPads {
		if after, ok := strings.CutPrefix(rest, pad); ok {
			rest = after
			break
		}
	}
	return strings.HasPrefix(rest, p.staticResolver)
}

// setDTV sets the layout of a DTV in the C library. Only the fields that are read are listed:
//
//	glibc (elf/dl-tls.c, sysdeps/generic/dl-dtv.h), entries of 16 bytes
//	   dtv - 16  size_t  how many entries follow entry 0: the highest module id with room
//	   dtv       size_t  generation of the loaded modules that the entries are of
//	   dtv[id]   void *  the module's block, all ones: not allocated; 0: id not in use
//	musl (ldso/dynlink.c), entries of 8 bytes
//	   dtv       size_t  how many entries follow: the highest module id
//	   dtv[id]   void *  the module's block
//
// glibc's capacity and generation were checked in live processes with 2.36 on both machines, with
// threads older and newer than the library.
func (r *Rule) setDTV(p platform, libc Libc) {
	switch r.Libc = libc; libc {
	case Glibc:
		r.DTVOffset, r.DTVStride, r.DTVCapacityOffset = p.glibcDTV, 2*wordBytes, -2*wordBytes
	case Musl:
		r.DTVOffset, r.DTVStride, r.DTVCapacityOffset = p.muslDTV, wordBytes, 0
	}
}

// libcOf recognizes the C library, or its loader, by the name of the file. Besides the names by
// which programs request them, these are names of the files themselves:
//
//	ld-2.31.so, libc-2.31.so  glibc before 2.34
//	libc.so                   musl, loader and library in one, where ld-musl-* is
//	                          a symbolic link to it (Debian, Void)
func libcOf(file string) Libc {
	name := path.Base(file)
	switch {
	case name == "libc.so.6",
		strings.HasPrefix(name, "ld-linux-") && strings.Contains(name, ".so"),
		isVersioned(name, "ld-"), isVersioned(name, "libc-"):
		return Glibc
	case name == "libc.so",
		strings.HasPrefix(name, "ld-musl-"), strings.HasPrefix(name, "libc.musl-"):
		return Musl
	}
	return LibcUnknown
}

// isVersioned reports whether name is prefix, a version such as 2.31, and ".so".
func isVersioned(name, prefix string) bool {
	version, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return false
	}
	version, ok = strings.CutSuffix(version, ".so")
	return ok && version != "" && strings.Trim(version, "0123456789.") == ""
}
