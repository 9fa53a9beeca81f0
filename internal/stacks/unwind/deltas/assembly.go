package deltas

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"

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
	of := &file.Sections[symbols.Link]
	if of.FileSize > maxAssemblyNames {
		return nil, errSymbols
	}
	texts, err := of.Data(maxAssemblyNames)
	if err != nil {
		return nil, err
	}
	all := bufio.NewReaderSize(io.NewSectionReader(symbols, 0, int64(symbols.FileSize)), 1<<16)
	for symbol := make([]byte, elf.Sym64Size); len(names) > 0; {
		if _, err := io.ReadFull(all, symbol); err == io.EOF {
			break
		} else if err != nil {
			return starts, err
		}
		text := texts[min(int(binary.LittleEndian.Uint32(symbol)), len(texts)):]
		i := slices.IndexFunc(names, func(name libpf.SymbolName) bool {
			return len(text) > len(name) && text[len(name)] == 0 && string(text[:len(name)]) == string(name)
		})
		if start := binary.LittleEndian.Uint64(symbol[8:]); i >= 0 && start != 0 { // 0: it is another file's
			starts = append(starts, start)
			names = slices.Delete(names, i, i+1)
		}
	}
	return starts, nil
}
