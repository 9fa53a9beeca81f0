package elfsym

import (
	"debug/elf"
	"fmt"
	"io"
)

// Names of the two exported variables (correlation protocol, part 1).
const (
	storageName = "elastic_apm_profiling_correlation_process_storage_v1"
	tlsName     = "elastic_apm_profiling_correlation_tls_v1"

	maxNameBytes = len(storageName) + 1 // the longer one, and its end
	pointerBytes = 8                    // both variables are pointers
)

var variables = [2]string{storageName, tlsName}

// Library is an agent library that implements the correlation protocol. Both addresses are within
// the memory of its segments.
type Library struct {
	Variable
	StorageAddr uint64 // ELF address of the pointer to the process storage
}

// ParseLibrary parses an agent library. ErrNoSymbols is expected for libraries of older agents. It
// blocks as long as r does.
func ParseLibrary(r io.ReaderAt, size int64) (*Library, error) {
	h, err := parseHeaders(r, size)
	if err != nil {
		return nil, err
	}
	if elf.ProgType(h.dynamic.Type) != elf.PT_DYNAMIC {
		return nil, fmt.Errorf("%w: it has no PT_DYNAMIC", ErrNoSymbols)
	}
	lib := &Library{Variable: Variable{File: h.file}}
	m := image{pages: h.pages, segments: h.file.Segments}
	d, err := readDynamic(m, h.dynamic)
	if err != nil {
		return nil, fmt.Errorf("reading PT_DYNAMIC: %w", err)
	}
	tlsIndex, err := lib.readSymbols(m, d, h.tls)
	if err != nil {
		return nil, err
	}
	if lib.Relocation, err = lib.findRelocation(m, d, tlsIndex); err != nil {
		return nil, fmt.Errorf("looking for the TLS relocation: %w", err)
	}
	return lib, nil
}

// readSymbols sets the addresses of the two symbols and returns the index of the thread-local one.
func (l *Library) readSymbols(m image, d dynamic, tls elf.Prog64) (uint32, error) {
	exported, ok, err := openExports(m, d)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("%w: it has no symbol table", ErrNoSymbols)
	}
	var found [2]symbol
	var missing []string
	for i, name := range variables {
		var ok bool
		if found[i], ok, err = exported.lookup(name); err != nil {
			return 0, fmt.Errorf("looking up %s: %w", name, err)
		}
		if !ok {
			missing = append(missing, name)
		}
	}
	switch len(missing) {
	case 1:
		return 0, fmt.Errorf("%w: %s is missing", errIncomplete, missing[0])
	case len(variables):
		return 0, ErrNoSymbols
	}
	storage, variable := found[0], found[1]
	if err := checkKind(storage, elf.STT_OBJECT); err != nil {
		return 0, fmt.Errorf("%s: %w", storageName, err)
	}
	if !m.contains(storage.Value, pointerBytes) {
		return 0, fmt.Errorf("%w: %s at %#x is outside every segment", errMalformed, storageName, storage.Value)
	}
	l.StorageAddr = storage.Value
	return variable.index, l.place(variable, tlsName, tls)
}

// checkKind checks a symbol against the protocol's table. A size of 0 (unknown) is refused too:
// compilers always know the size of a pointer. The value of an absolute symbol is not an address in
// the library.
func checkKind(s symbol, kind elf.SymType) error {
	if elf.ST_TYPE(s.Info) != kind || s.Size != pointerBytes || elf.SectionIndex(s.Shndx) == elf.SHN_ABS {
		return fmt.Errorf("%w: %v of %d bytes, %v, instead of %v of %d", errSymbol,
			elf.ST_TYPE(s.Info), s.Size, elf.SectionIndex(s.Shndx), kind, pointerBytes)
	}
	return nil
}
