package symbols

import (
	"bytes"
	"errors"

	"correlator/elfsym"
)

// A Table has functions and their names, as SymbolTable, DWARF and GoFunctions of package elfsym have.
type Table interface {
	Functions(visit func(elfsym.Function) error) error
	Name(pos uint32, buf []byte) ([]byte, error)
}

// ReadTable names what has no name yet by a table; the addresses are ELF addresses. A nil table of package elfsym names
// nothing. It reads the whole table. Errors about its contents are those of package elfsym, all others come from the
// file; what was found before an error stays.
func (q *Query) ReadTable(t Table) error {
	if q.countUnnamed() == 0 {
		return nil
	}
	m, places := q.newMatcher()
	m.isBetter = betterIn(t)
	err := t.Functions(func(f elfsym.Function) error {
		_, err := m.add(symbol{start: f.Start, end: f.End, open: !f.Sized, rank: f.Rank, name: uint64(f.Name)})
		return err
	})
	q.narrowRanges(m, places, err)
	buf := make([]byte, maxNameBytes)
	texts := make(map[uint64]string) // by position: a function has many addresses
	for i, s := range m.found() {
		if !s.known {
			continue
		}
		text, known := texts[s.name]
		if !known {
			name, nameErr := t.Name(uint32(s.name), buf)
			if nameErr == nil {
				text, nameErr = q.text(withoutVersion(name))
			} else if elfsym.IsContentError(nameErr) && !errors.Is(nameErr, elfsym.ErrLimit) {
				nameErr = nil
			}
			if nameErr != nil {
				q.narrowRanges(m, places, nameErr)
				return nameErr
			}
			texts[s.name] = text
		}
		q.names[places[i]] = text
	}
	return err
}

// betterIn returns what compares the names of symbols in a table. One that cannot be read is no
// better.
func betterIn(t Table) func(s, other symbol) bool {
	buf, otherBuf := make([]byte, maxNameBytes), make([]byte, maxNameBytes)
	return func(s, other symbol) bool {
		if s.name == other.name {
			return false
		}
		name, err := t.Name(uint32(s.name), buf)
		if err != nil {
			return false
		}
		otherName, err := t.Name(uint32(other.name), otherBuf)
		return err != nil || isBetterName(withoutVersion(name), withoutVersion(otherName))
	}
}

// withoutVersion cuts off what the linker adds to the names of versioned symbols in .symtab:
// memcpy@@GLIBC_2.14. On arm64 also where a linker's stubs for errata of the CPU are:
// e843419@000a_00000112_44.
func withoutVersion(name []byte) []byte {
	if at := bytes.IndexByte(name, '@'); at > 0 {
		return name[:at]
	}
	return name
}
