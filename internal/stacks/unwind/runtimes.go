package unwind

import (
	"slices"

	"go.opentelemetry.io/ebpf-profiler/interpreter"
	golang "go.opentelemetry.io/ebpf-profiler/interpreter/go"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/interpreter/nodev8"
	"go.opentelemetry.io/ebpf-profiler/interpreter/php"
	"go.opentelemetry.io/ebpf-profiler/interpreter/python"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// runtimeKind is a kind of language runtime that is switched on when the first process has one: its program and
// its table are loaded then. A process without the entry in that table, which its runtime needs, is not unwound.
type runtimeKind struct {
	name    string
	of      libpf.InterpreterType
	frames  FrameKind
	words   []libpf.FrameType
	program string
	index   uint32 // of the program among those that programs call
	table   string // of processes
	loader  interpreter.Loader
	// framePointers: what it compiles keeps them. Without the engine knowing it, stacks end there; by frame pointers
	// they do not.
	framePointers bool
	// needsLibc: the programs need what the C library of a process tells, unless the runtime does.
	needsLibc bool
	// isOf reports whether a file that the loader refuses has something of the runtime, and not just its
	// name. nil: that does not matter.
	isOf func(*pfelf.File) bool
}

// mayBe reports whether a file has something of the runtime, as far as it can be seen.
func (k *runtimeKind) mayBe(file *pfelf.Reference) bool {
	if k.isOf == nil {
		return true
	}
	elf, err := file.GetELF()
	return err != nil || k.isOf(elf)
}

// maxRuntimes is how many processes with a runtime of one kind can be unwound at a time, half of them of one
// user. The module has room for 1024. Each takes some 100 bytes.
const maxRuntimes = 2048

// runtimeKinds are those that are switched on. Their place in it is their number in messages. The module has more,
// which show nothing, or what is wrong, where they were tried: Ruby 3.1 and 3.3, Perl 5.36 to 5.42, Erlang 27 and
// LuaJIT 2.1 of Debian, .NET 9.0.7. Their code is native.
var runtimeKinds = []*runtimeKind{
	{
		name: "Python", of: libpf.Python, frames: PythonFrame, words: []libpf.FrameType{libpf.PythonFrame},
		program: "perf_unwind_python", index: support.ProgUnwindPython, table: python.BPFMapName,
		loader: python.GetLoader(python.Config{}), needsLibc: true,
	},
	{
		name: "V8", of: libpf.V8, frames: V8Frame, words: []libpf.FrameType{libpf.V8Frame},
		program: v8Program, index: support.ProgUnwindV8, table: nodev8.BPFMapName,
		loader: nodev8.GetLoader(nodev8.Config{}), framePointers: true, isOf: hasV8,
	},
	{
		name: "PHP", of: libpf.PHP, frames: PHPFrame, words: []libpf.FrameType{libpf.PHPFrame, libpf.PHPJITFrame},
		program: phpProgram, index: support.ProgUnwindPHP, table: php.BPFMapName,
		loader: php.GetLoader(php.Config{}),
	},
}

// runtimesConfig has the engine look for runtimeKinds, JVMs and Go programs. Of the latter, native code has
// names, which are not looked for here: the engine only learns how to walk from one stack of a thread to another.
func runtimesConfig() interpreterconfig.Config {
	config := interpreterconfig.NoInterpreters()
	config.Hotspot.Disabled = false
	config.Python.Disabled, config.V8.Disabled, config.PHP.Disabled = false, false, false
	config.Go = golang.Config{}
	config.Go.Labels.Disabled, config.Go.Symbolization.Disabled = true, true
	return config
}

// tablesConfig has the engine want no tables but those that there are from the start.
func tablesConfig() interpreterconfig.Config {
	config := interpreterconfig.NoInterpreters()
	config.Hotspot.Disabled = false
	return config
}

// runtimeBy returns the kind for which a condition holds, nil if there is none.
func runtimeBy(holds func(*runtimeKind) bool) *runtimeKind {
	if i := slices.IndexFunc(runtimeKinds, holds); i >= 0 {
		return runtimeKinds[i]
	}
	return nil
}

// runtimeOfWord returns the kind whose frames a word stands for, nil if there is none.
func runtimeOfWord(word libpf.EbpfFrame) *runtimeKind {
	return runtimeBy(func(k *runtimeKind) bool { return slices.Contains(k.words, word.Type()) })
}
