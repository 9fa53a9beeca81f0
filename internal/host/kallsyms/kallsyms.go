// Package kallsyms reads where the kernel's code is: the symbols of /proc/kallsyms, and the
// addresses that the kernel shows of its modules.
package kallsyms

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
)

var (
	// ErrHidden means that the kernel shows zeros instead of addresses (kptr_restrict, or a missing
	// CAP_SYSLOG).
	ErrHidden = errors.New("kernel addresses are hidden")

	// ErrNoText means that the symbols that bound the kernel's text are missing or make no sense.
	ErrNoText = errors.New("bounds of the kernel's text not found")
)

const (
	// maxBytes bounds /proc/kallsyms: kernels with everything built in have 15 MiB.
	maxBytes = 256 << 20

	// bufferBytes is more than any line: a name has at most 511 characters (KSYM_NAME_LEN), a
	// module's 55.
	bufferBytes = 4096

	// maxAddressBytes holds "0x", 16 digits and a newline.
	maxAddressBytes = 32
)

// Symbol is a line of /proc/kallsyms (s_show in kernel/kallsyms.c):
//
//	field    text         example
//	address  16 hex       ffffffff81000000
//	type     SP 1 char     T
//	name     SP ...        _stext
//	module   TAB [...]     	[nf_tables]
type Symbol struct {
	Name   []byte // valid until the visit returns
	Module bool   // it is of a module; these come last, and can have any name

	kind   byte
	digits []byte
}

// Addr returns the address, 0 when it is hidden. It reports false when the line has none.
func (s Symbol) Addr() (uint64, bool) { return parseHex(s.digits) }

// Code reports whether the symbol names code: types as those of nm, t, and w when it is weak, in
// either case.
func (s Symbol) Code() bool { return bytes.IndexByte([]byte("tTwW"), s.kind) >= 0 }

// Rank orders the symbols of one address: global ones before weak ones before local ones.
func (s Symbol) Rank() uint8 {
	switch s.kind {
	case 'T':
		return 2
	case 'W', 'w':
		return 1
	}
	return 0
}

// Read calls visit with every symbol until it returns false. Lines of another form are skipped, and
// so is text behind the last newline. A line that does not fit the buffer is an error.
func Read(r io.Reader, visit func(Symbol) bool) error {
	lines := bufio.NewReaderSize(io.LimitReader(r, maxBytes), bufferBytes)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		digits, rest, _ := bytes.Cut(line[:len(line)-1], []byte{' '})
		kind, name, _ := bytes.Cut(rest, []byte{' '})
		name, _, ofModule := bytes.Cut(name, []byte{'\t'})
		if len(kind) == 1 && len(name) > 0 && !visit(Symbol{name, ofModule, kind[0], digits}) {
			return nil
		}
	}
}

// Text returns the bounds of the kernel's own text. Its start is _text or _stext, whichever is
// lower: they are the same on x86-64, and 64 KiB of boot code apart on aarch64. The end is _etext.
func Text(r io.Reader) (start, end uint64, err error) {
	var text, stext, etext uint64
	var symbolErr error
	err = Read(r, func(s Symbol) bool {
		if s.Module {
			return false
		}
		bound := &text
		switch string(s.Name) {
		case "_text":
		case "_stext":
			bound = &stext
		case "_etext":
			bound = &etext
		default:
			return true
		}
		addr, ok := s.Addr()
		switch {
		case !ok:
			symbolErr = fmt.Errorf("%w: %s at %q", ErrNoText, s.Name, s.digits)
		case addr == 0:
			symbolErr = ErrHidden
		}
		*bound = addr
		return symbolErr == nil && (text == 0 || stext == 0 || etext == 0)
	})
	if err = errors.Join(err, symbolErr); err != nil {
		return 0, 0, err
	}
	// A missing symbol is 0: subtracting 1 makes it the highest.
	if start = min(text-1, stext-1) + 1; start == 0 || etext <= start {
		return 0, 0, ErrNoText
	}
	return start, etext, nil
}

// ModuleText returns the address of a loaded module's .text section. sysRoot is /sys.
func ModuleText(sysRoot, module string) (uint64, error) {
	file, err := os.Open(path.Join(sysRoot, "module", module, "sections", ".text"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxAddressBytes))
	if err != nil {
		return 0, err
	}
	addr, ok := ParseAddress(text)
	if !ok {
		return 0, fmt.Errorf("%w: .text of module %s", ErrHidden, module)
	}
	return addr, nil
}

// ParseAddress parses an address as the kernel shows those of modules: "0xffffffffc0a5f000", with
// or without a newline. It reports false for a zero, which is shown instead of a hidden one.
func ParseAddress(text []byte) (uint64, bool) {
	digits, ok := bytes.CutPrefix(bytes.TrimSuffix(text, []byte{'\n'}), []byte("0x"))
	if !ok {
		return 0, false
	}
	addr, ok := parseHex(digits)
	return addr, ok && addr != 0
}

func parseHex(digits []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(digits), 16, 64)
	return n, err == nil
}
