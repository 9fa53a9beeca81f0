package symbols

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"correlator/elfsym"
)

const (
	// maxDWARF bounds the sections of DWARF that are read of a file, together: two seconds of work.
	maxDWARF = 32 << 20

	// maxDWARFEntries bounds the entries that are looked at. In real files they take some ten bytes each.
	maxDWARFEntries = 4 << 20

	// maxOrigins is how many entries refer to each other until one has a function's name: a copy of code refers to the
	// abstract function, and that to its declaration.
	maxOrigins = 4
)

var errDWARF = errors.New("unexpected contents of DWARF")

// ReadDWARF names what has no name yet by the functions that the DWARF of a file describes, for one that has no table
// of symbols; the addresses are ELF addresses. What was found before an error stays.
func (q *Query) ReadDWARF(r io.ReaderAt) (err error) {
	if q.countUnnamed() == 0 {
		return nil
	}
	defer func() {
		if recover() != nil { // as for names: what parses is not ours, and the file is anybody's
			err = errDWARF
		}
	}()
	d, err := openDWARF(r)
	if err != nil {
		return fmt.Errorf("reading DWARF: %w", err)
	}
	m, places := q.newMatcher()
	err = eachFunction(d, func(e *dwarf.Entry, start, end uint64) error {
		_, err := m.add(symbol{start: start, end: end, name: uint64(e.Offset)})
		return err
	})
	q.narrowRanges(m, places, err)
	for i, s := range m.found() {
		name := ""
		if s.known {
			name = functionName(d, dwarf.Offset(s.name))
		}
		if name == "" {
			continue
		}
		text, err := q.text([]byte(name[:min(len(name), maxNameBytes)]))
		if err != nil {
			q.narrowRanges(m, places, err)
			return err
		}
		q.names[places[i]] = text
	}
	if err != nil {
		return fmt.Errorf("reading DWARF: %w", err)
	}
	return nil
}

// openDWARF reads the sections that are needed for names of functions.
func openDWARF(r io.ReaderAt) (*dwarf.Data, error) {
	file, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	left := uint64(maxDWARF)
	contents := func(name string) []byte {
		section := file.Section(name)
		if section == nil || err != nil {
			return nil
		}
		if max(section.Size, section.FileSize) > left {
			err = fmt.Errorf("%w: more than %d bytes", elfsym.ErrLimit, maxDWARF)
			return nil
		}
		left -= max(section.Size, section.FileSize)
		b, readErr := section.Data()
		err = readErr
		return b
	}
	info, abbrev, str := contents(".debug_info"), contents(".debug_abbrev"), contents(".debug_str")
	ranges := contents(".debug_ranges")
	more := make(map[string][]byte)
	for _, name := range []string{".debug_addr", ".debug_line_str", ".debug_str_offsets", ".debug_rnglists"} {
		more[name] = contents(name)
	}
	if err != nil {
		return nil, err
	}
	d, err := dwarf.New(abbrev, nil, nil, info, nil, nil, ranges, str)
	if err != nil {
		return nil, err
	}
	for name, b := range more {
		if err := d.AddSection(name, b); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// eachFunction calls yield with the functions that have code, and where that is.
func eachFunction(d *dwarf.Data, yield func(e *dwarf.Entry, start, end uint64) error) error {
	entries := d.Reader()
	for range maxDWARFEntries {
		e, err := entries.Next()
		if err != nil || e == nil {
			return err
		}
		switch e.Tag {
		case dwarf.TagCompileUnit, dwarf.TagNamespace, dwarf.TagModule, dwarf.TagClassType, dwarf.TagStructType:
			continue // in which functions are
		case dwarf.TagSubprogram:
			ranges, err := d.Ranges(e)
			if err != nil {
				return err
			}
			for _, r := range ranges {
				if r[0] == 0 || r[1] <= r[0] { // the linker has left it out
					continue
				}
				if err := yield(e, r[0], r[1]); err != nil {
					return err
				}
			}
		}
		entries.SkipChildren()
	}
	return fmt.Errorf("%w: more than %d entries", elfsym.ErrLimit, maxDWARFEntries)
}

// functionName returns the name that a linker would use of a function, else that in the source, or of what it refers
// to.
func functionName(d *dwarf.Data, at dwarf.Offset) string {
	for range maxOrigins {
		entries := d.Reader()
		entries.Seek(at)
		e, err := entries.Next()
		if err != nil || e == nil {
			return ""
		}
		for _, attribute := range []dwarf.Attr{dwarf.AttrLinkageName, dwarf.AttrName} {
			if name, is := e.Val(attribute).(string); is && name != "" {
				return name
			}
		}
		origin, is := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !is {
			if origin, is = e.Val(dwarf.AttrSpecification).(dwarf.Offset); !is {
				return ""
			}
		}
		at = origin
	}
	return ""
}
