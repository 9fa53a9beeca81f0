package profile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
)

// errNoText: the symbols that bound the kernel's text are not among its symbols.
var errNoText = errors.New("bounds of the kernel's text not found")

// lineBytes holds every line of kallsyms: a name has at most 511 characters (KSYM_NAME_LEN), a
// module's 55.
const lineBytes = 4096

// parseKallsyms returns where the kernel's own text starts and ends, ErrHidden when the addresses
// are zeros. A line of /proc/kallsyms (s_show in kernel/kallsyms.c) is
//
//	field    text         example
//	address  16 hex       ffffffff81000000
//	type     SP 1 char     T
//	name     SP ...        _stext
//	module   TAB [...]     	[nf_tables]
//
// The text starts with _text or _stext, whichever is lower: they are the same on x86-64, and 64 KiB
// of boot code apart on aarch64. Symbols of modules come last; they can have any name.
func parseKallsyms(r io.Reader) (start, end uint64, err error) {
	lines := bufio.NewReaderSize(r, lineBytes)
	var text, stext uint64
	for text == 0 || stext == 0 || end == 0 {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		line = line[:len(line)-1]
		if bytes.IndexByte(line, '\t') >= 0 {
			break
		}
		var bound *uint64
		switch name := line[bytes.LastIndexByte(line, ' ')+1:]; string(name) {
		case "_text":
			bound = &text
		case "_stext":
			bound = &stext
		case "_etext":
			bound = &end
		default:
			continue
		}
		digits, _, _ := bytes.Cut(line, []byte{' '})
		if *bound, err = strconv.ParseUint(string(digits), 16, 64); err != nil {
			return 0, 0, fmt.Errorf("%w: line %q", errNoText, line)
		}
		if *bound == 0 {
			return 0, 0, ErrHidden
		}
	}
	switch {
	case text == 0:
		start = stext
	case stext == 0:
		start = text
	default:
		start = min(text, stext)
	}
	if start == 0 || end <= start {
		return 0, 0, errNoText
	}
	return start, end, nil
}

// module is a line of /proc/modules.
type module struct {
	name       string
	start, end uint64
}

// parseModules yields the loaded modules whose address is shown. A line of /proc/modules (m_show in
// kernel/module/procfs.c) is
//
//	field    text           example
//	name     ...            nf_tables
//	size     SP decimal     372736
//	users    SP decimal     1263
//	by       SP ...         nft_compat,nft_chain_nat,
//	state    SP ...         Live
//	address  SP 0x hex      0xffffffffc0a5f000
//	taints   SP (...)        (OE)
//
// The address is where the module's code lies. Since 6.4 its data can lie elsewhere, and the size is
// the sum of both, so the end is too high by that; the start of the next module cuts it short.
//
// What is not in this form, or could lead out of /sys/module, is skipped.
func parseModules(list []byte) iter.Seq[module] {
	return func(yield func(module) bool) {
		for line := range bytes.Lines(list) {
			fields := bytes.Fields(line)
			if len(fields) < 6 {
				continue
			}
			name := string(fields[0])
			size, err := strconv.ParseUint(string(fields[1]), 10, 32)
			start, ok := parseAddress(fields[5])
			if err != nil || !ok || size == 0 || start+size < start || !isModuleName(name) {
				continue
			}
			if !yield(module{name: name, start: start, end: start + size}) {
				return
			}
		}
	}
}

func isModuleName(name string) bool {
	return name != "." && name != ".." && !bytes.ContainsAny([]byte(name), "/\x00")
}

// parseAddress parses "0xffffffffc0a5f000", with or without a newline. A zero is no address, but what
// is shown instead of one.
func parseAddress(text []byte) (uint64, bool) {
	digits, ok := bytes.CutPrefix(bytes.TrimSuffix(text, []byte{'\n'}), []byte("0x"))
	if !ok {
		return 0, false
	}
	addr, err := strconv.ParseUint(string(digits), 16, 64)
	return addr, err == nil && addr != 0
}
