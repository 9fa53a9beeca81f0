package deltas

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// assembly are the functions in assembly that files of a kind have, without an .eh_frame, by a symbol that all files
// of that kind have.
var assembly = map[libpf.SymbolName][]libpf.SymbolName{
	// of V8, for debuggers: by the function it calls its garbage collector from the thread of a program
	"v8dbg_HeapObjectTag": {"PushAllRegistersAndIterateStack"},
	// of JVMs, likewise: what their threads call while they wait for each other, read memory that may not be there, and
	// copy
	"gHotSpotVMStructs": {
		"SpinPause", "SafeFetch32_impl", "SafeFetchN_impl", "_Copy_arrayof_conjoint_bytes",
		"_Copy_arrayof_conjoint_jshorts", "_Copy_conjoint_jints_atomic", "_Copy_conjoint_jlongs_atomic",
	},
}

const (
	// maxAssemblyBytes is more than any of these functions has.
	maxAssemblyBytes = 512
	// maxAssemblySymbols bounds the symbols among which they are searched, and maxAssemblyNames the bytes of their
	// names: Node.js 26 has 170,000 and 19 MB, JVMs 70,000.
	maxAssemblySymbols = 1 << 20
	maxAssemblyNames   = 32 << 20
	// maxAssemblyPlaces bounds the places of those names that are searched: a file has one of each, or some more.
	maxAssemblyPlaces = 1 << 10
)

var errSymbols = errors.New("a table of symbols is broken, or too large")

// completeAssembly says how the functions in assembly are unwound, in a file that has them. With an error, that is not
// said of all.
func completeAssembly(file *pfelf.File, data *stackdeltatypes.IntervalData) error {
	symbols := file.Section(".symtab")
	if file.Machine != elf.EM_X86_64 || symbols == nil || file.ProgByType(elf.PT_DYNAMIC) == nil {
		return nil
	}
	var names []libpf.SymbolName
	var failed error
	for mark, functions := range assembly {
		switch _, err := file.LookupSymbol(mark); {
		case err == nil:
			names = append(names, functions...)
		case !errors.Is(err, libpf.ErrSymbolNotFound):
			failed = errors.Join(failed, err)
		}
	}
	if len(names) == 0 {
		return failed
	}
	starts, err := findFunctions(file, symbols, names)
	failed = errors.Join(failed, err)
	data.Sort()
	for _, start := range starts {
		code := make([]byte, maxAssemblyBytes)
		n, err := file.ReadAt(code, int64(start))
		if n == 0 {
			failed = errors.Join(failed, err)
			continue
		}
		f := newFollower(start, code[:n], file.ReadAt)
		for _, b := range data.Blocks {
			f.exclude(b.Start, b.End)
		}
		f.addEntry(start)
		f.follow()
		blocks := f.blocks()
		if f.full {
			failed = errors.Join(failed, errTooMuchCode)
			continue
		}
		for _, b := range blocks {
			data.Add(*b)
		}
		data.Sort()
	}
	return failed
}

// findFunctions returns where the first functions of some names are.
func findFunctions(file *pfelf.File, symbols *pfelf.Section, names []libpf.SymbolName) (starts []uint64, err error) {
	if symbols.FileSize > maxAssemblySymbols*elf.Sym64Size || int64(symbols.Link) >= int64(len(file.Sections)) {
		return nil, errSymbols
	}
	places, err := findNames(&file.Sections[symbols.Link], names)
	if err != nil || len(places) == 0 {
		return nil, err
	}
	found := make(map[libpf.SymbolName]struct{})
	for all, symbol := buffered(symbols), make([]byte, elf.Sym64Size); len(found) < len(names); {
		if _, err := io.ReadFull(all, symbol); err == io.EOF {
			break
		} else if err != nil {
			return starts, err
		}
		name, is := places[binary.LittleEndian.Uint32(symbol)]
		if !is {
			continue
		}
		_, known := found[name]
		if start := binary.LittleEndian.Uint64(symbol[8:]); !known && start != 0 { // 0: it is another file's
			starts = append(starts, start)
			found[name] = struct{}{}
		}
	}
	return starts, nil
}

// findNames returns the offsets of names in a table of them, where each may also end a longer one. The table is read by
// parts: that of a JVM has 3 MB.
func findNames(table *pfelf.Section, names []libpf.SymbolName) (map[uint32]libpf.SymbolName, error) {
	if table.FileSize > maxAssemblyNames {
		return nil, errSymbols
	}
	places, all := make(map[uint32]libpf.SymbolName), buffered(table)
	for end := uint32(0); ; {
		text, err := all.ReadSlice(0)
		end += uint32(len(text))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // the rest of that name comes next
		}
		if err == io.EOF && uint64(end) == table.FileSize {
			return places, nil
		} else if err != nil {
			return nil, errors.Join(errSymbols, err)
		}
		for _, name := range names {
			if before := len(text) - 1 - len(name); before >= 0 && string(text[before:len(text)-1]) == string(name) {
				places[end-1-uint32(len(name))] = name
			}
		}
		if len(places) > maxAssemblyPlaces {
			return nil, errSymbols
		}
	}
}

// buffered reads a section by parts.
func buffered(section *pfelf.Section) *bufio.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(section, 0, int64(section.FileSize)), 1<<16)
}
