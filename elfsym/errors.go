// Package elfsym is the one reader of ELF files: load segments, build id and content hash
// (ParseFile), of an agent library the addresses of the two exported variables of the correlation
// protocol and the relocation of the thread-local one (ParseLibrary), of any file OpenTelemetry's
// thread-local variable (ParseThreadContext), and the functions of the symbol tables
// (ReadSymbolTables).
//
// ParseFile and ParseLibrary use the program headers and PT_DYNAMIC alone, as the loader does:
// section headers can be stripped and can be wrong. Only ReadSymbolTables uses those, and
// ParseThreadContext where the loader knows no such symbol. Files come from untrusted processes, so
// every value of a file is checked before it is used, the file is read a few pages at a time, or a
// table once, and nothing is allocated in proportion to a number that the file states, but the
// headers of at most 65535 sections.
package elfsym

import "errors"

// contentError is an error about a file's contents, as opposed to one about reading it.
type contentError string

func (e contentError) Error() string { return string(e) }

// Errors about a file's contents. Every other error comes from the io.ReaderAt and may not recur.
var (
	// errNotELF: the file does not begin with the ELF magic number.
	errNotELF error = contentError("not an ELF file")
	// ErrClass: 32-bit, or not little-endian.
	ErrClass error = contentError("not a 64-bit little-endian ELF file")
	// ErrMachine: for neither of the architectures of the protocol.
	ErrMachine error = contentError("ELF file for neither x86-64 nor aarch64")
	// errTruncated: something that is needed is beyond the end of the file.
	errTruncated error = contentError("ELF file ends too early")
	// errMalformed: two values contradict each other, or one is impossible.
	errMalformed error = contentError("malformed ELF file")
	// ErrLimit: the file may be valid, but exceeds a limit of this package.
	ErrLimit error = contentError("ELF file exceeds a limit")
	// ErrNoSymbols: the library exports neither symbol. It is of an older agent, which does not
	// implement the protocol. Or the file has no thread context.
	ErrNoSymbols error = contentError("library exports no correlation symbol")
	// errIncomplete: the library exports one of the two symbols, but not the other.
	errIncomplete error = contentError("library exports only one of the correlation symbols")
	// errSymbol: an exported symbol is not of the kind or size of the protocol.
	errSymbol error = contentError("correlation symbol of an unknown kind")
	// errNoRelocation: no supported relocation serves the thread-local symbol (an agent library uses
	// initial-exec TLS, for example).
	errNoRelocation error = contentError("library has no usable TLS relocation")
)

// IsContentError reports whether an error is about the file's contents: then it stays the same
// until the file changes.
func IsContentError(err error) bool {
	_, ok := errors.AsType[contentError](err)
	return ok
}
