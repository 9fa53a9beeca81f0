// Package elfsym reads what the correlator needs to know of one ELF file: its
// load segments, its build id and content hash, and, of an agent library, where
// the two exported variables of the correlation protocol are and which
// relocation finds the thread-local one.
//
// It goes by the program headers and PT_DYNAMIC alone, as the loader does:
// section headers can be stripped and can lie. Files come from processes that
// nobody trusts, so every claim of a file is checked before it is used, the
// file is read through a few pages at a time, and nothing is allocated in
// proportion to a number that the file states.
package elfsym

import "errors"

// contentError is an error about what a file says, as opposed to one about
// reading it.
type contentError string

func (e contentError) Error() string { return string(e) }

// Errors about a file's contents. Every other error comes from the io.ReaderAt
// and can be gone at the next attempt.
var (
	// ErrNotELF: the file does not begin with the ELF magic number.
	ErrNotELF error = contentError("not an ELF file")
	// ErrClass: 32-bit, or not little-endian.
	ErrClass error = contentError("not a 64-bit little-endian ELF file")
	// ErrMachine: for neither of the architectures that the protocol exists on.
	ErrMachine error = contentError("ELF file for neither x86-64 nor aarch64")
	// ErrTruncated: something that is needed lies behind the end of the file.
	ErrTruncated error = contentError("ELF file ends too early")
	// ErrMalformed: two claims of the file contradict each other, or one is impossible.
	ErrMalformed error = contentError("malformed ELF file")
	// ErrLimit: the file is possibly right, but beyond one of the limits of this package.
	ErrLimit error = contentError("ELF file exceeds a limit")
	// ErrNoSymbols: the library exports neither symbol. It belongs to an older
	// agent and takes no part.
	ErrNoSymbols error = contentError("library exports no correlation symbol")
	// ErrIncomplete: the library exports one of the two symbols, but not the other.
	ErrIncomplete error = contentError("library exports only one of the correlation symbols")
	// ErrSymbol: an exported symbol is not of the kind or size of the protocol.
	ErrSymbol error = contentError("correlation symbol of an unknown kind")
	// ErrNoRelocation: no relocation that this package knows serves the
	// thread-local symbol (the library uses initial-exec TLS, for example).
	ErrNoRelocation error = contentError("library has no usable TLS relocation")
)

// IsContentError reports whether an error is about what the file says: then it stays the same until
// the file changes.
func IsContentError(err error) bool {
	_, ok := errors.AsType[contentError](err)
	return ok
}
