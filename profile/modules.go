package profile

import (
	"bytes"
	"iter"
	"strconv"

	"correlator/internal/host/kallsyms"
)

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
// The address is that of the module's code. Since 6.4 its data can be elsewhere, and the size is
// the sum of both, so the end is too high by that; the region is truncated at the start of the next
// module.
//
// Lines of another form, and names that lead out of /sys/module, are skipped.
func parseModules(list []byte) iter.Seq[module] {
	return func(yield func(module) bool) {
		for line := range bytes.Lines(list) {
			fields := bytes.Fields(line)
			if len(fields) < 6 {
				continue
			}
			name := string(fields[0])
			size, err := strconv.ParseUint(string(fields[1]), 10, 32)
			start, ok := kallsyms.ParseAddress(fields[5])
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
