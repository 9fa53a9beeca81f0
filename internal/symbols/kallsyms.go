package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	// maxKallsymsBytes bounds /proc/kallsyms: kernels with everything built in have 15 MiB.
	maxKallsymsBytes = 256 << 20

	// maxKernelFunctionBytes keeps addresses that nothing shows from the name of what happens to lie
	// before them. The longest functions have some 40 KiB.
	maxKernelFunctionBytes = 256 << 10
)

// ErrNoText: the symbols by which the kernel's text starts are not shown, or have no address.
var ErrNoText = errors.New("start of the kernel's text is not shown")

// kernelSymbols calls visit with every symbol of /proc/kallsyms (s_show in kernel/kallsyms.c) that names
// code, until it answers false. The name is valid until visit returns.
//
//	field    text         example
//	address  16 hex       ffffffff81000000
//	type     SP 1 char     T
//	name     SP ...        _stext
//	module   TAB [...]     	[nf_tables]
//
// Types of code are those of nm: t, and w when it is weak, in either case.
func kernelSymbols(r io.Reader, visit func(addr uint64, name []byte, ofModule bool) bool) error {
	lines := bufio.NewReaderSize(io.LimitReader(r, maxKallsymsBytes), bufferBytes)
	for {
		line, err := readLine(lines)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading kernel symbols: %w", err)
		}
		digits, rest, _ := bytes.Cut(line, []byte{' '})
		kind, name, _ := bytes.Cut(rest, []byte{' '})
		addr, ok := parseHex(digits)
		if !ok || len(kind) != 1 || !bytes.ContainsAny(kind, "tTwW") {
			continue
		}
		name, _, ofModule := bytes.Cut(name, []byte{'\t'})
		if len(name) > 0 && !visit(addr, name, ofModule) {
			return nil
		}
	}
}

// KernelText returns the address from which package profile counts that of a frame in the kernel: _text
// or _stext, whichever is lower. r is /proc/kallsyms.
func KernelText(r io.Reader) (uint64, error) {
	start := uint64(math.MaxUint64)
	err := kernelSymbols(r, func(addr uint64, name []byte, ofModule bool) bool {
		if string(name) == "_text" || string(name) == "_stext" {
			start = min(start, addr)
		}
		return !ofModule // those of modules come last, and can have any name
	})
	if err == nil && (start == 0 || start == math.MaxUint64) {
		err = ErrNoText
	}
	return start, err
}

// ParseModuleText parses /sys/module/NAME/sections/.text: the address from which package profile counts
// that of a frame in a module.
func ParseModuleText(text []byte) (uint64, error) {
	addr, ok := parseHex(bytes.TrimSpace(text))
	if !ok || addr == 0 {
		return 0, ErrNoText
	}
	return addr, nil
}

// ReadKallsyms names addresses in the kernel's memory, those of modules and of eBPF programs too. A
// symbol has no size there: it reaches to the next one, but not further than maxKernelFunctionBytes. r is /proc/kallsyms.
func (q *Query) ReadKallsyms(r io.Reader) error {
	addrs, places := q.unnamed()
	m := newMatcher(addrs)
	var names []byte // each with a zero at its end
	var limit error
	err := kernelSymbols(r, func(addr uint64, name []byte, _ bool) bool {
		if addr == 0 || addr > math.MaxUint64-maxKernelFunctionBytes { // hidden, or nothing
			return true
		}
		var taken bool
		taken, limit = m.offer(symbol{start: addr, end: addr + maxKernelFunctionBytes, open: true, name: uint64(len(names))})
		if taken {
			names = append(append(names, name[:min(len(name), maxNameBytes)]...), 0)
		}
		return limit == nil
	})
	texts := make(map[uint64]string) // by place: a function has many addresses
	for i, s := range m.found() {
		if !s.known {
			continue
		}
		if texts[s.name] == "" {
			name, _, _ := bytes.Cut(names[s.name:], []byte{0})
			texts[s.name] = string(name)
		}
		q.names[places[i]] = texts[s.name]
	}
	return errors.Join(err, limit)
}
