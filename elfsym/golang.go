package elfsym

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
)

// GoProgram is what is needed of a program that Go's linker has made.
type GoProgram struct {
	Version string // that of the toolchain, as runtime.Version returns it
	Labels  bool   // the program can set labels of goroutines (runtime/pprof)
	// ThreadLocals: it has thread-local variables, as has every program with C, and every one that a loader loads.
	ThreadLocals bool
}

const (
	// maxGoVersion is longer than any version, with the names of experiments.
	maxGoVersion = 256

	// maxFunctionNames bounds the time that a program costs: 64 MB, some ten milliseconds. The largest programs
	// have 10 MB of names.
	maxFunctionNames = 64 << 20

	// setsLabels is the function by which package runtime/pprof sets labels. The linker leaves it out where nothing
	// does.
	setsLabels = "\x00runtime/pprof.runtime_setProfLabel\x00"
)

// The section .go.buildinfo (debug/buildinfo), since Go 1.18:
//
//	offset  size  field
//	     0    14  magic
//	    14     1  size of a pointer
//	    15     1  flags; 2: what follows is there, and not pointed to
//	    32        version: length (varint) and text
const (
	buildInfoName   = ".go.buildinfo"
	buildInfoMagic  = "\xff Go buildinf:"
	buildInfoFlags  = 15
	buildInfoInline = 2
	buildInfoBytes  = 32
)

// ParseGoProgram reads what a program says of Go. ErrNoSymbols: it is none of Go's. Errors about its contents are those
// of IsContentError, all others come from r.
func ParseGoProgram(r io.ReaderAt, size int64) (*GoProgram, error) {
	p, err := newPages(r, size)
	if err != nil {
		return nil, err
	}
	sections, err := p.sections()
	if err != nil {
		return nil, fmt.Errorf("reading section headers: %w", err)
	}
	info, ok := p.loaded(sections, buildInfoName)
	if !ok {
		return nil, ErrNoSymbols
	}
	program := &GoProgram{}
	if program.Version, err = p.goVersion(info); err != nil {
		return nil, fmt.Errorf("reading the version of Go: %w", err)
	}
	if program.ThreadLocals, err = p.hasThreadLocals(); err != nil {
		return nil, fmt.Errorf("reading program headers: %w", err)
	}
	if functions, ok := p.loaded(sections, functionsNames...); ok {
		program.Labels, err = p.namesFunction(functions, setsLabels)
	}
	if err != nil {
		return nil, fmt.Errorf("reading names of functions: %w", err)
	}
	return program, nil
}

// hasThreadLocals reports whether the program has thread-local variables.
func (p *pages) hasThreadLocals() (bool, error) {
	h := headers{pages: p}
	programs, err := h.readHeader()
	if err == nil {
		err = h.readProgramHeaders(programs)
	}
	return elf.ProgType(h.tls.Type) == elf.PT_TLS, err
}

// goVersion reads the version out of the section .go.buildinfo; empty: it is where older versions have it.
func (p *pages) goVersion(s elf.Section64) (string, error) {
	text := make([]byte, min(s.Size, buildInfoBytes+binary.MaxVarintLen64+maxGoVersion))
	if err := p.source.read(s.Off, text); err != nil {
		return "", err
	}
	if len(text) < buildInfoBytes || !bytes.HasPrefix(text, []byte(buildInfoMagic)) {
		return "", fmt.Errorf("%w: no build information", errMalformed)
	}
	if text[buildInfoFlags]&buildInfoInline == 0 {
		return "", nil
	}
	length, n := binary.Uvarint(text[buildInfoBytes:])
	text = text[buildInfoBytes+max(n, 0):]
	if n <= 0 || length > uint64(min(len(text), maxGoVersion)) {
		return "", fmt.Errorf("%w: a version of %d bytes", errMalformed, length)
	}
	return string(text[:length]), nil
}

// namesFunction reports whether a function with a name, which is given with a NUL before and after it, is in the
// section.
func (p *pages) namesFunction(s elf.Section64, name string) (bool, error) {
	var header [functionsBytes]byte
	if err := p.check(s.Off, s.Size); err != nil {
		return false, err
	}
	if s.Size < functionsBytes {
		return false, fmt.Errorf("%w: %d bytes of functions", errMalformed, s.Size)
	}
	if err := p.source.read(s.Off, header[:]); err != nil {
		return false, err
	}
	if binary.LittleEndian.Uint32(header[:]) != functionsMagic || header[7] != 8 {
		return false, nil // of another version
	}
	from, to := binary.LittleEndian.Uint64(header[32:]), binary.LittleEndian.Uint64(header[40:])
	if from > to || to > s.Size {
		return false, fmt.Errorf("%w: names from %#x to %#x in %#x bytes", errMalformed, from, to, s.Size)
	}
	if to-from > maxFunctionNames {
		return false, fmt.Errorf("%w: %d bytes of names", ErrLimit, to-from)
	}
	buf := make([]byte, len(name)+streamBytes)
	kept := 0 // of the piece before
	for from < to {
		piece := buf[:kept+int(min(to-from, streamBytes))]
		if err := p.source.read(s.Off+from, piece[kept:]); err != nil {
			return false, err
		}
		if bytes.Contains(piece, []byte(name)) {
			return true, nil
		}
		from += uint64(len(piece) - kept)
		kept = copy(buf, piece[max(0, len(piece)-len(name)):])
	}
	return false, nil
}
