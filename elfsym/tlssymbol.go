package elfsym

import (
	"debug/elf"
	"errors"
	"fmt"
)

const (
	// maxStaticSymbols bounds the search in .symtab: 24 MiB of file, some tens of milliseconds. It is
	// as many as a browser has with all of its symbols. A larger file has to export the symbol, as
	// OTEP 4947 wants it.
	maxStaticSymbols = 1 << 20

	// maxStaticNames bounds how many names of thread-local pointers are read, each with a system call.
	// Programs have some dozens.
	maxStaticNames = 4096
)

// findInSymtab returns the thread-local variable of a name, of the size of a pointer, in .symtab.
// Its index is not one of dynamic symbols: 0. Section headers that cannot be read are as none,
// since the loader does not need them.
func (p *pages) findInSymtab(name string) (found symbol, ok bool, err error) {
	sections, err := p.sections()
	if err != nil {
		if IsContentError(err) && !errors.Is(err, ErrLimit) {
			err = nil
		}
		return symbol{}, false, err
	}
	for _, section := range sections {
		if elf.SectionType(section.Type) != elf.SHT_SYMTAB {
			continue
		}
		if t := p.symbolTable(section, sections, nil); t != nil {
			found, ok, err = t.findTLS(name)
		}
		break // there is one at most
	}
	if err != nil {
		err = fmt.Errorf("searching .symtab for %s: %w", name, err)
	}
	return found, ok, err
}

// findTLS refuses a name that several variables have, as static ones of several sources do: which
// of them the code means is not known.
func (t *SymbolTable) findTLS(name string) (found symbol, ok bool, err error) {
	names, text := 0, make([]byte, len(name)+1)
	err = t.each(maxStaticSymbols, func(sym elf.Sym64) error {
		if elf.ST_TYPE(sym.Info) != elf.STT_TLS || sym.Size != pointerBytes || sym.Name == 0 ||
			elf.SectionIndex(sym.Shndx) == elf.SHN_UNDEF {
			return nil
		}
		if names++; names > maxStaticNames {
			return fmt.Errorf("%w: more than %d thread-local pointers", ErrLimit, maxStaticNames)
		}
		got, err := t.Name(sym.Name, text)
		if err != nil || string(got) != name {
			return err
		}
		if ok && found.Value != sym.Value {
			return fmt.Errorf("%w: several of the name", errSymbol)
		}
		found, ok = symbol{Sym64: sym}, true
		return nil
	})
	return found, ok, err
}
